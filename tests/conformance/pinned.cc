// Pinned host memory: allocation, flags, addresses on both sides.
#include "tests/conformance/case.h"

CASE(alloc_and_free) {
  Gpu gpu;
  void* memory = nullptr;
  SHOW(cuMemAllocHost(&memory, 1000));
  memset(memory, 7, 1000);
  SHOW(cuMemFreeHost(memory));
  SHOW(cuMemHostAlloc(&memory, 1000, 0));
  memset(memory, 7, 1000);
  SHOW(cuMemFreeHost(memory));
}

CASE(flags) {
  Gpu gpu;
  for (unsigned flags : {0u, 1u, 2u, 4u, 7u, 8u, 16u, 0xffffffffu}) {
    void* memory = nullptr;
    const CUresult result = cuMemHostAlloc(&memory, 4096, flags);
    unsigned now = 99;
    const CUresult asked = result == CUDA_SUCCESS ? cuMemHostGetFlags(&now, memory) : CUDA_SUCCESS;
    printf("%#x: %s, %s %#x\n", flags, code_name(result), code_name(asked), now);
    if (result == CUDA_SUCCESS) CU(cuMemFreeHost(memory));
  }
}

CASE(flags_of_alloc_host) {
  Gpu gpu;
  void* memory = nullptr;
  CU(cuMemAllocHost(&memory, 64));
  unsigned flags = 99;
  SHOW(cuMemHostGetFlags(&flags, memory));
  printf("%#x\n", flags);
  SHOW(cuMemHostGetFlags(nullptr, memory));
  SHOW(cuMemHostGetFlags(&flags, nullptr));
  SHOW(cuMemHostGetFlags(&flags, &flags));
  SHOW(cuMemHostGetFlags(&flags, static_cast<char*>(memory) + 8));
  CU(cuMemFreeHost(memory));
}

CASE(bad_arguments) {
  Gpu gpu;
  void* memory = nullptr;
  SHOW(cuMemAllocHost(nullptr, 64));
  SHOW(cuMemAllocHost(&memory, 0));
  SHOW(cuMemHostAlloc(nullptr, 64, 0));
  SHOW(cuMemHostAlloc(&memory, 0, 0));
  SHOW(cuMemHostAlloc(&memory, size_t{1} << 50, 0));
  SHOW(cuMemFreeHost(nullptr));
  int on_stack = 0;
  SHOW(cuMemFreeHost(&on_stack));
}

CASE(free_interior_and_twice) {
  Gpu gpu;
  void* memory = nullptr;
  CU(cuMemAllocHost(&memory, 8192));
  SHOW(cuMemFreeHost(static_cast<char*>(memory) + 4096));
  SHOW(cuMemFreeHost(memory));
  SHOW(cuMemFreeHost(memory));
}

CASE(device_memory_is_no_host_memory) {
  Gpu gpu;
  DeviceArray<char> data(64);
  SHOW(cuMemFreeHost(reinterpret_cast<void*>(data.pointer)));
  void* memory = nullptr;
  CU(cuMemAllocHost(&memory, 64));
  SHOW(cuMemFree(reinterpret_cast<CUdeviceptr>(memory)));
  SHOW(cuMemFreeHost(memory));
}

CASE(device_pointer) {
  Gpu gpu;
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr device = 0;
  SHOW(cuMemHostGetDevicePointer(&device, memory, 0));
  printf("same address: %s\n", device == reinterpret_cast<CUdeviceptr>(memory) ? "yes" : "no");
  SHOW(cuMemHostGetDevicePointer(&device, static_cast<char*>(memory) + 100, 0));
  printf("same address: %s\n", device == reinterpret_cast<CUdeviceptr>(memory) + 100 ? "yes" : "no");
  SHOW(cuMemHostGetDevicePointer(&device, memory, 1));
  SHOW(cuMemHostGetDevicePointer(nullptr, memory, 0));
  SHOW(cuMemHostGetDevicePointer(&device, nullptr, 0));
  int on_stack = 0;
  SHOW(cuMemHostGetDevicePointer(&device, &on_stack, 0));
  CU(cuMemFreeHost(memory));
}

CASE(a_kernel_writes_it) {
  Gpu gpu;
  Module module("kernels.fatbin");
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 64 * 4, 0));
  SHOW(try_launch(module.function("fill"), {1}, {64}, 0, nullptr, memory, 50u, 64));
  SHOW(cuCtxSynchronize());
  printf("%u %u\n", static_cast<uint32_t*>(memory)[0], static_cast<uint32_t*>(memory)[63]);
  CU(cuMemFreeHost(memory));
}

