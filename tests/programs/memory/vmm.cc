// Virtual memory management: reserve, create, map at an offset, access rights, remap behind a fixed
// address, export.
#include "tests/programs/common.h"

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction step = module.function("step");
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = 0;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t granularity = 0, recommended = 0;
  CU(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CU(cuMemGetAllocationGranularity(&recommended, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  printf("granularity %zu, recommended %zu\n", granularity, recommended);

  CUdeviceptr base = 0;
  CU(cuMemAddressReserve(&base, granularity * 8, 0, 0, 0));
  EXPECT(base % granularity == 0);
  CUmemGenericAllocationHandle first, second;
  CU(cuMemCreate(&first, granularity * 2, &prop, 0));
  CU(cuMemCreate(&second, granularity, &prop, 0));
  SHOW(cuMemCreate(&second, granularity + 1, &prop, 0));
  CU(cuMemMap(base + granularity, granularity * 2, 0, first, 0));
  CU(cuMemMap(base + granularity * 3, granularity, 0, second, 0));
  CUmemAccessDesc access = {};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CU(cuMemSetAccess(base + granularity, granularity * 3, &access, 1));
  unsigned long long rights = 0;
  CU(cuMemGetAccess(&rights, &access.location, base + granularity));
  printf("rights %llu\n", rights);

  // Work across the border of the two allocations.
  const int count = 4096;
  CUdeviceptr where = base + granularity * 3 - count * 2;
  std::vector<uint32_t> values(count);
  for (int i = 0; i < count; ++i) values[i] = i;
  CU(cuMemcpyHtoD(where, values.data(), count * 4));
  LAUNCH(step, {16}, {256}, 0, nullptr, where, 3u, 1u, count);
  CU(cuMemcpyDtoH(values.data(), where, count * 4));
  print_hash("across", values);

  CUmemGenericAllocationHandle again;
  CU(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(base + granularity)));
  CUmemAllocationProp got = {};
  CU(cuMemGetAllocationPropertiesFromHandle(&got, again));
  printf("properties: type %d, location %d/%d\n", static_cast<int>(got.type),
         static_cast<int>(got.location.type), got.location.id);
  CU(cuMemRelease(again));

  int fd = -1;
  CU(cuMemExportToShareableHandle(&fd, first, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  EXPECT(fd >= 0);
  CUmemGenericAllocationHandle imported;
  CU(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  CUdeviceptr alias = 0;
  CU(cuMemAddressReserve(&alias, granularity * 2, 0, 0, 0));
  CU(cuMemMap(alias, granularity * 2, 0, imported, 0));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  CU(cuMemSetAccess(alias, granularity * 2, &access, 1));
  std::vector<uint32_t> seen(count / 2);
  CU(cuMemcpyDtoH(seen.data(), alias + granularity * 2 - count * 2, count * 2));
  EXPECT(memcmp(seen.data(), values.data(), count * 2) == 0);
  print_hash("alias", seen);
  CU(cuMemUnmap(alias, granularity * 2));
  CU(cuMemAddressFree(alias, granularity * 2));
  CU(cuMemRelease(imported));

  // Another allocation behind the same address.
  CU(cuMemUnmap(base + granularity * 3, granularity));
  CU(cuMemRelease(second));
  CU(cuMemCreate(&second, granularity, &prop, 0));
  CU(cuMemMap(base + granularity * 3, granularity, 0, second, 0));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CU(cuMemSetAccess(base + granularity * 3, granularity, &access, 1));
  CU(cuMemsetD32(base + granularity * 3, 5, 1000));
  CU(cuMemcpyDtoH(values.data(), where, count * 2 + 4000));
  values.resize(count / 2 + 1000);
  print_hash("remapped", values);
  CU(cuMemUnmap(base + granularity, granularity * 3));
  CU(cuMemRelease(first));
  CU(cuMemRelease(second));
  CU(cuMemAddressFree(base, granularity * 8));
  return 0;
}
