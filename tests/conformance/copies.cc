// Copies between host and device, linear and with pitch.
#include <algorithm>

#include "tests/conformance/gate.h"

CASES_HOLD_STREAMS;

static std::vector<unsigned char> numbered(size_t count) {
  std::vector<unsigned char> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + 1);
  return bytes;
}

CASE(there_and_back) {
  Gpu gpu;
  for (size_t size : {1, 3, 64, 4095, 65536, 1 << 20, (5 << 20) + 3}) {
    const auto bytes = numbered(size);
    std::vector<unsigned char> back(size);
    CUdeviceptr memory = 0;
    CU(cuMemAlloc(&memory, size));
    CU(cuMemcpyHtoD(memory, bytes.data(), size));
    CU(cuMemcpyDtoH(back.data(), memory, size));
    printf("%zu: %s\n", size, back == bytes ? "equal" : "not equal");
    CU(cuMemFree(memory));
  }
}

CASE(zero_bytes) {
  Gpu gpu;
  DeviceArray<char> data(64);
  char host[4] = {};
  SHOW(cuMemcpyHtoD(data.pointer, host, 0));
  SHOW(cuMemcpyDtoH(host, data.pointer, 0));
  SHOW(cuMemcpyDtoD(data.pointer, data.pointer + 32, 0));
  SHOW(cuMemcpy(data.pointer, data.pointer + 32, 0));
  SHOW(cuMemcpyHtoD(0, host, 0));
  SHOW(cuMemcpyDtoH(nullptr, 0, 0));
  SHOW(cuMemcpyHtoDAsync(0, nullptr, 0, nullptr));
}

CASE(null_pointers) {
  Gpu gpu;
  DeviceArray<char> data(64);
  char host[64] = {};
  SHOW(cuMemcpyHtoD(0, host, 16));
  SHOW(cuMemcpyHtoD(data.pointer, nullptr, 16));
  SHOW(cuMemcpyDtoH(nullptr, data.pointer, 16));
  SHOW(cuMemcpyDtoH(host, 0, 16));
  SHOW(cuMemcpyDtoD(0, data.pointer, 16));
  SHOW(cuMemcpyDtoD(data.pointer, 0, 16));
  SHOW(cuMemcpy(0, data.pointer, 16));
}

CASE(null_pointers_async) {
  Gpu gpu;
  DeviceArray<char> data(64);
  char host[64] = {};
  SHOW(cuMemcpyHtoDAsync(0, host, 16, nullptr));
  SHOW(cuMemcpyHtoDAsync(data.pointer, nullptr, 16, nullptr));
  SHOW(cuMemcpyDtoHAsync(nullptr, data.pointer, 16, nullptr));
  SHOW(cuMemcpyDtoHAsync(host, 0, 16, nullptr));
  SHOW(cuMemcpyDtoDAsync(0, data.pointer, 16, nullptr));
  SHOW(cuMemcpyAsync(0, data.pointer, 16, nullptr));
  SHOW(cuCtxSynchronize());
}

CASE(past_the_end) {
  Gpu gpu;
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 2 << 20));
  std::vector<char> host(4 << 20);
  SHOW(cuMemcpyHtoD(memory + (2 << 20) - 8, host.data(), 4 << 20));
  SHOW(cuMemcpyDtoH(host.data(), memory + (2 << 20) - 8, 4 << 20));
  SHOW(cuMemcpyDtoD(memory, memory + (1 << 20), 4 << 20));
  SHOW(cuCtxSynchronize());
  CU(cuMemFree(memory));
}

