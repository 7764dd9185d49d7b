// Device memory: allocation, release, what an address belongs to.
#include "tests/conformance/case.h"

CASE(alloc_zero_bytes) {
  Gpu gpu;
  CUdeviceptr pointer = 77;
  SHOW(cuMemAlloc(&pointer, 0));
  printf("%llu\n", static_cast<unsigned long long>(pointer));
}

CASE(alloc_bad_arguments) {
  Gpu gpu;
  CUdeviceptr pointer = 77;
  SHOW(cuMemAlloc(nullptr, 16));
  SHOW(cuMemAlloc(&pointer, size_t{1} << 50));
  SHOW(cuMemAlloc(&pointer, SIZE_MAX));
  SHOW(cuMemAlloc(&pointer, SIZE_MAX - 511));
  printf("%llu\n", static_cast<unsigned long long>(pointer));
}

CASE(alignment) {
  Gpu gpu;
  for (size_t size : {1, 3, 255, 256, 257, 4096, 1 << 20, (1 << 21) + 1}) {
    CUdeviceptr pointer = 0;
    CU(cuMemAlloc(&pointer, size));
    printf("%zu: %s\n", size, pointer % 256 == 0 ? "aligned" : "not aligned");
    CU(cuMemFree(pointer));
  }
}

CASE(address_range) {
  Gpu gpu;
  CUdeviceptr pointer = 0, base = 0;
  size_t size = 0;
  CU(cuMemAlloc(&pointer, 1000));
  SHOW(cuMemGetAddressRange(&base, &size, pointer));
  printf("%s %zu\n", base == pointer ? "its start" : "another", size);
  SHOW(cuMemGetAddressRange(&base, &size, pointer + 999));
  printf("%s %zu\n", base == pointer ? "its start" : "another", size);
  SHOW(cuMemGetAddressRange(nullptr, &size, pointer));
  SHOW(cuMemGetAddressRange(&base, nullptr, pointer));
  SHOW(cuMemGetAddressRange(nullptr, nullptr, pointer));
  CU(cuMemFree(pointer));
  SHOW(cuMemGetAddressRange(&base, &size, pointer));
  SHOW(cuMemGetAddressRange(&base, &size, 0));
  SHOW(cuMemGetAddressRange(&base, &size, 4096));
}

CASE(free_bad_addresses) {
  Gpu gpu;
  SHOW(cuMemFree(0));
  SHOW(cuMemFree(0x123456));
  CUdeviceptr pointer = 0;
  CU(cuMemAlloc(&pointer, 4096));
  SHOW(cuMemFree(pointer + 16));
  SHOW(cuMemFree(pointer));
  SHOW(cuMemFree(pointer));
}

CASE(free_waits_for_work) {
  Gpu gpu;
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> kept(32);
  CU(cuMemsetD32(kept.pointer, 1, 32));
  CUdeviceptr pointer = 0;
  CU(cuMemAlloc(&pointer, 4096));
  for (int i = 0; i < 20; ++i) LAUNCH(module.function("slow_step"), {1}, {32}, 0, nullptr, kept.pointer, 2u, 0u, 32, 20000);
  SHOW(cuMemFree(pointer));
  SHOW(cuStreamQuery(nullptr));
  printf("%u\n", kept.read()[0]);
}

CASE(pitch) {
  Gpu gpu;
  for (unsigned element : {4u, 8u, 16u}) {
    CUdeviceptr pointer = 0;
    size_t pitch = 0;
    SHOW(cuMemAllocPitch(&pointer, &pitch, 100, 10, element));
    printf("%zu\n", pitch);
    CU(cuMemFree(pointer));
  }
}

CASE(what_a_refused_pitch_leaves) {
  Gpu gpu;
  const auto refused = [](size_t width, size_t height, unsigned element) {
    CUdeviceptr pointer = 7;
    size_t pitch = 77;
    SHOW(cuMemAllocPitch(&pointer, &pitch, width, height, element));
    printf("%llu %zu\n", pointer, pitch);
  };
  refused(size_t{1} << 34, 1 << 10, 4);
  refused(~size_t{0}, 4, 4);
  refused(100, 4, 3);
  refused(1 << 30, 1 << 14, 4);
}

CASE(pitch_bad_arguments) {
  Gpu gpu;
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  SHOW(cuMemAllocPitch(nullptr, &pitch, 100, 10, 4));
  SHOW(cuMemAllocPitch(&pointer, nullptr, 100, 10, 4));
  SHOW(cuMemAllocPitch(&pointer, &pitch, 100, 10, 0));
  SHOW(cuMemAllocPitch(&pointer, &pitch, 100, 10, 3));
  SHOW(cuMemAllocPitch(&pointer, &pitch, 100, 10, 32));
  SHOW(cuMemAllocPitch(&pointer, &pitch, 0, 10, 4));
  SHOW(cuMemAllocPitch(&pointer, &pitch, 100, 0, 4));
  SHOW(cuMemAllocPitch(&pointer, &pitch, size_t{1} << 40, 1 << 20, 4));
}

CASE(pitch_larger_widths) {
  Gpu gpu;
  for (size_t width : {1, 511, 512, 513, 1024, 5000}) {
    CUdeviceptr pointer = 0;
    size_t pitch = 0;
    CU(cuMemAllocPitch(&pointer, &pitch, width, 3, 4));
    printf("%zu: %zu\n", width, pitch);
    CU(cuMemFree(pointer));
  }
}

