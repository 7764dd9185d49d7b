// cuMemcpyBatchAsync and cuMemcpy3DBatchAsync: what is copied, in which order it is read, which
// arguments are refused.
#include <type_traits>

#include "tests/conformance/case.h"

namespace {

struct Stream {
  CUstream handle = nullptr;
  Stream() { CU(cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING)); }
};

CUmemcpyAttributes ordered(CUmemcpySrcAccessOrder order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) {
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = order;
  return attributes;
}

CUDA_MEMCPY3D_BATCH_OP flat(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  CUDA_MEMCPY3D_BATCH_OP op{};
  op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  op.src.op.ptr.ptr = src;
  op.dst.op.ptr.ptr = dst;
  op.extent = {bytes, 1, 1};
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return op;
}

std::vector<uint32_t> counted(size_t count, uint32_t start) {
  std::vector<uint32_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = start + static_cast<uint32_t>(i);
  return values;
}

// Four device buffers of 1000 values, the first two filled.
struct Buffers {
  DeviceArray<uint32_t> a{counted(1000, 0)}, b{counted(1000, 5000)}, c{1000}, d{1000};
  CUdeviceptr from[2] = {a.pointer, b.pointer}, to[2] = {c.pointer, d.pointer};
  size_t sizes[2] = {4000, 4000};
};

}  // namespace

CASE(device_to_device) {
  Gpu gpu;
  Buffers all;
  Stream stream;
  CUmemcpyAttributes attributes = ordered();
  size_t start = 0;
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, &attributes, &start, 1, stream.handle));
  CU(cuStreamSynchronize(stream.handle));
  print_hash("c", all.c.read());
  print_hash("d", all.d.read());
}

CASE(first_version_reports_no_failure) {
  Gpu gpu;
  Buffers all;
  Stream stream;
  CUmemcpyAttributes attributes = ordered();
  size_t start = 0, failed = 77;
  SHOW(cuMemcpyBatchAsync_v1(all.to, all.from, all.sizes, 2, &attributes, &start, 1, &failed, stream.handle));
  CU(cuStreamSynchronize(stream.handle));
  printf("failed %lld\n", static_cast<long long>(failed));
  print_hash("d", all.d.read());
}

CASE(first_version_names_the_failed_copy) {
  Gpu gpu;
  Buffers all;
  Stream stream;
  CUmemcpyAttributes attributes = ordered();
  size_t start = 0, failed = 77;
  all.from[1] = 0;
  SHOW(cuMemcpyBatchAsync_v1(all.to, all.from, all.sizes, 2, &attributes, &start, 1, &failed, stream.handle));
  printf("failed %lld\n", static_cast<long long>(failed));
  failed = 77;
  SHOW(cuMemcpyBatchAsync_v1(all.to, all.from, all.sizes, 0, &attributes, &start, 1, &failed, stream.handle));
  printf("failed %lld\n", static_cast<long long>(failed));
  failed = 77;
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  all.from[1] = all.b.pointer;
  SHOW(cuMemcpyBatchAsync_v1(all.to, all.from, all.sizes, 2, &attributes, &start, 1, &failed, stream.handle));
  printf("failed %lld\n", static_cast<long long>(failed));
}

CASE(pageable_memory_read_during_the_call) {
  Gpu gpu;
  DeviceArray<uint32_t> device(1000);
  Stream stream;
  std::vector<uint32_t> host = counted(1000, 3);
  CUdeviceptr from = reinterpret_cast<CUdeviceptr>(host.data()), to = device.pointer;
  size_t bytes = 4000, start = 0;
  CUmemcpyAttributes attributes = ordered(CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL);
  SHOW(cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &start, 1, stream.handle));
  std::fill(host.begin(), host.end(), 0);
  CU(cuStreamSynchronize(stream.handle));
  print_hash("device", device.read());
}

CASE(to_pageable_and_pinned_memory) {
  Gpu gpu;
  Buffers all;
  Stream stream;
  std::vector<uint32_t> pageable(1000);
  void* pinned = nullptr;
  CU(cuMemAllocHost(&pinned, 4000));
  CUdeviceptr to[] = {reinterpret_cast<CUdeviceptr>(pageable.data()), reinterpret_cast<CUdeviceptr>(pinned)};
  CUmemcpyAttributes attributes[] = {ordered(), ordered(CU_MEMCPY_SRC_ACCESS_ORDER_ANY)};
  size_t starts[] = {0, 1};
  SHOW(cuMemcpyBatchAsync(to, all.from, all.sizes, 2, attributes, starts, 2, stream.handle));
  CU(cuStreamSynchronize(stream.handle));
  print_hash("pageable", pageable);
  printf("pinned %016llx\n", static_cast<unsigned long long>(hash_bytes(pinned, 4000)));
}

