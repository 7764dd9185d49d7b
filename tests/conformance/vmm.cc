// Virtual memory management: reservations, handles, mappings, access rights, sharing, and what is
// refused.
#include <unistd.h>

#include "tests/conformance/case.h"

namespace {

CUmemAllocationProp device_prop(CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  prop.requestedHandleTypes = handles;
  return prop;
}

constexpr size_t kBlock = 2 << 20;

CUmemGenericAllocationHandle make(size_t bytes = kBlock, CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemAllocationProp prop = device_prop(handles);
  CUmemGenericAllocationHandle handle = 0;
  CU(cuMemCreate(&handle, bytes, &prop, 0));
  return handle;
}

CUdeviceptr reserve(size_t bytes) {
  CUdeviceptr address = 0;
  CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  return address;
}

CUresult allow(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  CUmemAccessDesc desc{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
  return cuMemSetAccess(address, bytes, &desc, 1);
}

}  // namespace

CASE(granularity) {
  Gpu gpu;
  CUmemAllocationProp prop = device_prop();
  size_t minimum = 0, recommended = 0;
  SHOW(cuMemGetAllocationGranularity(&minimum, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  SHOW(cuMemGetAllocationGranularity(&recommended, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  printf("%zu %zu\n", minimum, recommended);
}

CASE(granularity_bad_arguments) {
  Gpu gpu;
  CUmemAllocationProp prop = device_prop();
  size_t bytes = 0;
  SHOW(cuMemGetAllocationGranularity(nullptr, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  SHOW(cuMemGetAllocationGranularity(&bytes, nullptr, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  SHOW(cuMemGetAllocationGranularity(&bytes, &prop, static_cast<CUmemAllocationGranularity_flags>(7)));
  prop.location.id = 99;
  SHOW(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  prop = device_prop();
  prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  SHOW(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  prop = device_prop();
  prop.location.type = CU_MEM_LOCATION_TYPE_INVALID;
  SHOW(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

CASE(reserve_bad_arguments) {
  Gpu gpu;
  CUdeviceptr address = 0;
  SHOW(cuMemAddressReserve(nullptr, kBlock, 0, 0, 0));
  SHOW(cuMemAddressReserve(&address, 0, 0, 0, 0));
  SHOW(cuMemAddressReserve(&address, kBlock, 0, 0, 1));
  SHOW(cuMemAddressReserve(&address, kBlock, 3, 0, 0));
  SHOW(cuMemAddressReserve(&address, size_t{1} << 62, 0, 0, 0));
}

CASE(reserve_odd_size) {
  Gpu gpu;
  CUdeviceptr address = 0;
  SHOW(cuMemAddressReserve(&address, 4096, 0, 0, 0));
  SHOW(cuMemAddressReserve(&address, 12345, 0, 0, 0));
}

CASE(reserve_alignment) {
  Gpu gpu;
  CUdeviceptr address = 0;
  SHOW(cuMemAddressReserve(&address, kBlock, size_t{1} << 30, 0, 0));
  printf("aligned: %d\n", address % (size_t{1} << 30) == 0);
}

CASE(reserve_at_a_free_address) {
  Gpu gpu;
  // Another program of the same proxy may be quicker to take what was given back.
  CUdeviceptr first = 0, again = 1;
  CUresult result = CUDA_SUCCESS;
  for (int attempt = 0; attempt < 8 && result == CUDA_SUCCESS && again != first; ++attempt) {
    first = reserve(4 * kBlock);
    CU(cuMemAddressFree(first, 4 * kBlock));
    result = cuMemAddressReserve(&again, 4 * kBlock, 0, first, 0);
  }
  show_code("cuMemAddressReserve(&again, 4 * kBlock, 0, first, 0)", result);
  printf("the address asked for: %d\n", again == first);
}

CASE(reserve_at_a_taken_address) {
  Gpu gpu;
  CUdeviceptr first = reserve(4 * kBlock), other = 0;
  SHOW(cuMemAddressReserve(&other, 4 * kBlock, 0, first, 0));
  printf("elsewhere: %d\n", other != 0 && other != first);
}

CASE(free_reservation_bad_arguments) {
  Gpu gpu;
  CUdeviceptr address = reserve(2 * kBlock);
  SHOW(cuMemAddressFree(address, kBlock));
  SHOW(cuMemAddressFree(address + kBlock, kBlock));
  SHOW(cuMemAddressFree(0, kBlock));
  SHOW(cuMemAddressFree(address, 0));
  SHOW(cuMemAddressFree(address, 2 * kBlock));
  SHOW(cuMemAddressFree(address, 2 * kBlock));
}

CASE(free_reservation_while_mapped) {
  Gpu gpu;
  CUdeviceptr address = reserve(2 * kBlock);
  CU(cuMemMap(address, kBlock, 0, make(), 0));
  SHOW(cuMemAddressFree(address, 2 * kBlock));
}

CASE(create_bad_arguments) {
  Gpu gpu;
  CUmemAllocationProp prop = device_prop();
  CUmemGenericAllocationHandle handle = 0;
  SHOW(cuMemCreate(nullptr, kBlock, &prop, 0));
  SHOW(cuMemCreate(&handle, 0, &prop, 0));
  SHOW(cuMemCreate(&handle, kBlock, nullptr, 0));
  SHOW(cuMemCreate(&handle, kBlock, &prop, 1));
  SHOW(cuMemCreate(&handle, kBlock + 4096, &prop, 0));
  SHOW(cuMemCreate(&handle, size_t{1} << 50, &prop, 0));
  prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  SHOW(cuMemCreate(&handle, kBlock, &prop, 0));
  prop = device_prop();
  prop.location.id = 99;
  SHOW(cuMemCreate(&handle, kBlock, &prop, 0));
  prop.location.id = -1;
  SHOW(cuMemCreate(&handle, kBlock, &prop, 0));
  prop = device_prop();
  prop.location.type = CU_MEM_LOCATION_TYPE_INVALID;
  SHOW(cuMemCreate(&handle, kBlock, &prop, 0));
  prop = device_prop(CU_MEM_HANDLE_TYPE_WIN32);
  SHOW(cuMemCreate(&handle, kBlock, &prop, 0));
}

CASE(release_twice) {
  Gpu gpu;
  CUmemGenericAllocationHandle handle = make();
  SHOW(cuMemRelease(handle));
  SHOW(cuMemRelease(handle));
  SHOW(cuMemRelease(0));
}

CASE(map_bad_arguments) {
  Gpu gpu;
  CUdeviceptr address = reserve(4 * kBlock);
  CUmemGenericAllocationHandle handle = make();
  SHOW(cuMemMap(address, 0, 0, handle, 0));
  SHOW(cuMemMap(address, kBlock, 0, handle, 1));
  SHOW(cuMemMap(address, kBlock, kBlock, handle, 0));
  SHOW(cuMemMap(address, 2 * kBlock, 0, handle, 0));
  SHOW(cuMemMap(address + 4096, kBlock, 0, handle, 0));
  SHOW(cuMemMap(address, 4096, 0, handle, 0));
  SHOW(cuMemMap(address, kBlock, 0, 0, 0));
  SHOW(cuMemMap(0, kBlock, 0, handle, 0));
  SHOW(cuMemMap(address + 4 * kBlock, kBlock, 0, handle, 0));
}

CASE(map_over_a_mapping) {
  Gpu gpu;
  CUdeviceptr address = reserve(2 * kBlock);
  SHOW(cuMemMap(address, kBlock, 0, make(), 0));
  SHOW(cuMemMap(address, kBlock, 0, make(), 0));
}

CASE(map_part_of_an_allocation) {
  Gpu gpu;
  CUdeviceptr address = reserve(4 * kBlock);
  CUmemGenericAllocationHandle handle = make(4 * kBlock);
  SHOW(cuMemMap(address, kBlock, 0, handle, 0));
  SHOW(cuMemMap(address + kBlock, kBlock, kBlock, handle, 0));
}

CASE(unmap_bad_arguments) {
  Gpu gpu;
  CUdeviceptr address = reserve(4 * kBlock);
  CU(cuMemMap(address, 2 * kBlock, 0, make(2 * kBlock), 0));
  SHOW(cuMemUnmap(address, 0));
  SHOW(cuMemUnmap(address, kBlock));
  SHOW(cuMemUnmap(address + kBlock, kBlock));
  SHOW(cuMemUnmap(address, 4 * kBlock));
  SHOW(cuMemUnmap(0, kBlock));
  SHOW(cuMemUnmap(address, 2 * kBlock));
  SHOW(cuMemUnmap(address, 2 * kBlock));
}

CASE(unmap_two_mappings_at_once) {
  Gpu gpu;
  CUdeviceptr address = reserve(2 * kBlock);
  CU(cuMemMap(address, kBlock, 0, make(), 0));
  CU(cuMemMap(address + kBlock, kBlock, 0, make(), 0));
  SHOW(cuMemUnmap(address, 2 * kBlock));
  SHOW(cuMemAddressFree(address, 2 * kBlock));
}

CASE(access_bad_arguments) {
  Gpu gpu;
  CUdeviceptr address = reserve(2 * kBlock);
  CU(cuMemMap(address, kBlock, 0, make(), 0));
  CUmemAccessDesc desc{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  SHOW(cuMemSetAccess(address, kBlock, nullptr, 1));
  SHOW(cuMemSetAccess(address, kBlock, &desc, 0));
  SHOW(cuMemSetAccess(address, 0, &desc, 1));
  SHOW(cuMemSetAccess(address, 2 * kBlock, &desc, 1));
  SHOW(cuMemSetAccess(address + kBlock, kBlock, &desc, 1));
  SHOW(cuMemSetAccess(0, kBlock, &desc, 1));
  desc.location.id = 99;
  SHOW(cuMemSetAccess(address, kBlock, &desc, 1));
  desc.location.id = 0;
  desc.flags = static_cast<CUmemAccess_flags>(9);
  SHOW(cuMemSetAccess(address, kBlock, &desc, 1));
  desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  SHOW(cuMemSetAccess(address, kBlock, &desc, 1));
}

CASE(access_is_reported) {
  Gpu gpu;
  CUdeviceptr address = reserve(2 * kBlock);
  CU(cuMemMap(address, kBlock, 0, make(), 0));
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  unsigned long long flags = 9;
  SHOW(cuMemGetAccess(&flags, &location, address));
  printf("%llu\n", flags);
  SHOW(allow(address, kBlock, CU_MEM_ACCESS_FLAGS_PROT_READ));
  SHOW(cuMemGetAccess(&flags, &location, address + 100));
  printf("%llu\n", flags);
  SHOW(allow(address, kBlock));
  SHOW(cuMemGetAccess(&flags, &location, address));
  printf("%llu\n", flags);
  SHOW(allow(address, kBlock, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  SHOW(cuMemGetAccess(&flags, &location, address));
  printf("%llu\n", flags);
}

CASE(get_access_bad_arguments) {
  Gpu gpu;
  CUdeviceptr address = reserve(2 * kBlock);
  CU(cuMemMap(address, kBlock, 0, make(), 0));
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  unsigned long long flags = 9;
  SHOW(cuMemGetAccess(nullptr, &location, address));
  SHOW(cuMemGetAccess(&flags, nullptr, address));
  SHOW(cuMemGetAccess(&flags, &location, address + kBlock));
  SHOW(cuMemGetAccess(&flags, &location, 0));
  location.id = 99;
  SHOW(cuMemGetAccess(&flags, &location, address));
}

CASE(copy_without_access) {
  Gpu gpu;
  CUdeviceptr address = reserve(kBlock);
  CU(cuMemMap(address, kBlock, 0, make(), 0));
  uint32_t value = 7;
  SHOW(cuMemcpyHtoD(address, &value, 4));
  SHOW(cuMemcpyDtoH(&value, address, 4));
  SHOW(cuMemsetD8(address, 1, 100));
}

CASE(copy_into_a_reservation_without_memory) {
  Gpu gpu;
  CUdeviceptr address = reserve(kBlock);
  uint32_t value = 7;
  SHOW(cuMemcpyHtoD(address, &value, 4));
}

CASE(mapping_keeps_released_memory) {
  Gpu gpu;
  CUdeviceptr address = reserve(kBlock);
  CUmemGenericAllocationHandle handle = make();
  CU(cuMemMap(address, kBlock, 0, handle, 0));
  CU(allow(address, kBlock));
  SHOW(cuMemRelease(handle));
  uint32_t value = 7;
  SHOW(cuMemcpyHtoD(address, &value, 4));
  value = 0;
  SHOW(cuMemcpyDtoH(&value, address, 4));
  printf("%u\n", value);
  SHOW(cuMemUnmap(address, kBlock));
}

CASE(retain_handle) {
  Gpu gpu;
  CUdeviceptr address = reserve(2 * kBlock);
  CUmemGenericAllocationHandle handle = make(), again = 0;
  CU(cuMemMap(address, kBlock, 0, handle, 0));
  SHOW(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(address + 100)));
  printf("same handle: %d\n", again == handle);
  SHOW(cuMemRelease(again));
  SHOW(cuMemRelease(handle));
  SHOW(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(address)));
  SHOW(cuMemRelease(again));
}

CASE(retain_handle_bad_arguments) {
  Gpu gpu;
  CUdeviceptr address = reserve(2 * kBlock);
  CUmemGenericAllocationHandle handle = 0;
  CU(cuMemMap(address, kBlock, 0, make(), 0));
  SHOW(cuMemRetainAllocationHandle(nullptr, reinterpret_cast<void*>(address)));
  SHOW(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address + kBlock)));
  SHOW(cuMemRetainAllocationHandle(&handle, nullptr));
  DeviceArray<char> plain(1000);
  SHOW(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(plain.pointer)));
}

// What NCCL's allocator does: it asks for a handle between nodes too and does without when there is
// no channel for one.
CASE(memory_for_a_communicator) {
  Gpu gpu;
  int fabric = 0, rdma = 0;
  CU(cuDeviceGetAttribute(&fabric, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, gpu.device));
  CU(cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, gpu.device));
  printf("fabric %d, RDMA %d\n", fabric, rdma);
  auto prop = device_prop(static_cast<CUmemAllocationHandleType>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC));
  prop.allocFlags.gpuDirectRDMACapable = 1;
  size_t granularity = 0;
  SHOW(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  CUmemGenericAllocationHandle handle = 0;
  SHOW(cuMemCreate(&handle, granularity, &prop, 0));
  if (handle == 0) {
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    SHOW(cuMemCreate(&handle, granularity, &prop, 0));
  }
  CUdeviceptr address = 0;
  SHOW(cuMemAddressReserve(&address, granularity, granularity, 0, 0));
  SHOW(cuMemMap(address, granularity, 0, handle, 0));
  SHOW(allow(address, granularity));
  SHOW(cuMemsetD32(address, 7, granularity / 4));
  CU(cuCtxSynchronize());  // unmapping does not wait for it, and a fault ends the context of the cases beside this one
  int ordinal = -1;
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
  CUmemGenericAllocationHandle again = 0;
  SHOW(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(address)));
  SHOW(cuMemRelease(again));
  SHOW(cuMemUnmap(address, granularity));
  SHOW(cuMemRelease(handle));
  SHOW(cuMemAddressFree(address, granularity));
}

CASE(fabric_handles_without_a_channel) {
  Gpu gpu;
  auto prop = device_prop(CU_MEM_HANDLE_TYPE_FABRIC);
  CUmemGenericAllocationHandle handle = 0;
  SHOW(cuMemCreate(&handle, kBlock, &prop, 0));
  prop = device_prop(static_cast<CUmemAllocationHandleType>(CU_MEM_HANDLE_TYPE_FABRIC | CU_MEM_HANDLE_TYPE_WIN32));
  SHOW(cuMemCreate(&handle, kBlock, &prop, 0));
  CUmemFabricHandle fabric{};
  handle = make(kBlock, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  SHOW(cuMemExportToShareableHandle(&fabric, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
  SHOW(cuMemImportFromShareableHandle(&handle, &fabric, CU_MEM_HANDLE_TYPE_FABRIC));
}

// Memory of a NUMA node, as NCCL asks for it for its proxies' buffers: not there through Tube
// (docs/limits.md).
CASE(granularity_of_host_memory) {
  Gpu gpu;
  CUmemAllocationProp prop = device_prop(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  prop.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  size_t granularity = 0;
  SHOW(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  printf("%zu\n", granularity);
}

CASE(properties_of_a_handle) {
  Gpu gpu;
  CUmemGenericAllocationHandle handle = make(kBlock, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CUmemAllocationProp prop{};
  SHOW(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
  printf("type %d handles %d location %d/%d\n", static_cast<int>(prop.type), static_cast<int>(prop.requestedHandleTypes),
         static_cast<int>(prop.location.type), prop.location.id);
  SHOW(cuMemGetAllocationPropertiesFromHandle(nullptr, handle));
  SHOW(cuMemGetAllocationPropertiesFromHandle(&prop, 0));
}

CASE(export_bad_arguments) {
  Gpu gpu;
  int fd = -1;
  CUmemGenericAllocationHandle plain = make(), shareable = make(kBlock, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  SHOW(cuMemExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  SHOW(cuMemExportToShareableHandle(nullptr, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  SHOW(cuMemExportToShareableHandle(&fd, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  SHOW(cuMemExportToShareableHandle(&fd, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
  SHOW(cuMemExportToShareableHandle(&fd, shareable, CU_MEM_HANDLE_TYPE_NONE, 0));
  SHOW(cuMemExportToShareableHandle(&fd, shareable, CU_MEM_HANDLE_TYPE_WIN32, 0));
}

CASE(import_bad_arguments) {
  Gpu gpu;
  CUmemGenericAllocationHandle handle = 0;
  int ends[2];
  EXPECT(pipe(ends) == 0);
  SHOW(cuMemImportFromShareableHandle(nullptr, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  SHOW(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(-1)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  SHOW(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(ends[0])), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  SHOW(cuMemImportFromShareableHandle(&handle, nullptr, CU_MEM_HANDLE_TYPE_WIN32));
}

CASE(export_and_import_are_the_same_memory) {
  Gpu gpu;
  CUmemGenericAllocationHandle handle = make(kBlock, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), imported = 0;
  int fd = -1;
  SHOW(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  SHOW(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  CUdeviceptr one = reserve(kBlock), two = reserve(kBlock);
  CU(cuMemMap(one, kBlock, 0, handle, 0));
  CU(cuMemMap(two, kBlock, 0, imported, 0));
  CU(allow(one, kBlock));
  CU(allow(two, kBlock));
  CU(cuMemsetD32(one, 0x1234, 100));
  uint32_t value = 0;
  CU(cuMemcpyDtoH(&value, two + 396, 4));
  printf("%x\n", value);
}

CASE(one_handle_at_two_addresses) {
  Gpu gpu;
  CUmemGenericAllocationHandle handle = make();
  CUdeviceptr one = reserve(kBlock), two = reserve(kBlock);
  SHOW(cuMemMap(one, kBlock, 0, handle, 0));
  SHOW(cuMemMap(two, kBlock, 0, handle, 0));
  CU(allow(one, kBlock));
  CU(allow(two, kBlock));
  CU(cuMemsetD32(one, 0x4321, 100));
  uint32_t value = 0;
  CU(cuMemcpyDtoH(&value, two + 396, 4));
  printf("%x\n", value);
}

CASE(address_range_of_mapped_memory) {
  Gpu gpu;
  CUdeviceptr address = reserve(4 * kBlock), base = 0;
  size_t size = 0;
  SHOW(cuMemGetAddressRange(&base, &size, address));
  CU(cuMemMap(address + kBlock, kBlock, 0, make(), 0));
  CU(cuMemMap(address + 2 * kBlock, kBlock, 0, make(), 0));
  base = 0, size = 0;
  SHOW(cuMemGetAddressRange(&base, &size, address + kBlock + 100));
  base = 0, size = 0;
  SHOW(cuMemGetAddressRange(&base, &size, address));
}

CASE(pointer_attributes_of_mapped_memory) {
  Gpu gpu;
  CUdeviceptr address = reserve(4 * kBlock);
  CU(cuMemMap(address + kBlock, kBlock, 0, make(), 0));
  CU(allow(address + kBlock, kBlock));
  CUdeviceptr inside = address + kBlock + 100, start = 0, device = 0;
  unsigned type = 9, mapped = 9, ipc = 9, access = 9, managed = 9;
  uint64_t handles = 9;
  size_t size = 0, mapping_size = 0;
  void* mapping = nullptr;
  int ordinal = -9;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
  SHOW(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside));
  SHOW(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, inside));
  SHOW(cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside));
  SHOW(cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside));
  SHOW(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, inside));
  SHOW(cuPointerGetAttribute(&handles, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside));
  SHOW(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
  SHOW(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
  SHOW(cuPointerGetAttribute(&mapping, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside));
  SHOW(cuPointerGetAttribute(&mapping_size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside));
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
  SHOW(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
  SHOW(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside));
  printf("type %u mapped %u ipc %u access %u managed %u handles %llu ordinal %d context %s pool %s\n", type, mapped, ipc, access, managed,
         static_cast<unsigned long long>(handles), ordinal, context == nullptr ? "none" : "some", pool == nullptr ? "none" : "some");
  printf("start %lld size %zu mapping %lld size %zu\n", static_cast<long long>(start - address), size,
         static_cast<long long>(reinterpret_cast<CUdeviceptr>(mapping) - address), mapping_size);
}

CASE(pointer_attributes_of_a_bare_reservation) {
  Gpu gpu;
  CUdeviceptr address = reserve(4 * kBlock), start = 0;
  unsigned type = 9, mapped = 9;
  size_t size = 0;
  int ordinal = -9;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 100));
  SHOW(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, address + 100));
  SHOW(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 100));
  SHOW(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 100));
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address + 100));
  printf("type %u mapped %u start %lld size %zu ordinal %d\n", type, mapped, start == 0 ? -1 : static_cast<long long>(start - address), size, ordinal);
}

CASE(handle_for_address_range) {
  Gpu gpu;
  DeviceArray<char> plain(2 * kBlock);
  int supported = 0, fd = -1;
  CU(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, gpu.device));
  CUdeviceptr aligned = (plain.pointer + 4095) & ~CUdeviceptr{4095};
  CUresult code = cuMemGetHandleForAddressRange(&fd, aligned, 65536, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  printf("%s\n", supported == 0 ? code == CUDA_ERROR_NOT_SUPPORTED ? "not supported" : code_name(code)
                                : code == CUDA_SUCCESS && fd >= 0 ? "a descriptor" : code_name(code));
}

CASE(handle_for_address_range_bad_arguments) {
  Gpu gpu;
  DeviceArray<char> plain(2 * kBlock);
  int fd = -1, supported = 0;
  CU(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, gpu.device));
  if (supported == 0) SKIP("no dma-buf on this device");
  SHOW(cuMemGetHandleForAddressRange(nullptr, plain.pointer, 65536, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  SHOW(cuMemGetHandleForAddressRange(&fd, 0, 65536, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  SHOW(cuMemGetHandleForAddressRange(&fd, plain.pointer, 0, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  SHOW(cuMemGetHandleForAddressRange(&fd, plain.pointer, 65536, static_cast<CUmemRangeHandleType>(9), 0));
}

CASE(survives_its_context) {
  CUdeviceptr address = 0;
  {
    Gpu gpu;
    address = reserve(kBlock);
    CU(cuMemMap(address, kBlock, 0, make(), 0));
    CU(allow(address, kBlock));
    CU(cuMemsetD32(address, 5, 100));
    CU(cuCtxSynchronize());
    CU(cuDevicePrimaryCtxReset(gpu.device));
  }
  Gpu again;
  uint32_t value = 0;
  SHOW(cuMemcpyDtoH(&value, address, 4));
  printf("%u\n", value);
}

CASE(without_a_context) {
  CU(cuInit(0));
  CUdeviceptr address = 0;
  SHOW(cuMemAddressReserve(&address, kBlock, 0, 0, 0));
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp prop = device_prop();
  SHOW(cuMemCreate(&handle, kBlock, &prop, 0));
  SHOW(cuMemMap(address, kBlock, 0, handle, 0));
  SHOW(allow(address, kBlock));
  SHOW(cuMemUnmap(address, kBlock));
  SHOW(cuMemRelease(handle));
  SHOW(cuMemAddressFree(address, kBlock));
}

CASE(host_memory_as_location) {
  Gpu gpu;
  CUmemAllocationProp prop = device_prop();
  CUmemGenericAllocationHandle handle = 0;
  for (CUmemLocationType type : {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA}) {
    int supported = 0;
    CU(cuDeviceGetAttribute(&supported, type == CU_MEM_LOCATION_TYPE_HOST ? CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
                                                                          : CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, gpu.device));
    prop.location = {type, 0};
    CUresult code = cuMemCreate(&handle, kBlock, &prop, 0);
    printf("%d: %s\n", static_cast<int>(type), (code == CUDA_SUCCESS) == (supported != 0) ? "as the attribute says" : code_name(code));
  }
}

CASE(address_range_of_accessible_memory) {
  Gpu gpu;
  const CUdeviceptr address = reserve(5 * kBlock);
  const auto show = [&](const char* what, CUdeviceptr where) {
    CUdeviceptr base = 0;
    size_t size = 0;
    const CUresult error = cuMemGetAddressRange(&base, &size, where);
    printf("%s: %d, at %lld, %zu bytes\n", what, error, base == 0 ? -1 : static_cast<long long>(base - address), size);
  };
  CU(cuMemMap(address + kBlock, kBlock, 0, make(), 0));
  CU(cuMemMap(address + 2 * kBlock, 2 * kBlock, 0, make(2 * kBlock), 0));
  CU(allow(address + kBlock, kBlock));
  show("the first", address + kBlock + 100);
  show("the second, without access", address + 2 * kBlock + 100);
  CU(allow(address + 2 * kBlock, 2 * kBlock));
  show("the second", address + 3 * kBlock + 100);
  show("before them", address);
  show("behind them", address + 4 * kBlock);
  CU(allow(address + kBlock, kBlock, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  show("the first, without access again", address + kBlock);
  CU(cuMemUnmap(address + 2 * kBlock, 2 * kBlock));
  show("the second, unmapped", address + 2 * kBlock);
}