CASE(info) {
  Gpu gpu;
  size_t free_bytes = 0, total = 0, less = 0;
  SHOW(cuMemGetInfo(&free_bytes, &total));
  printf("%s\n", free_bytes > 0 && free_bytes <= total ? "plausible" : "not plausible");
  SHOW(cuMemGetInfo(nullptr, &total));
  SHOW(cuMemGetInfo(&free_bytes, nullptr));
  SHOW(cuMemGetInfo(nullptr, nullptr));
  CUdeviceptr pointer = 0;
  CU(cuMemAlloc(&pointer, 256 << 20));
  CU(cuMemGetInfo(&less, &total));
  CU(cuMemFree(pointer));
}

CASE(pointer_attributes) {
  Gpu gpu;
  CUdeviceptr pointer = 0;
  CU(cuMemAlloc(&pointer, 1000));
  unsigned value = 99;
  SHOW(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
  printf("%u\n", value);
  CUcontext context = nullptr;
  SHOW(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer + 10));
  printf("%s\n", context == gpu.context ? "this context" : "another");
  CUdeviceptr device = 0;
  SHOW(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pointer + 10));
  printf("%s\n", device == pointer + 10 ? "same" : "another");
  int ordinal = -1;
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));
  printf("%d\n", ordinal);
  void* host = &ordinal;
  SHOW(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer));
  size_t size = 0;
  SHOW(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, pointer + 10));
  printf("%zu\n", size);
  CUdeviceptr start = 0;
  SHOW(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, pointer + 10));
  printf("%s\n", start == pointer ? "its start" : "another");
  unsigned char mapped = 9;
  SHOW(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, pointer));
  printf("%d\n", mapped);
}

CASE(pointer_attribute_bad_arguments) {
  Gpu gpu;
  CUdeviceptr pointer = 0;
  CU(cuMemAlloc(&pointer, 1000));
  unsigned value = 99;
  SHOW(cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
  SHOW(cuPointerGetAttribute(&value, static_cast<CUpointer_attribute>(0), pointer));
  SHOW(cuPointerGetAttribute(&value, static_cast<CUpointer_attribute>(1000), pointer));
  SHOW(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0));
  SHOW(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&value)));
  CU(cuMemFree(pointer));
  SHOW(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
}

CASE(pointer_attributes_of_an_unknown_address) {
  Gpu gpu;
  unsigned type = 99;
  CUdeviceptr device = 99;
  int ordinal = 99;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&type, &device, &ordinal};
  SHOW(cuPointerGetAttributes(3, which, values, reinterpret_cast<CUdeviceptr>(&type)));
  printf("%u %llu %d\n", type, static_cast<unsigned long long>(device), ordinal);
  SHOW(cuPointerGetAttributes(0, which, values, reinterpret_cast<CUdeviceptr>(&type)));
  SHOW(cuPointerGetAttributes(3, nullptr, values, 0));
  SHOW(cuPointerGetAttributes(3, which, nullptr, 0));
}

CASE(buffer_ids_differ) {
  Gpu gpu;
  CUdeviceptr one = 0, two = 0;
  CU(cuMemAlloc(&one, 1000));
  CU(cuMemAlloc(&two, 1000));
  unsigned long long a = 0, b = 0, again = 0;
  SHOW(cuPointerGetAttribute(&a, CU_POINTER_ATTRIBUTE_BUFFER_ID, one));
  SHOW(cuPointerGetAttribute(&b, CU_POINTER_ATTRIBUTE_BUFFER_ID, two));
  SHOW(cuPointerGetAttribute(&again, CU_POINTER_ATTRIBUTE_BUFFER_ID, one + 500));
  printf("differ %s, one allocation one id %s\n", a != b ? "yes" : "no", a == again ? "yes" : "no");
}

CASE(sync_memops) {
  Gpu gpu;
  CUdeviceptr pointer = 0;
  CU(cuMemAlloc(&pointer, 1000));
  unsigned value = 1;
  SHOW(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
  unsigned char now = 9;
  SHOW(cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
  printf("%d\n", now);
  SHOW(cuPointerSetAttribute(nullptr, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
  SHOW(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
  SHOW(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 4096));
}

CASE(many_allocations) {
  Gpu gpu;
  std::vector<CUdeviceptr> pointers(3000);
  for (size_t i = 0; i < pointers.size(); ++i) CU(cuMemAlloc(&pointers[i], 256 + i % 700));
  std::vector<CUdeviceptr> sorted = pointers;
  bool apart = true;
  for (size_t i = 0; i < pointers.size(); ++i) CU(cuMemsetD32(pointers[i], static_cast<unsigned>(i), 1));
  for (size_t i = 0; i < pointers.size(); i += 97) {
    uint32_t value = 0;
    CU(cuMemcpyDtoH(&value, pointers[i], 4));
    apart = apart && value == i;
  }
  printf("apart: %s\n", apart ? "yes" : "no");
  for (CUdeviceptr pointer : pointers) CU(cuMemFree(pointer));
}

CASE(out_of_memory_leaves_the_rest_alone) {
  Gpu gpu;
  DeviceArray<uint32_t> data(64);
  CU(cuMemsetD32(data.pointer, 3, 64));
  size_t free_bytes = 0, total = 0;
  CU(cuMemGetInfo(&free_bytes, &total));
  CUdeviceptr pointer = 0;
  SHOW(cuMemAlloc(&pointer, total * 2));
  printf("%u\n", data.read()[63]);
  SHOW(cuMemAlloc(&pointer, 64));
  SHOW(cuMemFree(pointer));
}

CASE(handle_for_address_range) {
  Gpu gpu;
  CUdeviceptr pointer = 0;
  CU(cuMemAlloc(&pointer, 1 << 21));
  int fd = -1;
  SHOW(cuMemGetHandleForAddressRange(&fd, pointer, 1 << 20, static_cast<CUmemRangeHandleType>(9), 0));
  SHOW(cuMemGetHandleForAddressRange(nullptr, pointer, 1 << 21, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}