CASE(null_arrays) {
  Gpu gpu;
  Buffers all;
  Stream stream;
  CUmemcpyAttributes attributes = ordered();
  size_t start = 0;
  SHOW(cuMemcpyBatchAsync(nullptr, all.from, all.sizes, 2, &attributes, &start, 1, stream.handle));
  SHOW(cuMemcpyBatchAsync(all.to, nullptr, all.sizes, 2, &attributes, &start, 1, stream.handle));
  SHOW(cuMemcpyBatchAsync(all.to, all.from, nullptr, 2, &attributes, &start, 1, stream.handle));
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, nullptr, &start, 1, stream.handle));
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, &attributes, nullptr, 1, stream.handle));
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, nullptr, nullptr, 0, stream.handle));
}

CASE(counts) {
  Gpu gpu;
  Buffers all;
  Stream stream;
  CUmemcpyAttributes attributes[] = {ordered(), ordered(), ordered()};
  size_t starts[] = {0, 1, 2};
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 0, attributes, starts, 1, stream.handle));
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, attributes, starts, 3, stream.handle));
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, attributes, starts, 0, stream.handle));
}

CASE(attribute_indices) {
  Gpu gpu;
  Buffers all;
  Stream stream;
  CUmemcpyAttributes attributes[] = {ordered(), ordered()};
  size_t late[] = {1}, same[] = {0, 0}, beyond[] = {0, 2}, good[] = {0, 1};
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, attributes, late, 1, stream.handle));
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, attributes, same, 2, stream.handle));
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, attributes, beyond, 2, stream.handle));
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, attributes, good, 2, stream.handle));
}

CASE(access_orders_and_flags) {
  Gpu gpu;
  Buffers all;
  Stream stream;
  size_t start = 0;
  for (int order : {0, 1, 2, 3, 4, 99}) {
    CUmemcpyAttributes attributes = ordered(static_cast<CUmemcpySrcAccessOrder>(order));
    printf("order %d\n", order);
    SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, &attributes, &start, 1, stream.handle));
  }
  CUmemcpyAttributes attributes = ordered();
  attributes.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, &attributes, &start, 1, stream.handle));
  attributes.flags = 0x80;
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, &attributes, &start, 1, stream.handle));
}

CASE(streams) {
  Gpu gpu;
  Buffers all;
  CUmemcpyAttributes attributes = ordered();
  size_t start = 0;
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, &attributes, &start, 1, nullptr));
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, &attributes, &start, 1, CU_STREAM_LEGACY));
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, &attributes, &start, 1, CU_STREAM_PER_THREAD));
}

CASE(zero_sizes_and_null_pointers) {
  Gpu gpu;
  Buffers all;
  Stream stream;
  CUmemcpyAttributes attributes = ordered();
  size_t start = 0;
  all.sizes[1] = 0;
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, &attributes, &start, 1, stream.handle));
  all.sizes[1] = 4000;
  all.to[1] = 0;
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, &attributes, &start, 1, stream.handle));
}

CASE(past_the_end_of_an_allocation) {
  Gpu gpu;
  Buffers all;
  Stream stream;
  CUmemcpyAttributes attributes = ordered();
  size_t start = 0;
  all.sizes[1] = 64 << 20;
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, &attributes, &start, 1, stream.handle));
}

CASE(captured) {
  Gpu gpu;
  Buffers all;
  Stream stream;
  CUmemcpyAttributes attributes = ordered();
  size_t start = 0;
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(stream.handle, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuMemcpyBatchAsync(all.to, all.from, all.sizes, 2, &attributes, &start, 1, stream.handle));
  SHOW(cuStreamEndCapture(stream.handle, &graph));
}

CASE(three_dimensional_between_devices) {
  Gpu gpu;
  DeviceArray<uint32_t> from(counted(4096, 0)), to(4096);
  Stream stream;
  CU(cuMemsetD8(to.pointer, 0, 16384));
  CU(cuCtxSynchronize());
  CUDA_MEMCPY3D_BATCH_OP op = flat(to.pointer, from.pointer, 32);
  op.extent = {32, 4, 3};
  op.src.op.ptr.rowLength = 64;
  op.src.op.ptr.layerHeight = 8;
  op.dst.op.ptr.rowLength = 128;
  op.dst.op.ptr.layerHeight = 5;
  SHOW(cuMemcpy3DBatchAsync(1, &op, 0, stream.handle));
  CU(cuStreamSynchronize(stream.handle));
  print_hash("to", to.read());
}

CASE(three_dimensional_packed) {
  Gpu gpu;
  DeviceArray<uint32_t> from(counted(4096, 0)), to(4096);
  Stream stream;
  CU(cuMemsetD8(to.pointer, 0, 16384));
  CU(cuCtxSynchronize());
  CUDA_MEMCPY3D_BATCH_OP ops[] = {flat(to.pointer, from.pointer, 64), flat(to.pointer + 8192, from.pointer + 4096, 100)};
  ops[0].extent = {64, 4, 3};
  SHOW(cuMemcpy3DBatchAsync(2, ops, 0, stream.handle));
  CU(cuStreamSynchronize(stream.handle));
  print_hash("to", to.read());
}