// Where an allocation ends is what was asked for, not what it takes.
CASE(past_the_end_of_odd_sizes) {
  Gpu gpu;
  std::vector<char> host(4 << 20);
  for (const size_t size : {size_t{30}, size_t{1001}, (size_t{1} << 20) + 7, (size_t{3} << 20) + 1}) {
    for (const bool pooled : {false, true}) {
      CUdeviceptr memory = 0, other = 0;
      CU(cuMemAlloc(&other, 4 << 20));
      CU(pooled ? cuMemAllocAsync(&memory, size, nullptr) : cuMemAlloc(&memory, size));
      const size_t words = (size + 3) / 4 * 4;
      printf("%zu%s\n", size, pooled ? " of a pool" : "");
      SHOW(cuMemcpyHtoD(memory, host.data(), words));
      SHOW(cuMemcpyDtoH(host.data(), memory, words));
      SHOW(cuMemcpyDtoD(other, memory, words));
      SHOW(cuMemcpyDtoDAsync(memory, other, words, nullptr));
      SHOW(cuMemsetD32(memory, 0, words / 4));
      CUDA_MEMCPY2D rows{};
      rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      rows.srcDevice = other, rows.dstDevice = memory;
      rows.WidthInBytes = words / 2, rows.Height = 2;
      SHOW(cuMemcpy2D(&rows));
      rows.srcMemoryType = CU_MEMORYTYPE_HOST, rows.srcHost = host.data();
      SHOW(cuMemcpy2D(&rows));
      SHOW(cuMemcpyHtoD(memory, host.data(), size));
      SHOW(cuCtxSynchronize());
      CU(cuMemFree(memory));
      CU(cuMemFree(other));
    }
  }
}

// Neighbours: natively small allocations lie side by side, too.
CASE(across_neighbours) {
  Gpu gpu;
  DeviceArray<char> large(1 << 20);
  std::vector<char> host(1 << 20);
  CUdeviceptr small[8] = {};
  for (CUdeviceptr& pointer : small) CU(cuMemAlloc(&pointer, 512));
  std::sort(std::begin(small), std::end(small));
  for (int i = 0; i < 7; ++i) {
    EXPECT(cuMemcpyHtoD(small[i], host.data(), 1024) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyDtoH(host.data(), small[i], 1024) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyDtoD(large.pointer, small[i], 1024) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemsetD32(small[i], 0, 256) == CUDA_ERROR_INVALID_VALUE);
  }
  char* const area = static_cast<char*>(aligned_alloc(4096, 4 << 16));
  memset(area, 1, 4 << 16);
  CU(cuMemHostRegister(area + 65536, 65536, 0));
  CU(cuMemHostRegister(area + 131072, 65536, 0));
  SHOW(cuMemcpyHtoD(large.pointer, area + 65536, 131072));
  SHOW(cuMemcpyHtoD(large.pointer, area + 65536 + 512, 70000));
  SHOW(cuMemcpyHtoD(large.pointer, area, 70000));
  SHOW(cuCtxSynchronize());
  CU(cuMemHostUnregister(area + 65536));
  CU(cuMemHostUnregister(area + 131072));
  free(area);
  for (const CUdeviceptr pointer : small) CU(cuMemFree(pointer));
}

// Rows of host memory that CUDA knows at their base.
static CUDA_MEMCPY2D host_rows(const void* base, CUdeviceptr device, size_t first, size_t count,
                               bool up) {
  CUDA_MEMCPY2D c{};
  c.WidthInBytes = 1024, c.Height = count;
  c.srcPitch = c.dstPitch = 1024;
  if (up) {
    c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = base, c.srcY = first;
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE, c.dstDevice = device;
  } else {
    c.dstMemoryType = CU_MEMORYTYPE_HOST, c.dstHost = const_cast<void*>(base), c.dstY = first;
    c.srcMemoryType = CU_MEMORYTYPE_DEVICE, c.srcDevice = device;
  }
  return c;
}

CASE(rows_beyond_known_host_memory) {
  Gpu gpu;
  constexpr size_t kKnown = 64 << 10;
  DeviceArray<char> memory(1 << 20);
  void* area = aligned_alloc(4096, 2 * kKnown);
  memset(area, 0x5a, 2 * kKnown);
  CU(cuMemHostRegister(area, kKnown, 0));
  void* pinned = nullptr;
  CU(cuMemHostAlloc(&pinned, kKnown, 0));
  struct {
    const char* what;
    size_t first, count;
  } const regions[] = {{"inside", 0, 64}, {"last row", 63, 1}, {"behind", 64, 10}, {"across", 32, 64}};
  for (const auto& region : regions) {
    for (void* base : {area, pinned}) {
      for (const bool up : {true, false}) {
        printf("%s %s %s\n", base == area ? "registered" : "pinned", region.what, up ? "up" : "down");
        const CUDA_MEMCPY2D c = host_rows(base, memory.pointer, region.first, region.count, up);
        SHOW(cuMemcpy2DAsync(&c, nullptr));
        SHOW(cuMemcpy2D(&c));
        SHOW(cuCtxSynchronize());
      }
    }
  }
  CU(cuMemHostUnregister(area));
  CU(cuMemFreeHost(pinned));
  free(area);
}

