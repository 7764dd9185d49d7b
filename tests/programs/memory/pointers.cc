// What the driver says about addresses: device, inside an allocation, pinned, managed-looking,
// unknown.
#include "tests/programs/common.h"

static void describe(const char* what, CUdeviceptr address, CUcontext ours) {
  CUmemorytype type = static_cast<CUmemorytype>(0);
  CUcontext context = nullptr;
  CUdeviceptr device = 0, start = 0;
  void* host = nullptr;
  unsigned managed = 9;
  int ordinal = -9;
  size_t size = 0;
  printf("%s\n", what);
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  printf(" type %d\n", static_cast<int>(type));
  SHOW(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
  printf(" context %s\n", context == ours ? "ours" : context == nullptr ? "none" : "other");
  SHOW(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address));
  printf(" device pointer %s\n", device == address ? "same" : device == 0 ? "none" : "other");
  SHOW(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address));
  printf(" host pointer %s\n", reinterpret_cast<CUdeviceptr>(host) == address ? "same"
                               : host == nullptr                              ? "none"
                                                                              : "other");
  SHOW(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
  SHOW(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address));
  SHOW(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
  printf(" managed %u, device %d, at %lld, size %zu\n", managed, ordinal,
         start == 0 ? -1 : static_cast<long long>(address - start), size);

  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_IS_MANAGED};
  type = static_cast<CUmemorytype>(0), ordinal = -9, managed = 9;
  void* values[] = {&type, &ordinal, &managed};
  SHOW(cuPointerGetAttributes(3, names, values, address));
  printf(" together: %d %d %u\n", static_cast<int>(type), ordinal, managed);
}

int main() {
  Gpu gpu;
  CUdeviceptr small, large;
  CU(cuMemAlloc(&small, 1000));
  CU(cuMemAlloc(&large, 50 << 20));
  EXPECT(small % 256 == 0 && large % 256 == 0);
  describe("small", small, gpu.context);
  describe("inside small", small + 999, gpu.context);
  describe("inside large", large + (17 << 20), gpu.context);
  void* pinned = nullptr;
  CU(cuMemAllocHost(&pinned, 8192));
  describe("pinned", reinterpret_cast<CUdeviceptr>(pinned), gpu.context);
  CUdeviceptr start = 0;
  size_t size = 0;
  SHOW(cuMemGetAddressRange(&start, &size, large + 12345));
  printf("range: offset %llu, size %zu\n", static_cast<unsigned long long>(large + 12345 - start),
         size);
  SHOW(cuMemGetAddressRange(&start, &size, 0x1000));
  size_t before = 0, after = 0, total = 0;
  CU(cuMemGetInfo(&before, &total));
  CUdeviceptr more;
  CU(cuMemAlloc(&more, 256 << 20));
  CU(cuMemGetInfo(&after, &total));
  printf("free memory %s by 256 MiB\n",
         before - after >= (256u << 20) && before - after < (300u << 20) ? "fell" : "did not fall");
  CU(cuMemFree(more));
  CU(cuMemFree(small));
  CU(cuMemFree(large));
  CU(cuMemFreeHost(pinned));
  return 0;
}