CASE(three_dimensional_with_host_memory) {
  Gpu gpu;
  std::vector<uint32_t> host = counted(4096, 9), back(4096);
  DeviceArray<uint32_t> device(4096);
  Stream stream;
  CUDA_MEMCPY3D_BATCH_OP op = flat(device.pointer, reinterpret_cast<CUdeviceptr>(host.data()), 16384);
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  SHOW(cuMemcpy3DBatchAsync(1, &op, 0, stream.handle));
  op = flat(reinterpret_cast<CUdeviceptr>(back.data()), device.pointer, 16384);
  SHOW(cuMemcpy3DBatchAsync(1, &op, 0, stream.handle));
  CU(cuStreamSynchronize(stream.handle));
  print_hash("back", back);
}

CASE(three_dimensional_first_version) {
  Gpu gpu;
  DeviceArray<uint32_t> from(counted(4096, 0)), to(4096);
  Stream stream;
  size_t failed = 77;
  CUDA_MEMCPY3D_BATCH_OP op = flat(to.pointer, from.pointer, 16384);
  SHOW(cuMemcpy3DBatchAsync_v1(1, &op, &failed, 0, stream.handle));
  printf("failed %lld\n", static_cast<long long>(failed));
  CU(cuStreamSynchronize(stream.handle));
  print_hash("to", to.read());
  op.extent.height = 0;
  failed = 77;
  SHOW(cuMemcpy3DBatchAsync_v1(1, &op, &failed, 0, stream.handle));
  printf("failed %lld\n", static_cast<long long>(failed));
}

CASE(three_dimensional_bad_arguments) {
  Gpu gpu;
  DeviceArray<uint32_t> from(4096), to(4096);
  Stream stream;
  CUDA_MEMCPY3D_BATCH_OP good = flat(to.pointer, from.pointer, 64), op = good;
  SHOW(cuMemcpy3DBatchAsync(0, &op, 0, stream.handle));
  SHOW(cuMemcpy3DBatchAsync(1, nullptr, 0, stream.handle));
  SHOW(cuMemcpy3DBatchAsync(1, &op, 1, stream.handle));
  SHOW(cuMemcpy3DBatchAsync(1, &op, 0, nullptr));
  SHOW(cuMemcpy3DBatchAsync(1, &op, 0, CU_STREAM_LEGACY));
  op.extent = {0, 1, 1};
  SHOW(cuMemcpy3DBatchAsync(1, &op, 0, stream.handle));
  op.extent = {64, 1, 0};
  SHOW(cuMemcpy3DBatchAsync(1, &op, 0, stream.handle));
  op = good;
  op.src.type = static_cast<CUmemcpy3DOperandType>(0);
  SHOW(cuMemcpy3DBatchAsync(1, &op, 0, stream.handle));
  op = good;
  op.src.op.ptr.ptr = 0;
  SHOW(cuMemcpy3DBatchAsync(1, &op, 0, stream.handle));
  op = good;
  op.src.op.ptr.rowLength = 10;
  SHOW(cuMemcpy3DBatchAsync(1, &op, 0, stream.handle));
  op = good;
  op.extent.height = 4;
  op.dst.op.ptr.layerHeight = 2;
  SHOW(cuMemcpy3DBatchAsync(1, &op, 0, stream.handle));
  op = good;
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  SHOW(cuMemcpy3DBatchAsync(1, &op, 0, stream.handle));
  op = good;
  op.flags = 0x80;
  SHOW(cuMemcpy3DBatchAsync(1, &op, 0, stream.handle));
}

CASE(per_thread_forms) {
  Gpu gpu;
  Buffers all;
  CUmemcpyAttributes attributes = ordered();
  size_t start = 0, failed = 77;
  auto* batch = conformance::symbol_as<decltype(::cuMemcpyBatchAsync_v2)>("cuMemcpyBatchAsync_v2_ptsz");
  auto* batch_v1 = conformance::symbol_as<std::remove_pointer_t<decltype(cuMemcpyBatchAsync_v1)>>("cuMemcpyBatchAsync_ptsz");
  auto* batch_3d = conformance::symbol_as<decltype(::cuMemcpy3DBatchAsync_v2)>("cuMemcpy3DBatchAsync_v2_ptsz");
  auto* batch_3d_v1 = conformance::symbol_as<std::remove_pointer_t<decltype(cuMemcpy3DBatchAsync_v1)>>("cuMemcpy3DBatchAsync_ptsz");
  CUDA_MEMCPY3D_BATCH_OP op = flat(all.c.pointer, all.b.pointer, 4000);
  SHOW(batch(all.to, all.from, all.sizes, 2, &attributes, &start, 1, nullptr));
  SHOW(batch_v1(all.to, all.from, all.sizes, 2, &attributes, &start, 1, &failed, nullptr));
  SHOW(batch_3d(1, &op, 0, nullptr));
  SHOW(batch_3d_v1(1, &op, &failed, 0, nullptr));
  CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  print_hash("c", all.c.read());
}