CASE(freed_memory) {
  Gpu gpu;
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 4 << 20));
  CU(cuMemFree(memory));
  char host[16] = {};
  SHOW(cuMemcpyHtoD(memory, host, 16));
  SHOW(cuMemcpyDtoH(host, memory, 16));
  SHOW(cuCtxSynchronize());
}

CASE(wrong_kinds) {
  Gpu gpu;
  DeviceArray<char> data(64);
  char host[64] = {5}, other[64] = {};
  SHOW(cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(other), host, 16));
  SHOW(cuMemcpyDtoH(other, reinterpret_cast<CUdeviceptr>(host), 16));
  SHOW(cuMemcpyDtoD(reinterpret_cast<CUdeviceptr>(other), data.pointer, 16));
  SHOW(cuMemcpyHtoD(data.pointer, reinterpret_cast<void*>(data.pointer), 16));
  SHOW(cuMemcpyDtoH(reinterpret_cast<void*>(data.pointer), data.pointer, 16));
}

CASE(unified_copy_finds_the_kinds) {
  Gpu gpu;
  DeviceArray<char> data(64);
  char host[64] = "from the host", other[64] = {};
  SHOW(cuMemcpy(data.pointer, reinterpret_cast<CUdeviceptr>(host), 64));
  SHOW(cuMemcpy(reinterpret_cast<CUdeviceptr>(other), data.pointer, 64));
  printf("%s\n", other);
  char third[64] = {};
  SHOW(cuMemcpy(reinterpret_cast<CUdeviceptr>(third), reinterpret_cast<CUdeviceptr>(host), 64));
  printf("%s\n", third);
  SHOW(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(third), data.pointer, 64, nullptr));
  SHOW(cuStreamSynchronize(nullptr));
}

CASE(overlapping) {
  Gpu gpu;
  DeviceArray<unsigned char> data(numbered(4096));
  SHOW(cuMemcpyDtoD(data.pointer + 1024, data.pointer, 1024));
  SHOW(cuMemcpyDtoD(data.pointer, data.pointer, 64));
  SHOW(cuMemcpyDtoD(data.pointer + 16, data.pointer, 64));
}

CASE(pageable_source_may_be_reused_at_return) {
  Gpu gpu;
  DeviceArray<unsigned char> data(200000);
  auto bytes = numbered(200000);
  CU(cuMemcpyHtoDAsync(data.pointer, bytes.data(), bytes.size(), nullptr));
  std::fill(bytes.begin(), bytes.end(), 0);
  printf("%s\n", data.read() == numbered(200000) ? "equal" : "not equal");
}

CASE(device_to_pageable_is_complete_at_return) {
  Gpu gpu;
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> data(32);
  CU(cuMemsetD32(data.pointer, 1, 32));
  for (int i = 0; i < 5; ++i) LAUNCH(module.function("slow_step"), {1}, {32}, 0, nullptr, data.pointer, 2u, 0u, 32, 10000);
  uint32_t value = 0;
  SHOW(cuMemcpyDtoHAsync(&value, data.pointer, 4, nullptr));
  printf("%u\n", value);
}

CASE(pinned_copies_are_asynchronous) {
  Gpu gpu;
  Gate gate;
  DeviceArray<uint32_t> data(16);
  CU(cuMemsetD32(data.pointer, 5, 16));
  CU(cuCtxSynchronize());
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 64, 0));
  auto* pinned = static_cast<volatile uint32_t*>(memory);
  pinned[0] = 1;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  gate.stop(stream);
  SHOW(cuMemcpyDtoHAsync(memory, data.pointer, 64, stream));
  SHOW(cuStreamQuery(stream));
  printf("%u\n", pinned[0]);
  gate.open();
  SHOW(cuStreamSynchronize(stream));
  printf("%u\n", pinned[0]);
  CU(cuMemFreeHost(memory));
}

static CUDA_MEMCPY2D rectangle(CUdeviceptr from, size_t from_pitch, CUdeviceptr to, size_t to_pitch, size_t width, size_t height) {
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from, copy.srcPitch = from_pitch;
  copy.dstDevice = to, copy.dstPitch = to_pitch;
  copy.WidthInBytes = width, copy.Height = height;
  return copy;
}

