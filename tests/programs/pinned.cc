// Pinned host memory: flags, device addresses, kernels that read and write it in place, registered ranges.
#include "common.h"

#include <sys/mman.h>

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction step = module.function("step");
  const int count = 5000;

  uint32_t* mapped = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&mapped), count * 4, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
  unsigned flags = 0;
  CU(cuMemHostGetFlags(&flags, mapped));
  printf("flags %u\n", flags);
  CUdeviceptr device = 0;
  CU(cuMemHostGetDevicePointer(&device, mapped, 0));
  printf("device address %s host address\n", device == reinterpret_cast<CUdeviceptr>(mapped) ? "equals" : "differs from");
  for (int i = 0; i < count; ++i) mapped[i] = i;
  LAUNCH(step, {20}, {256}, 0, nullptr, device, 3u, 7u, count);
  CU(cuCtxSynchronize());
  for (int i = 0; i < count; ++i) EXPECT(mapped[i] == static_cast<uint32_t>(i) * 3 + 7);
  printf("mapped: %016llx\n", static_cast<unsigned long long>(hash_bytes(mapped, count * 4)));

  CUmemorytype type = static_cast<CUmemorytype>(0);
  CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(mapped)));
  printf("type %d\n", static_cast<int>(type));
  void* host = nullptr;
  CU(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, reinterpret_cast<CUdeviceptr>(mapped)));
  EXPECT(host == mapped);
  CU(cuMemFreeHost(mapped));

  uint32_t* combined = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&combined), 4096, CU_MEMHOSTALLOC_WRITECOMBINED));
  CU(cuMemHostGetFlags(&flags, combined));
  printf("write-combined flags %u\n", flags);
  CU(cuMemFreeHost(combined));

  size_t size = 1 << 20;
  auto* pages = static_cast<uint32_t*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (size_t i = 0; i < size / 4; ++i) pages[i] = static_cast<uint32_t>(i);
  CU(cuMemHostRegister(pages, size, CU_MEMHOSTREGISTER_DEVICEMAP));
  SHOW(cuMemHostRegister(pages, size, 0));
  CU(cuMemHostGetDevicePointer(&device, pages, 0));
  LAUNCH(step, {1024}, {256}, 0, nullptr, device, 5u, 1u, static_cast<int>(size / 4));
  CU(cuCtxSynchronize());
  EXPECT(pages[1000] == 5001);
  printf("registered: %016llx\n", static_cast<unsigned long long>(hash_bytes(pages, size)));
  CU(cuMemHostUnregister(pages));
  EXPECT(pages[1000] == 5001);
  SHOW(cuMemHostUnregister(pages));
  int on_stack = 0;
  SHOW(cuMemHostGetDevicePointer(&device, &on_stack, 0));
  munmap(pages, size);
  return 0;
}
