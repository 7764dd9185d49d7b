// Pinned host memory: flags, device addresses, kernels that read and write it in place.
// cuMemHostRegister has its own cases (tests/conformance/host_register.cc).
#include "tests/programs/common.h"

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction step = module.function("step");
  const int count = 5000;

  uint32_t* mapped = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&mapped), count * 4,
                    CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
  unsigned flags = 0;
  CU(cuMemHostGetFlags(&flags, mapped));
  printf("flags %u\n", flags);
  CUdeviceptr device = 0;
  CU(cuMemHostGetDevicePointer(&device, mapped, 0));
  printf("device address %s host address\n",
         device == reinterpret_cast<CUdeviceptr>(mapped) ? "equals" : "differs from");
  for (int i = 0; i < count; ++i) mapped[i] = i;
  LAUNCH(step, {20}, {256}, 0, nullptr, device, 3u, 7u, count);
  CU(cuCtxSynchronize());
  for (int i = 0; i < count; ++i) EXPECT(mapped[i] == static_cast<uint32_t>(i) * 3 + 7);
  printf("mapped: %016llx\n", static_cast<unsigned long long>(hash_bytes(mapped, count * 4)));

  CUmemorytype type = static_cast<CUmemorytype>(0);
  CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                           reinterpret_cast<CUdeviceptr>(mapped)));
  printf("type %d\n", static_cast<int>(type));
  void* host = nullptr;
  CU(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                           reinterpret_cast<CUdeviceptr>(mapped)));
  EXPECT(host == mapped);
  CU(cuMemFreeHost(mapped));

  uint32_t* combined = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&combined), 4096, CU_MEMHOSTALLOC_WRITECOMBINED));
  CU(cuMemHostGetFlags(&flags, combined));
  printf("write-combined flags %u\n", flags);
  CU(cuMemFreeHost(combined));

  int on_stack = 0;
  SHOW(cuMemHostGetDevicePointer(&device, &on_stack, 0));
  return 0;
}
