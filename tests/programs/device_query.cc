// What the devices say of themselves: count, names, ids, sizes, and the attributes that do not
// change with load. Left out: what Tube reports as missing: managed and pageable access, memory on
// host NUMA nodes, multicast (docs/limits.md).
#include "tests/programs/common.h"

static bool left_out(int attribute) {
  return attribute == CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY ||
         attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS ||
         attribute == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS ||
         attribute == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES ||
         attribute == CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST ||
         attribute == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED ||
         attribute == CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
         attribute == CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED ||
         attribute == CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED ||
         attribute == CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
}

int main() {
  CU(cuInit(0));
  int version = 0, count = 0;
  CU(cuDriverGetVersion(&version));
  CU(cuDeviceGetCount(&count));
  printf("driver %d, devices %d\n", version, count);
  for (int i = 0; i < count; ++i) {
    CUdevice device;
    CU(cuDeviceGet(&device, i));
    char name[256] = {}, bus[64] = {};
    CUuuid uuid;
    size_t total = 0;
    CU(cuDeviceGetName(name, sizeof(name), device));
    CU(cuDeviceGetPCIBusId(bus, sizeof(bus), device));
    CU(cuDeviceGetUuid(&uuid, device));
    CU(cuDeviceTotalMem(&total, device));
    printf("device %d: %s, %s, uuid %016llx, %zu bytes\n", i, name, bus,
           static_cast<unsigned long long>(hash_bytes(&uuid, 16)), total);
    CUdevice same;
    CU(cuDeviceGetByPCIBusId(&same, bus));
    EXPECT(same == device);
    for (int attribute = 1; attribute < static_cast<int>(CU_DEVICE_ATTRIBUTE_MAX); ++attribute) {
      if (left_out(attribute)) continue;
      int value = -1;
      CUresult code =
          cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), device);
      printf(" %d: %s %d\n", attribute, code_name(code), value);
    }
    for (int other = 0; other < count; ++other) {
      int can = -1;
      SHOW(cuDeviceCanAccessPeer(&can, device, other));
      printf(" peer %d: %d\n", other, can);
    }
    unsigned flags = 99;
    int active = -1;
    CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
    printf(" primary context: flags %u, active %d\n", flags, active);
  }
  CUmoduleLoadingMode mode;
  CU(cuModuleGetLoadingMode(&mode));
  printf("loading mode %d\n", static_cast<int>(mode));
  return 0;
}