CASE(pointer_attributes) {
  Gpu gpu;
  void* memory = nullptr;
  CU(cuMemAllocHost(&memory, 4096));
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  unsigned type = 99;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  printf("%u\n", type);
  void* host = nullptr;
  SHOW(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 5));
  printf("%s\n", host == static_cast<char*>(memory) + 5 ? "same" : "another");
  CUdeviceptr device = 0;
  SHOW(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 5));
  printf("%s\n", device == address + 5 ? "same" : "another");
  size_t size = 0;
  SHOW(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
  printf("%zu\n", size);
  int ordinal = -9;
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
  printf("%d\n", ordinal);
  unsigned char managed = 9;
  SHOW(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  printf("%d\n", managed);
  CU(cuMemFreeHost(memory));
}

CASE(copies_between_pinned_and_pageable) {
  Gpu gpu;
  void* memory = nullptr;
  CU(cuMemAllocHost(&memory, 64));
  DeviceArray<char> data(64);
  memcpy(memory, "pinned", sizeof "pinned");
  SHOW(cuMemcpyHtoD(data.pointer, memory, 64));
  char host[64] = {};
  SHOW(cuMemcpyDtoH(host, data.pointer, 64));
  printf("%s\n", host);
  SHOW(cuMemcpyDtoH(memory, data.pointer, 64));
  SHOW(cuMemcpyDtoD(data.pointer, reinterpret_cast<CUdeviceptr>(memory), 64));
  CU(cuMemFreeHost(memory));
}

CASE(survives_without_a_context) {
  Gpu gpu;
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 64, CU_MEMHOSTALLOC_PORTABLE));
  CUcontext popped = nullptr;
  CU(cuCtxPopCurrent(&popped));
  SHOW(cuMemFreeHost(memory));
  CU(cuCtxPushCurrent(popped));
  SHOW(cuMemFreeHost(memory));
}

CASE(from_another_context) {
  Gpu gpu;
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 64, 0));
  CUcontext own = nullptr;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  CUdeviceptr device = 0;
  SHOW(cuMemHostGetDevicePointer(&device, memory, 0));
  SHOW(cuMemFreeHost(memory));
  CU(cuCtxDestroy(own));
}

CASE(many_and_large) {
  Gpu gpu;
  std::vector<void*> blocks(100);
  for (size_t i = 0; i < blocks.size(); ++i) {
    CU(cuMemHostAlloc(&blocks[i], 1 << (i % 22), 0));
    memset(blocks[i], static_cast<int>(i), 1 << (i % 22));
  }
  int right = 0;
  for (size_t i = 0; i < blocks.size(); ++i) right += static_cast<unsigned char*>(blocks[i])[(1 << (i % 22)) - 1] == i;
  printf("%d\n", right);
  for (void* block : blocks) CU(cuMemFreeHost(block));
}

CASE(freed_and_asked_for_again) {
  Gpu gpu;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  DeviceArray<uint32_t> device(100000);
  bool same = true;
  for (uint32_t round = 0; round < 50; ++round) {
    const size_t count = round % 3 == 0 ? 100000 : 1000 + round % 2;
    void* memory[3] = {};
    for (uint32_t i = 0; i < 3; ++i) {
      CU(cuMemHostAlloc(&memory[i], count * 4, 0));
      auto* values = static_cast<uint32_t*>(memory[i]);
      for (size_t k = 0; k < count; ++k) values[k] = round * 3 + i;
    }
    EXPECT(memory[0] != memory[1] && memory[1] != memory[2] && memory[0] != memory[2]);
    CU(cuMemcpyHtoDAsync(device.pointer, memory[1], count * 4, stream));
    CU(cuMemcpyDtoHAsync(memory[2], device.pointer, count * 4, stream));
    CU(cuMemFreeHost(memory[0]));  // waits for the copies too
    same = same && static_cast<uint32_t*>(memory[2])[count - 1] == round * 3 + 1;
    CU(cuMemFreeHost(memory[1]));
    CU(cuMemFreeHost(memory[2]));
    unsigned flags = 0;
    if (round == 49) SHOW(cuMemHostGetFlags(&flags, memory[2]));
  }
  printf("the same: %d\n", same);
}
