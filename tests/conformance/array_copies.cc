// Copies into and out of CUDA arrays, in one to three dimensions, by streams and by graphs.
#include "tests/conformance/array_kit.h"

#include <algorithm>

using namespace array_kit;

// ---- one-dimensional copies ----

CASE(copy_host_to_array_and_back) {
  Gpu gpu;
  Array a(flat(64, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(64), out(64);
  SHOW(cuMemcpyHtoA(a.handle, 0, in.data(), 256));
  SHOW(cuMemcpyAtoH(out.data(), a.handle, 0, 256));
  printf("equal: %d\n", in == out);
}

CASE(copy_with_offsets) {
  Gpu gpu;
  Array a(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> zero(16), in = numbers(4, 100), out(16);
  CU(cuMemcpyHtoA(a.handle, 0, zero.data(), 64));
  SHOW(cuMemcpyHtoA(a.handle, 20, in.data(), 16));
  CU(cuMemcpyAtoH(out.data(), a.handle, 0, 64));
  print("array", out);
  std::vector<uint32_t> part(2);
  SHOW(cuMemcpyAtoH(part.data(), a.handle, 24, 8));
  print("part", part);
}

CASE(copy_array_to_array) {
  Gpu gpu;
  Array a(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32)), b(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(16, 1), zero(16), out(16);
  CU(cuMemcpyHtoA(a.handle, 0, in.data(), 64));
  CU(cuMemcpyHtoA(b.handle, 0, zero.data(), 64));
  SHOW(cuMemcpyAtoA(b.handle, 8, a.handle, 4, 40));
  CU(cuMemcpyAtoH(out.data(), b.handle, 0, 64));
  print("array", out);
}

CASE(copy_device_and_array) {
  Gpu gpu;
  Array a(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  DeviceArray<uint32_t> in(numbers(16, 7)), out(std::vector<uint32_t>(16, 0));
  SHOW(cuMemcpyDtoA(a.handle, 0, in.pointer, 64));
  SHOW(cuMemcpyAtoD(out.pointer, a.handle, 0, 64));
  print("device", out.read());
}

CASE(copy_async_and_array) {
  Gpu gpu;
  Array a(flat(1024, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<uint32_t> in = numbers(1024, 3), out(1024);
  SHOW(cuMemcpyHtoAAsync(a.handle, 0, in.data(), 4096, stream));
  SHOW(cuMemcpyAtoHAsync(out.data(), a.handle, 0, 4096, stream));
  CU(cuStreamSynchronize(stream));
  printf("equal: %d\n", in == out);
  CU(cuStreamDestroy(stream));
}

CASE(copy_async_pinned_and_array) {
  Gpu gpu;
  Array a(flat(1024, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  uint32_t* pinned = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), 8192, 0));
  for (uint32_t i = 0; i < 1024; ++i) pinned[i] = i * 3;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  SHOW(cuMemcpyHtoAAsync(a.handle, 0, pinned, 4096, stream));
  SHOW(cuMemcpyAtoHAsync(pinned + 1024, a.handle, 0, 4096, stream));
  CU(cuStreamSynchronize(stream));
  printf("equal: %d\n", memcmp(pinned, pinned + 1024, 4096) == 0);
  CU(cuStreamDestroy(stream));
  CU(cuMemFreeHost(pinned));
}

CASE(copy_per_thread_forms) {
  Gpu gpu;
  Array a(flat(8, 0, CU_AD_FORMAT_UNSIGNED_INT32)), b(flat(8, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(8, 50), out(8);
  DeviceArray<uint32_t> device(std::vector<uint32_t>(8, 0));
  SHOW(cuMemcpyHtoA_v2_ptds(a.handle, 0, in.data(), 32));
  SHOW(cuMemcpyAtoA_v2_ptds(b.handle, 0, a.handle, 0, 32));
  SHOW(cuMemcpyAtoD_v2_ptds(device.pointer, b.handle, 0, 32));
  SHOW(cuMemcpyDtoA_v2_ptds(a.handle, 0, device.pointer, 32));
  SHOW(cuMemcpyAtoH_v2_ptds(out.data(), a.handle, 0, 32));
  print("host", out);
  SHOW(cuMemcpyHtoAAsync_v2_ptsz(b.handle, 0, in.data(), 32, nullptr));
  SHOW(cuMemcpyAtoHAsync_v2_ptsz(out.data(), b.handle, 0, 32, nullptr));
  CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  print("host", out);
}

CASE(copy_outside_array) {
  Gpu gpu;
  Array a(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> data(64);
  SHOW(cuMemcpyHtoA(a.handle, 0, data.data(), 65));
  SHOW(cuMemcpyHtoA(a.handle, 0, data.data(), 68));
  SHOW(cuMemcpyHtoA(a.handle, 64, data.data(), 4));
  SHOW(cuMemcpyAtoH(data.data(), a.handle, 60, 8));
  SHOW(cuMemcpyAtoH(data.data(), a.handle, SIZE_MAX - 3, 4));
}

CASE(copy_unaligned_to_elements) {
  Gpu gpu;
  Array a(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> data(64);
  SHOW(cuMemcpyHtoA(a.handle, 1, data.data(), 4));
  SHOW(cuMemcpyHtoA(a.handle, 0, data.data(), 3));
  SHOW(cuMemcpyAtoH(data.data(), a.handle, 2, 4));
}

CASE(copy_zero_bytes_and_array) {
  Gpu gpu;
  Array a(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  uint32_t value = 0;
  SHOW(cuMemcpyHtoA(a.handle, 0, &value, 0));
  SHOW(cuMemcpyAtoH(&value, a.handle, 0, 0));
}

CASE(copy_zero_bytes_null_array) {
  Gpu gpu;
  uint32_t value = 0;
  SHOW(cuMemcpyHtoA(nullptr, 0, &value, 0));
  SHOW(cuMemcpyAtoH(&value, nullptr, 0, 0));
  CUDA_MEMCPY2D c = to_array(nullptr, &value, 4, 0, 1);
  SHOW(cuMemcpy2D(&c));
}

CASE(copy_null_array) {
  Gpu gpu;
  Array a(flat(16, 0));
  DeviceArray<uint32_t> device(16);
  uint32_t value = 0;
  SHOW(cuMemcpyHtoA(nullptr, 0, &value, 4));
  SHOW(cuMemcpyAtoH(&value, nullptr, 0, 4));
  SHOW(cuMemcpyAtoA(nullptr, 0, a.handle, 0, 4));
  SHOW(cuMemcpyAtoA(a.handle, 0, nullptr, 0, 4));
  SHOW(cuMemcpyDtoA(nullptr, 0, device.pointer, 4));
  SHOW(cuMemcpyAtoD(device.pointer, nullptr, 0, 4));
  SHOW(cuMemcpyHtoAAsync(nullptr, 0, &value, 4, nullptr));
  SHOW(cuMemcpyAtoHAsync(&value, nullptr, 0, 4, nullptr));
}

CASE(copy_null_host) {
  Gpu gpu;
  Array a(flat(16, 0));
  SHOW(cuMemcpyHtoA(a.handle, 0, nullptr, 4));
  SHOW(cuMemcpyAtoH(nullptr, a.handle, 0, 4));
}

CASE(copy_flat_into_2d_array) {
  Gpu gpu;
  Array a(flat(8, 4, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(32), out(32);
  CUDA_MEMCPY2D c = to_array(a.handle, in.data(), 32, 32, 4);
  CU(cuMemcpy2D(&c));
  SHOW(cuMemcpyAtoH(out.data(), a.handle, 0, 32));
  print("first row", std::vector<uint32_t>(out.begin(), out.begin() + 8));
  SHOW(cuMemcpyAtoH(out.data(), a.handle, 0, 64));
  SHOW(cuMemcpyAtoH(out.data(), a.handle, 32, 32));
}

// ---- two and three dimensions ----

CASE(copy_2d_host) {
  Gpu gpu;
  Array a(flat(33, 21, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(40 * 21), out(33 * 21);
  CUDA_MEMCPY2D up = to_array(a.handle, in.data(), 160, 132, 21), down = from_array(out.data(), a.handle, 132, 132, 21);
  SHOW(cuMemcpy2D(&up));
  SHOW(cuMemcpy2D(&down));
  print_hash("array", out);
  printf("corner %u\n", out.back());
}

CASE(copy_2d_part) {
  Gpu gpu;
  Array a(flat(8, 8, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> zero(64), in = numbers(64, 100), out(64);
  CUDA_MEMCPY2D clear = to_array(a.handle, zero.data(), 32, 32, 8);
  CU(cuMemcpy2D(&clear));
  CUDA_MEMCPY2D c = to_array(a.handle, in.data(), 32, 12, 2);
  c.srcXInBytes = 4, c.srcY = 1, c.dstXInBytes = 8, c.dstY = 5;
  SHOW(cuMemcpy2D(&c));
  CUDA_MEMCPY2D down = from_array(out.data(), a.handle, 32, 32, 8);
  CU(cuMemcpy2D(&down));
  for (size_t row = 4; row < 8; ++row) print("row", std::vector<uint32_t>(out.begin() + static_cast<long>(row) * 8, out.begin() + static_cast<long>(row) * 8 + 8));
}

CASE(copy_2d_device_and_unaligned) {
  Gpu gpu;
  Array a(flat(16, 4, CU_AD_FORMAT_UNSIGNED_INT8, 4));
  DeviceArray<uint32_t> in(numbers(80)), out(std::vector<uint32_t>(64, 0));
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = CU_MEMORYTYPE_DEVICE, c.srcDevice = in.pointer, c.srcPitch = 80;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = a.handle;
  c.WidthInBytes = 64, c.Height = 4;
  SHOW(cuMemcpy2DUnaligned(&c));
  CUDA_MEMCPY2D d{};
  d.srcMemoryType = CU_MEMORYTYPE_ARRAY, d.srcArray = a.handle;
  d.dstMemoryType = CU_MEMORYTYPE_UNIFIED, d.dstDevice = out.pointer, d.dstPitch = 64;
  d.WidthInBytes = 64, d.Height = 4;
  SHOW(cuMemcpy2D(&d));
  print("device", out.read());
}

CASE(copy_2d_outside) {
  Gpu gpu;
  Array a(flat(8, 8));
  std::vector<float> data(256);
  CUDA_MEMCPY2D c = to_array(a.handle, data.data(), 64, 36, 4);
  SHOW(cuMemcpy2D(&c));
  c = to_array(a.handle, data.data(), 64, 32, 9);
  SHOW(cuMemcpy2D(&c));
  c = to_array(a.handle, data.data(), 64, 16, 4);
  c.dstXInBytes = 20;
  SHOW(cuMemcpy2D(&c));
  c.dstXInBytes = 16, c.dstY = 5;
  SHOW(cuMemcpy2D(&c));
  c.dstY = 4;
  SHOW(cuMemcpy2D(&c));
}

CASE(copy_2d_async_null_array) {
  Gpu gpu;
  std::vector<float> data(64);
  CUDA_MEMCPY2D c = to_array(nullptr, data.data(), 32, 32, 2);
  SHOW(cuMemcpy2D(&c));
  SHOW(cuMemcpy2DAsync(&c, nullptr));
}

CASE(copy_2d_array_to_array_overlapping) {
  Gpu gpu;
  Array a(flat(8, 8, CU_AD_FORMAT_UNSIGNED_INT32)), b(flat(12, 10, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(64), zero(120), out(120);
  CUDA_MEMCPY2D up = to_array(a.handle, in.data(), 32, 32, 8), clear = to_array(b.handle, zero.data(), 48, 48, 10);
  CU(cuMemcpy2D(&up));
  CU(cuMemcpy2D(&clear));
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.srcArray = a.handle, c.dstArray = b.handle;
  c.srcXInBytes = 8, c.srcY = 3, c.dstXInBytes = 16, c.dstY = 2;
  c.WidthInBytes = 24, c.Height = 5;
  SHOW(cuMemcpy2D(&c));
  CUDA_MEMCPY2D down = from_array(out.data(), b.handle, 48, 48, 10);
  CU(cuMemcpy2D(&down));
  print_hash("array", out);
  printf("moved %u %u\n", out[2 * 12 + 4], out[6 * 12 + 9]);
}

CASE(copy_3d_host) {
  Gpu gpu;
  Array a(deep(5, 4, 3, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(60), out(60);
  CUDA_MEMCPY3D up = to_array_3d(a.handle, in.data(), 20, 4, 3), down = from_array_3d(out.data(), a.handle, 20, 4, 3);
  SHOW(cuMemcpy3D(&up));
  SHOW(cuMemcpy3D(&down));
  printf("equal: %d\n", in == out);
}

CASE(copy_3d_part) {
  Gpu gpu;
  Array a(deep(4, 4, 4, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> zero(64), in = numbers(64, 500), out(64);
  CUDA_MEMCPY3D clear = to_array_3d(a.handle, zero.data(), 16, 4, 4);
  CU(cuMemcpy3D(&clear));
  CUDA_MEMCPY3D c = to_array_3d(a.handle, in.data(), 16, 4, 4);
  c.dstXInBytes = 4, c.dstY = 2, c.dstZ = 3, c.srcZ = 1;
  c.WidthInBytes = 8, c.Height = 2, c.Depth = 1;
  SHOW(cuMemcpy3D(&c));
  CUDA_MEMCPY3D down = from_array_3d(out.data(), a.handle, 16, 4, 4);
  CU(cuMemcpy3D(&down));
  print("last slice", std::vector<uint32_t>(out.begin() + 48, out.end()));
}

CASE(copy_3d_layers) {
  Gpu gpu;
  Array a(deep(4, 0, 3, CUDA_ARRAY3D_LAYERED, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(12, 1), out(12);
  CUDA_MEMCPY3D up = to_array_3d(a.handle, in.data(), 16, 1, 3), down = from_array_3d(out.data(), a.handle, 16, 1, 3);
  SHOW(cuMemcpy3D(&up));
  SHOW(cuMemcpy3D(&down));
  print("layers", out);
}

CASE(copy_3d_lod_must_be_zero) {
  Gpu gpu;
  Array a(deep(4, 4, 4));
  std::vector<float> data(64);
  CUDA_MEMCPY3D c = to_array_3d(a.handle, data.data(), 16, 4, 4);
  c.dstLOD = 1;
  SHOW(cuMemcpy3D(&c));
}

CASE(copy_3d_async_and_peer) {
  Gpu gpu;
  Array a(deep(16, 8, 4, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(512, 9), out(512);
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CUDA_MEMCPY3D up = to_array_3d(a.handle, in.data(), 64, 8, 4);
  SHOW(cuMemcpy3DAsync(&up, stream));
  CU(cuStreamSynchronize(stream));
  CUDA_MEMCPY3D_PEER down{};
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY, down.srcArray = a.handle, down.srcContext = gpu.context;
  down.dstMemoryType = CU_MEMORYTYPE_HOST, down.dstHost = out.data(), down.dstPitch = 64, down.dstHeight = 8, down.dstContext = gpu.context;
  down.WidthInBytes = 64, down.Height = 8, down.Depth = 4;
  SHOW(cuMemcpy3DPeer(&down));
  printf("equal: %d\n", in == out);
  std::fill(out.begin(), out.end(), 0);
  SHOW(cuMemcpy3DPeerAsync(&down, stream));
  CU(cuStreamSynchronize(stream));
  printf("equal: %d\n", in == out);
  CU(cuStreamDestroy(stream));
}

CASE(copy_long_rows) {
  Gpu gpu;
  // Rows of two MiB: longer than anything that goes in one piece.
  Array a(flat(131072, 3, CU_AD_FORMAT_FLOAT, 4));
  std::vector<uint32_t> in = numbers(131072 * 4 * 3), out(in.size());
  const size_t row = 131072 * 16;
  CUDA_MEMCPY2D up = to_array(a.handle, in.data(), row, row, 3), down = from_array(out.data(), a.handle, row, row, 3);
  SHOW(cuMemcpy2D(&up));
  SHOW(cuMemcpy2D(&down));
  printf("equal: %d\n", in == out);
}

CASE(copy_many_megabytes) {
  Gpu gpu;
  Array a(flat(1024, 4096, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(1024 * 4096, 11), out(in.size());
  CUDA_MEMCPY2D up = to_array(a.handle, in.data(), 4096, 4096, 4096), down = from_array(out.data(), a.handle, 4096, 4096, 4096);
  CU(cuMemcpy2D(&up));
  CU(cuMemcpy2D(&down));
  printf("equal: %d\n", in == out);
}

CASE(destroy_while_copying) {
  Gpu gpu;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<uint32_t> in = numbers(1024 * 1024);
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR d = flat(1024, 1024, CU_AD_FORMAT_UNSIGNED_INT32);
  CU(cuArrayCreate(&a, &d));
  CUDA_MEMCPY2D up = to_array(a, in.data(), 4096, 4096, 1024);
  CU(cuMemcpy2DAsync(&up, stream));
  SHOW(cuArrayDestroy(a));
  SHOW(cuStreamSynchronize(stream));
  CU(cuStreamDestroy(stream));
}

CASE(context_reset_ends_arrays) {
  Gpu gpu;
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR d = flat(16, 16);
  CU(cuArrayCreate(&a, &d));
  SHOW(cuDevicePrimaryCtxReset(gpu.device));
  CU(cuCtxSetCurrent(gpu.context));
  CUarray b = nullptr;
  SHOW(cuArrayCreate(&b, &d));
  SHOW(cuArrayDestroy(b));
}

// ---- graphs ----

CASE(graph_copies_array) {
  Gpu gpu;
  Array a(flat(16, 4, CU_AD_FORMAT_UNSIGNED_INT32));
  DeviceArray<uint32_t> in(numbers(64, 4)), out(std::vector<uint32_t>(64, 0));
  CUgraph graph = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CUDA_MEMCPY3D up{};
  up.srcMemoryType = CU_MEMORYTYPE_DEVICE, up.srcDevice = in.pointer, up.srcPitch = 64, up.srcHeight = 4;
  up.dstMemoryType = CU_MEMORYTYPE_ARRAY, up.dstArray = a.handle;
  up.WidthInBytes = 64, up.Height = 4, up.Depth = 1;
  CUDA_MEMCPY3D down{};
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY, down.srcArray = a.handle;
  down.dstMemoryType = CU_MEMORYTYPE_DEVICE, down.dstDevice = out.pointer, down.dstPitch = 64, down.dstHeight = 4;
  down.WidthInBytes = 64, down.Height = 4, down.Depth = 1;
  CUgraphNode first = nullptr, second = nullptr;
  SHOW(cuGraphAddMemcpyNode(&first, graph, nullptr, 0, &up, gpu.context));
  SHOW(cuGraphAddMemcpyNode(&second, graph, &first, 1, &down, gpu.context));
  CUgraphExec exec = nullptr;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  SHOW(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  printf("equal: %d\n", out.read() == in.read());
  CU(cuStreamDestroy(stream));
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

CASE(graph_copies_array_and_host) {
  Gpu gpu;
  Array a(flat(16, 4, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(64, 30), out(64);
  CUDA_MEMCPY3D up = to_array_3d(a.handle, in.data(), 64, 4, 1), down = from_array_3d(out.data(), a.handle, 64, 4, 1);
  CUgraph graph = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode first = nullptr, second = nullptr;
  SHOW(cuGraphAddMemcpyNode(&first, graph, nullptr, 0, &up, gpu.context));
  SHOW(cuGraphAddMemcpyNode(&second, graph, &first, 1, &down, gpu.context));
  CUgraphExec exec = nullptr;
  CU(cuGraphInstantiate(&exec, graph, 0));
  for (uint32_t round = 0; round < 2; ++round) {
    std::ranges::copy(numbers(64, 1000 * round), in.begin());
    CU(cuGraphLaunch(exec, nullptr));
    CU(cuCtxSynchronize());
    printf("round %u equal: %d\n", round, in == out);
  }
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

CASE(graph_node_names_array) {
  Gpu gpu;
  Array a(flat(16, 4, CU_AD_FORMAT_UNSIGNED_INT32)), b(flat(16, 4, CU_AD_FORMAT_UNSIGNED_INT32));
  CUgraph graph = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.srcArray = a.handle, c.dstArray = b.handle;
  c.srcXInBytes = 8, c.dstY = 1;
  c.WidthInBytes = 32, c.Height = 2, c.Depth = 1;
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &c, gpu.context));
  CUDA_MEMCPY3D got{};
  SHOW(cuGraphMemcpyNodeGetParams(node, &got));
  printf("types %d %d, same arrays: %d %d, from %zu %zu to %zu %zu, %zu x %zu x %zu\n", static_cast<int>(got.srcMemoryType), static_cast<int>(got.dstMemoryType),
         got.srcArray == a.handle, got.dstArray == b.handle, got.srcXInBytes, got.srcY, got.dstXInBytes, got.dstY, got.WidthInBytes, got.Height, got.Depth);
  c.dstArray = nullptr;
  CUgraphNode bad = nullptr;
  SHOW(cuGraphAddMemcpyNode(&bad, graph, nullptr, 0, &c, gpu.context));
  CU(cuGraphDestroy(graph));
}

CASE(capture_copies_array_and_host) {
  Gpu gpu;
  Array a(flat(64, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(64, 8), out(64);
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuMemcpyHtoAAsync(a.handle, 0, in.data(), 256, stream));
  SHOW(cuMemcpyAtoHAsync(out.data(), a.handle, 0, 256, stream));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(stream, &graph));
  CUgraphExec exec = nullptr;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  printf("equal: %d\n", in == out);
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
  CU(cuStreamDestroy(stream));
}

CASE(capture_copies_array) {
  Gpu gpu;
  Array a(flat(16, 4, CU_AD_FORMAT_UNSIGNED_INT32));
  DeviceArray<uint32_t> in(numbers(64, 21)), out(std::vector<uint32_t>(64, 0));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUDA_MEMCPY2D up{};
  up.srcMemoryType = CU_MEMORYTYPE_DEVICE, up.srcDevice = in.pointer, up.srcPitch = 64;
  up.dstMemoryType = CU_MEMORYTYPE_ARRAY, up.dstArray = a.handle;
  up.WidthInBytes = 64, up.Height = 4;
  SHOW(cuMemcpy2DAsync(&up, stream));
  CUDA_MEMCPY2D down{};
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY, down.srcArray = a.handle;
  down.dstMemoryType = CU_MEMORYTYPE_DEVICE, down.dstDevice = out.pointer, down.dstPitch = 64;
  down.WidthInBytes = 64, down.Height = 4;
  SHOW(cuMemcpy2DAsync(&down, stream));
  CUgraph graph = nullptr;
  CU(cuStreamEndCapture(stream, &graph));
  CUgraphExec exec = nullptr;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  printf("equal: %d\n", out.read() == in.read());
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
  CU(cuStreamDestroy(stream));
}

CASE(capture_forbids_synchronous_array_copy) {
  Gpu gpu;
  Array a(flat(16, 0));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  uint32_t value = 0;
  SHOW(cuMemcpyAtoH(&value, a.handle, 0, 4));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(stream, &graph));
  CU(cuStreamDestroy(stream));
}

namespace {
// The second device's primary context, retained.
struct Other {
  CUdevice device = 0;
  CUcontext context = nullptr;
  Other() {
    CU(cuDeviceGet(&device, 1));
    CU(cuDevicePrimaryCtxRetain(&context, device));
  }
  ~Other() { CU(cuDevicePrimaryCtxRelease(device)); }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
};
}  // namespace

TWO_DEVICES_CASE(copy_between_devices) {
  Gpu gpu;
  Other other;
  Array a(deep(16, 8, 2, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  CU(cuCtxSetCurrent(other.context));
  Array b(deep(16, 8, 2, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  CU(cuCtxSetCurrent(gpu.context));
  std::vector<uint32_t> in = numbers(256, 77), out(256);
  CUDA_MEMCPY3D up = to_array_3d(a.handle, in.data(), 64, 8, 2);
  CU(cuMemcpy3D(&up));
  CUDA_MEMCPY3D_PEER c{};
  c.srcMemoryType = CU_MEMORYTYPE_ARRAY, c.srcArray = a.handle, c.srcContext = gpu.context;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = b.handle, c.dstContext = other.context;
  c.WidthInBytes = 64, c.Height = 8, c.Depth = 2;
  SHOW(cuMemcpy3DPeer(&c));
  CU(cuCtxSetCurrent(other.context));
  CUDA_MEMCPY3D down = from_array_3d(out.data(), b.handle, 64, 8, 2);
  CU(cuMemcpy3D(&down));
  printf("equal: %d\n", in == out);
  CU(cuCtxSetCurrent(gpu.context));
}

TWO_DEVICES_CASE(copy_array_of_another_device) {
  Gpu gpu;
  Other other;
  CU(cuCtxSetCurrent(other.context));
  Array b(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  CU(cuCtxSetCurrent(gpu.context));
  std::vector<uint32_t> in = numbers(16, 5), out(16);
  SHOW(cuMemcpyHtoA(b.handle, 0, in.data(), 64));
  SHOW(cuMemcpyAtoH(out.data(), b.handle, 0, 64));
  printf("equal: %d\n", in == out);
}
