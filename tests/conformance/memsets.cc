// Memsets: widths, rectangles, alignment, synchronous and not.
#include "tests/conformance/gate.h"

CASES_HOLD_STREAMS;

CASE(every_width) {
  Gpu gpu;
  DeviceArray<unsigned char> data(4096);
  SHOW(cuMemsetD8(data.pointer, 0xab, 4096));
  print_hash("bytes", data.read());
  SHOW(cuMemsetD16(data.pointer + 2, 0x1234, 100));
  print_hash("halves", data.read());
  SHOW(cuMemsetD32(data.pointer + 400, 0xdeadbeef, 100));
  print_hash("words", data.read());
}

CASE(every_width_async) {
  Gpu gpu;
  DeviceArray<unsigned char> data(4096);
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SHOW(cuMemsetD8Async(data.pointer, 0xab, 4096, stream));
  SHOW(cuMemsetD16Async(data.pointer + 2, 0x1234, 100, stream));
  SHOW(cuMemsetD32Async(data.pointer + 400, 0xdeadbeef, 100, stream));
  SHOW(cuStreamSynchronize(stream));
  print_hash("all", data.read());
}

CASE(rectangles) {
  Gpu gpu;
  DeviceArray<unsigned char> data(4096);
  CU(cuMemsetD8(data.pointer, 0, 4096));
  SHOW(cuMemsetD2D8(data.pointer, 64, 0x11, 10, 5));
  SHOW(cuMemsetD2D16(data.pointer + 1024, 64, 0x2222, 10, 5));
  SHOW(cuMemsetD2D32(data.pointer + 2048, 64, 0x33333333, 10, 5));
  print_hash("all", data.read());
}

CASE(rectangles_async) {
  Gpu gpu;
  DeviceArray<unsigned char> data(4096);
  CU(cuMemsetD8(data.pointer, 0, 4096));
  SHOW(cuMemsetD2D8Async(data.pointer, 64, 0x11, 10, 5, nullptr));
  SHOW(cuMemsetD2D16Async(data.pointer + 1024, 64, 0x2222, 10, 5, nullptr));
  SHOW(cuMemsetD2D32Async(data.pointer + 2048, 64, 0x33333333, 10, 5, nullptr));
  print_hash("all", data.read());
}

CASE(zero_counts) {
  Gpu gpu;
  DeviceArray<unsigned char> data(64);
  SHOW(cuMemsetD8(data.pointer, 1, 0));
  SHOW(cuMemsetD32(data.pointer, 1, 0));
  SHOW(cuMemsetD8(0, 1, 0));
  SHOW(cuMemsetD2D8(data.pointer, 64, 1, 0, 5));
  SHOW(cuMemsetD2D8(data.pointer, 64, 1, 5, 0));
  SHOW(cuMemsetD8Async(0, 1, 0, nullptr));
}

CASE(counts_that_wrap) {
  Gpu gpu;
  DeviceArray<unsigned char> data(4096);
  CU(cuMemsetD8(data.pointer, 0xaa, 4096));
  SHOW(cuMemsetD32(data.pointer, 1, size_t{1} << 62));
  SHOW(cuMemsetD16(data.pointer, 1, size_t{1} << 63));
  SHOW(cuCtxSynchronize());
  print_hash("as they were", data.read());
  SHOW(cuMemsetD32(data.pointer, 1, (size_t{1} << 62) + 16));
  SHOW(cuMemsetD16Async(data.pointer + 1024, 1, (size_t{1} << 63) + 8, nullptr));
  SHOW(cuCtxSynchronize());
  print_hash("80 bytes set", data.read());
  SHOW(cuMemsetD32(data.pointer, 1, (size_t{1} << 62) + 2000));
  SHOW(cuCtxSynchronize());
}

CASE(unaligned_addresses) {
  Gpu gpu;
  DeviceArray<unsigned char> data(64);
  SHOW(cuMemsetD16(data.pointer + 1, 1, 4));
  SHOW(cuMemsetD32(data.pointer + 2, 1, 4));
  SHOW(cuMemsetD32(data.pointer + 1, 1, 4));
  SHOW(cuMemsetD2D16(data.pointer + 1, 16, 1, 4, 2));
  SHOW(cuMemsetD2D32(data.pointer + 2, 16, 1, 4, 2));
  SHOW(cuCtxSynchronize());
}

CASE(unaligned_pitches) {
  Gpu gpu;
  DeviceArray<unsigned char> data(1024);
  CU(cuMemsetD8(data.pointer, 0, 1024));
  SHOW(cuMemsetD2D16(data.pointer, 17, 1, 4, 2));
  SHOW(cuMemsetD2D32(data.pointer, 18, 1, 4, 2));
  SHOW(cuMemsetD2D8(data.pointer, 17, 1, 4, 2));
  SHOW(cuMemsetD2D8(data.pointer, 3, 1, 4, 2));
  SHOW(cuMemsetD2D8(data.pointer, 0, 1, 4, 2));
  SHOW(cuMemsetD2D8(data.pointer, 0, 1, 4, 1));
  SHOW(cuCtxSynchronize());
}

CASE(bad_addresses) {
  Gpu gpu;
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 2 << 20));
  SHOW(cuMemsetD8(0, 1, 16));
  SHOW(cuMemsetD8(4096, 1, 16));
  SHOW(cuMemsetD8(memory + (2 << 20) - 8, 1, 64 << 20));
  SHOW(cuMemsetD8Async(0, 1, 16, nullptr));
  int on_stack = 0;
  SHOW(cuMemsetD8(reinterpret_cast<CUdeviceptr>(&on_stack), 1, 4));
  SHOW(cuCtxSynchronize());
  CU(cuMemFree(memory));
}

CASE(freed_memory) {
  Gpu gpu;
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 4 << 20));
  CU(cuMemFree(memory));
  SHOW(cuMemsetD8(memory, 1, 64));
  SHOW(cuMemsetD32Async(memory, 1, 64, nullptr));
  SHOW(cuCtxSynchronize());
}

CASE(pinned_memory) {
  Gpu gpu;
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  SHOW(cuMemsetD8(reinterpret_cast<CUdeviceptr>(memory), 0x5a, 4096));
  printf("%d %d\n", static_cast<unsigned char*>(memory)[0], static_cast<unsigned char*>(memory)[4095]);
  SHOW(cuMemFreeHost(memory));
}

CASE(follow_their_stream) {
  Gpu gpu;
  Gate gate;
  DeviceArray<uint32_t> data(16);
  CU(cuMemsetD32(data.pointer, 1, 16));
  CU(cuStreamSynchronize(nullptr));  // it may return before the memory is set, and non-blocking streams do not wait for it
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  gate.stop(stream);
  CU(cuMemsetD32Async(data.pointer, 2, 16, stream));
  CUstream other = nullptr;
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  uint32_t value = 0;
  CU(cuMemcpyDtoHAsync(&value, data.pointer, 4, other));
  CU(cuStreamSynchronize(other));
  printf("%u\n", value);
  gate.open();
  CU(cuStreamSynchronize(stream));
  printf("%u\n", data.read()[0]);
}

CASE(large) {
  Gpu gpu;
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 64 << 20));
  SHOW(cuMemsetD8(memory, 9, 64 << 20));
  unsigned char last = 0;
  CU(cuMemcpyDtoH(&last, memory + (64 << 20) - 1, 1));
  printf("%d\n", last);
  CU(cuMemFree(memory));
}