CASE(rectangle_between_pitches) {
  Gpu gpu;
  DeviceArray<unsigned char> from(numbered(1024)), to(1024);
  CU(cuMemsetD8(to.pointer, 0, 1024));
  CUDA_MEMCPY2D copy = rectangle(from.pointer, 64, to.pointer, 32, 20, 10);
  copy.srcXInBytes = 3, copy.srcY = 2, copy.dstXInBytes = 5, copy.dstY = 1;
  SHOW(cuMemcpy2D(&copy));
  print_hash("result", to.read());
  SHOW(cuMemcpy2DUnaligned(&copy));
  SHOW(cuMemcpy2DAsync(&copy, nullptr));
  print_hash("result", to.read());
}

CASE(rectangle_with_a_host_side) {
  Gpu gpu;
  const auto bytes = numbered(1024);
  std::vector<unsigned char> back(1024);
  DeviceArray<unsigned char> data(1024);
  CU(cuMemsetD8(data.pointer, 0, 1024));
  CUDA_MEMCPY2D copy = rectangle(0, 50, data.pointer, 64, 40, 12);
  copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = bytes.data();
  SHOW(cuMemcpy2D(&copy));
  print_hash("device", data.read());
  copy = rectangle(data.pointer, 64, 0, 41, 40, 12);
  copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = back.data();
  SHOW(cuMemcpy2D(&copy));
  print_hash("host", back);
}

CASE(rectangle_bad_arguments) {
  Gpu gpu;
  DeviceArray<unsigned char> data(4096);
  SHOW(cuMemcpy2D(nullptr));
  CUDA_MEMCPY2D copy = rectangle(data.pointer, 64, data.pointer + 2048, 64, 65, 4);
  SHOW(cuMemcpy2D(&copy));
  copy = rectangle(data.pointer, 64, data.pointer + 2048, 32, 64, 4);
  SHOW(cuMemcpy2D(&copy));
  copy = rectangle(data.pointer, 64, data.pointer + 2048, 64, 60, 4);
  copy.srcXInBytes = 10;
  SHOW(cuMemcpy2D(&copy));
  copy = rectangle(0, 64, data.pointer, 64, 60, 4);
  SHOW(cuMemcpy2D(&copy));
  copy = rectangle(data.pointer, 64, data.pointer + 2048, 64, 60, 4);
  copy.srcMemoryType = static_cast<CUmemorytype>(9);
  SHOW(cuMemcpy2D(&copy));
  copy = rectangle(data.pointer, 64, data.pointer + 2048, 64, 0, 4);
  SHOW(cuMemcpy2D(&copy));
  copy = rectangle(data.pointer, 64, data.pointer + 2048, 64, 60, 0);
  SHOW(cuMemcpy2D(&copy));
  copy = rectangle(data.pointer, size_t{1} << 40, data.pointer + 2048, 64, 60, 4);
  SHOW(cuMemcpy2D(&copy));
}

CASE(rectangle_without_pitch) {
  Gpu gpu;
  DeviceArray<unsigned char> from(numbered(512)), to(512);
  CU(cuMemsetD8(to.pointer, 0, 512));
  CUDA_MEMCPY2D copy = rectangle(from.pointer, 0, to.pointer, 0, 16, 8);
  SHOW(cuMemcpy2D(&copy));
  print_hash("result", to.read());
}

CASE(box) {
  Gpu gpu;
  DeviceArray<unsigned char> from(numbered(8192)), to(8192);
  CU(cuMemsetD8(to.pointer, 0, 8192));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from.pointer, copy.srcPitch = 32, copy.srcHeight = 10;
  copy.dstDevice = to.pointer, copy.dstPitch = 24, copy.dstHeight = 12;
  copy.srcXInBytes = 4, copy.srcY = 1, copy.srcZ = 2, copy.dstZ = 1;
  copy.WidthInBytes = 17, copy.Height = 5, copy.Depth = 6;
  SHOW(cuMemcpy3D(&copy));
  print_hash("result", to.read());
  CU(cuMemsetD8(to.pointer, 0, 8192));
  SHOW(cuMemcpy3DAsync(&copy, nullptr));
  print_hash("result", to.read());
}

CASE(box_bad_arguments) {
  Gpu gpu;
  DeviceArray<unsigned char> data(8192);
  SHOW(cuMemcpy3D(nullptr));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = data.pointer, copy.srcPitch = 32, copy.srcHeight = 2;
  copy.dstDevice = data.pointer + 4096, copy.dstPitch = 32, copy.dstHeight = 2;
  copy.WidthInBytes = 33, copy.Height = 2, copy.Depth = 2;
  SHOW(cuMemcpy3D(&copy));
  copy.WidthInBytes = 32, copy.Height = 3;
  SHOW(cuMemcpy3D(&copy));
  copy.Height = 2, copy.Depth = 0;
  SHOW(cuMemcpy3D(&copy));
  copy.Depth = 2, copy.srcLOD = 1;
  SHOW(cuMemcpy3D(&copy));
  copy.srcLOD = 0, copy.reserved0 = &copy;
  SHOW(cuMemcpy3D(&copy));
}

CASE(peer_copy_within_one_context) {
  Gpu gpu;
  DeviceArray<unsigned char> from(numbered(256)), to(256);
  SHOW(cuMemcpyPeer(to.pointer, gpu.context, from.pointer, gpu.context, 256));
  printf("%s\n", to.read() == from.read() ? "equal" : "not equal");
  SHOW(cuMemcpyPeerAsync(to.pointer, gpu.context, from.pointer, gpu.context, 256, nullptr));
  SHOW(cuMemcpyPeer(to.pointer, nullptr, from.pointer, gpu.context, 256));
  SHOW(cuCtxSynchronize());
}

CASE(box_peer_within_one_context) {
  Gpu gpu;
  DeviceArray<unsigned char> from(numbered(512)), to(512);
  CU(cuMemsetD8(to.pointer, 0, 512));
  CUDA_MEMCPY3D_PEER copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from.pointer, copy.srcPitch = 16, copy.srcHeight = 4, copy.srcContext = gpu.context;
  copy.dstDevice = to.pointer, copy.dstPitch = 16, copy.dstHeight = 4, copy.dstContext = gpu.context;
  copy.WidthInBytes = 10, copy.Height = 3, copy.Depth = 2;
  SHOW(cuMemcpy3DPeer(&copy));
  print_hash("result", to.read());
  SHOW(cuMemcpy3DPeerAsync(&copy, nullptr));
  SHOW(cuCtxSynchronize());  // cuMemcpy3DPeer(NULL) crashes natively
}

CASE(large_pageable_copies_in_two_streams) {
  Gpu gpu;
  const auto bytes = numbered(6 << 20);
  std::vector<unsigned char> one(bytes.size()), two(bytes.size());
  DeviceArray<unsigned char> a(bytes.size()), b(bytes.size());
  CUstream streams[2];
  for (auto& stream : streams) CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuMemcpyHtoDAsync(a.pointer, bytes.data(), bytes.size(), streams[0]));
  CU(cuMemcpyHtoDAsync(b.pointer, bytes.data(), bytes.size(), streams[1]));
  CU(cuMemcpyDtoHAsync(one.data(), a.pointer, bytes.size(), streams[0]));
  CU(cuMemcpyDtoHAsync(two.data(), b.pointer, bytes.size(), streams[1]));
  CU(cuCtxSynchronize());
  printf("%s %s\n", one == bytes ? "equal" : "not equal", two == bytes ? "equal" : "not equal");
}

CASE(a_constant_string_as_source) {
  Gpu gpu;
  DeviceArray<char> data(16);
  SHOW(cuMemcpyHtoD(data.pointer, "read-only bytes", 16));
  printf("%s\n", data.read().data());
}

TWO_DEVICES_CASE(between_devices) {
  CU(cuInit(0));
  CUcontext contexts[2];
  CUdeviceptr memory[2];
  for (int i = 0; i < 2; ++i) {
    CU(cuDevicePrimaryCtxRetain(&contexts[i], i));
    CU(cuCtxSetCurrent(contexts[i]));
    CU(cuMemAlloc(&memory[i], 4096));
    CU(cuMemsetD8(memory[i], static_cast<unsigned char>(i + 1), 4096));
    CU(cuCtxSynchronize());
  }
  SHOW(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], 2048));
  unsigned char bytes[4096];
  SHOW(cuMemcpyDtoH(bytes, memory[1], 4096));
  printf("%d %d\n", bytes[0], bytes[4095]);
  SHOW(cuMemcpyDtoD(memory[0], memory[1], 4096));
  SHOW(cuMemcpy(memory[0], memory[1], 4096));
  SHOW(cuMemcpyDtoH(bytes, memory[0], 4096));
  printf("%d %d\n", bytes[0], bytes[4095]);
}
