// Memory pools and stream-ordered allocation: properties, attributes, access, life of allocations,
// sharing.
#include <unistd.h>

#include "tests/conformance/case.h"

namespace {

CUmemPoolProps device_props(CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.handleTypes = handles;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return props;
}

struct Pool {
  CUmemoryPool handle = nullptr;
  explicit Pool(CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_NONE) {
    CUmemPoolProps props = device_props(handles);
    CU(cuMemPoolCreate(&handle, &props));
  }
};

struct Stream {
  CUstream handle = nullptr;
  Stream() { CU(cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING)); }
};

uint64_t wide(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value = 12345;
  CU(cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

void show_used(CUmemoryPool pool) {
  printf("used %llu, most used %llu, reserved %s, most reserved %s\n",
         static_cast<unsigned long long>(wide(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)),
         static_cast<unsigned long long>(wide(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH)),
         wide(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= wide(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) ? "as much" : "less",
         wide(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= wide(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) ? "as much" : "less");
}

}  // namespace

CASE(create_bad_arguments) {
  Gpu gpu;
  CUmemoryPool pool = nullptr;
  CUmemPoolProps props = device_props();
  SHOW(cuMemPoolCreate(nullptr, &props));
  SHOW(cuMemPoolCreate(&pool, nullptr));
  props.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
  SHOW(cuMemPoolCreate(&pool, &props));
  props = device_props();
  props.location.type = CU_MEM_LOCATION_TYPE_INVALID;
  SHOW(cuMemPoolCreate(&pool, &props));
  props = device_props();
  props.location.id = 99;
  SHOW(cuMemPoolCreate(&pool, &props));
  props.location.id = -1;
  SHOW(cuMemPoolCreate(&pool, &props));
  props = device_props(CU_MEM_HANDLE_TYPE_WIN32);
  SHOW(cuMemPoolCreate(&pool, &props));
  props = device_props(static_cast<CUmemAllocationHandleType>(64));
  SHOW(cuMemPoolCreate(&pool, &props));
}

CASE(destroy) {
  Gpu gpu;
  Pool pool;
  SHOW(cuMemPoolDestroy(pool.handle));
  SHOW(cuMemPoolDestroy(nullptr));
}

CASE(default_pool_cannot_be_destroyed) {
  Gpu gpu;
  CUmemoryPool pool = nullptr;
  CU(cuDeviceGetDefaultMemPool(&pool, gpu.device));
  SHOW(cuMemPoolDestroy(pool));
}

CASE(default_and_current_pool) {
  Gpu gpu;
  CUmemoryPool standard = nullptr, current = nullptr;
  SHOW(cuDeviceGetDefaultMemPool(&standard, gpu.device));
  SHOW(cuDeviceGetMemPool(&current, gpu.device));
  printf("current is %s\n", current == standard ? "the default" : "another");
  Pool own;
  SHOW(cuDeviceSetMemPool(gpu.device, own.handle));
  SHOW(cuDeviceGetMemPool(&current, gpu.device));
  printf("current is %s\n", current == own.handle ? "the own one" : "another");
  SHOW(cuMemPoolDestroy(own.handle));
  SHOW(cuDeviceGetMemPool(&current, gpu.device));
  printf("current is %s\n", current == standard ? "the default" : "another");
}

CASE(default_pool_bad_arguments) {
  Gpu gpu;
  CUmemoryPool pool = nullptr;
  SHOW(cuDeviceGetDefaultMemPool(nullptr, gpu.device));
  SHOW(cuDeviceGetDefaultMemPool(&pool, 99));
  SHOW(cuDeviceGetMemPool(nullptr, gpu.device));
  SHOW(cuDeviceGetMemPool(&pool, -1));
  SHOW(cuDeviceSetMemPool(99, pool));
  SHOW(cuDeviceSetMemPool(gpu.device, nullptr));
}

CASE(pool_by_location) {
  Gpu gpu;
  CUmemoryPool standard = nullptr, pool = nullptr;
  CU(cuDeviceGetDefaultMemPool(&standard, gpu.device));
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  SHOW(cuMemGetDefaultMemPool(&pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED));
  printf("%s\n", pool == standard ? "the default" : "another");
  SHOW(cuMemGetMemPool(&pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED));
  printf("%s\n", pool == standard ? "the default" : "another");
  Pool own;
  SHOW(cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, own.handle));
  SHOW(cuMemGetMemPool(&pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED));
  printf("%s\n", pool == own.handle ? "the own one" : "another");
  SHOW(cuDeviceGetMemPool(&pool, gpu.device));
  printf("%s\n", pool == own.handle ? "the own one" : "another");
}

CASE(pool_by_location_bad_arguments) {
  Gpu gpu;
  CUmemoryPool pool = nullptr;
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0}, nowhere{CU_MEM_LOCATION_TYPE_DEVICE, 99}, invalid{CU_MEM_LOCATION_TYPE_INVALID, 0};
  SHOW(cuMemGetDefaultMemPool(nullptr, &location, CU_MEM_ALLOCATION_TYPE_PINNED));
  SHOW(cuMemGetDefaultMemPool(&pool, nullptr, CU_MEM_ALLOCATION_TYPE_PINNED));
  SHOW(cuMemGetDefaultMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
  SHOW(cuMemGetDefaultMemPool(&pool, &invalid, CU_MEM_ALLOCATION_TYPE_PINNED));
  SHOW(cuMemGetDefaultMemPool(&pool, &location, CU_MEM_ALLOCATION_TYPE_INVALID));
  SHOW(cuMemGetMemPool(nullptr, &location, CU_MEM_ALLOCATION_TYPE_PINNED));
  SHOW(cuMemGetMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
  SHOW(cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, nullptr));
  SHOW(cuMemSetMemPool(nullptr, CU_MEM_ALLOCATION_TYPE_PINNED, nullptr));
}

CASE(attribute_defaults) {
  Gpu gpu;
  Pool pool;
  for (CUmemPool_attribute attribute : {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                                        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES}) {
    int value = -1;
    SHOW(cuMemPoolGetAttribute(pool.handle, attribute, &value));
    printf("attribute %d: %d\n", static_cast<int>(attribute), value);
  }
  for (CUmemPool_attribute attribute : {CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
                                        CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH}) {
    printf("attribute %d: %llu\n", static_cast<int>(attribute), static_cast<unsigned long long>(wide(pool.handle, attribute)));
  }
}

CASE(attributes_can_be_set) {
  Gpu gpu;
  Pool pool;
  int off = 0, value = -1;
  SHOW(cuMemPoolSetAttribute(pool.handle, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
  SHOW(cuMemPoolGetAttribute(pool.handle, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &value));
  printf("%d\n", value);
  cuuint64_t threshold = 1 << 26;
  SHOW(cuMemPoolSetAttribute(pool.handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  printf("%llu\n", static_cast<unsigned long long>(wide(pool.handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)));
}

CASE(attributes_that_cannot_be_set) {
  Gpu gpu;
  Pool pool;
  cuuint64_t zero = 0, one = 1;
  SHOW(cuMemPoolSetAttribute(pool.handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero));
  SHOW(cuMemPoolSetAttribute(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &zero));
  SHOW(cuMemPoolSetAttribute(pool.handle, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
  SHOW(cuMemPoolSetAttribute(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &one));
  SHOW(cuMemPoolSetAttribute(pool.handle, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  SHOW(cuMemPoolSetAttribute(pool.handle, static_cast<CUmemPool_attribute>(99), &zero));
  SHOW(cuMemPoolSetAttribute(nullptr, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &zero));
  SHOW(cuMemPoolGetAttribute(pool.handle, static_cast<CUmemPool_attribute>(0), &zero));
  SHOW(cuMemPoolGetAttribute(nullptr, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &zero));
}

CASE(used_memory_is_counted) {
  Gpu gpu;
  Pool pool;
  Stream stream;
  CUdeviceptr a = 0, b = 0;
  CU(cuMemAllocFromPoolAsync(&a, 1 << 20, pool.handle, stream.handle));
  show_used(pool.handle);
  CU(cuMemAllocFromPoolAsync(&b, 3 << 20, pool.handle, stream.handle));
  show_used(pool.handle);
  CU(cuMemFreeAsync(a, stream.handle));
  CU(cuStreamSynchronize(stream.handle));
  show_used(pool.handle);
  cuuint64_t zero = 0;
  CU(cuMemPoolSetAttribute(pool.handle, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  CU(cuMemPoolSetAttribute(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
  show_used(pool.handle);
  CU(cuMemFreeAsync(b, stream.handle));
  CU(cuStreamSynchronize(stream.handle));
  show_used(pool.handle);
  SHOW(cuMemPoolTrimTo(pool.handle, 0));
  printf("reserved %llu\n", static_cast<unsigned long long>(wide(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)));
}

CASE(used_memory_is_rounded) {
  Gpu gpu;
  Pool pool;
  Stream stream;
  CUdeviceptr a = 0;
  for (size_t bytes : {1, 256, 512, 513, 1000, 100000}) {
    CU(cuMemAllocFromPoolAsync(&a, bytes, pool.handle, stream.handle));
    printf("%zu: %llu\n", bytes, static_cast<unsigned long long>(wide(pool.handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)));
    CU(cuMemFreeAsync(a, stream.handle));
    CU(cuStreamSynchronize(stream.handle));
  }
}

CASE(threshold_keeps_memory) {
  Gpu gpu;
  Pool pool;
  Stream stream;
  cuuint64_t threshold = UINT64_MAX;
  CU(cuMemPoolSetAttribute(pool.handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  CUdeviceptr a = 0;
  CU(cuMemAllocFromPoolAsync(&a, 8 << 20, pool.handle, stream.handle));
  CU(cuMemFreeAsync(a, stream.handle));
  CU(cuStreamSynchronize(stream.handle));
  printf("reserved %s\n", wide(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 8 << 20 ? "stays" : "goes");
  SHOW(cuMemPoolTrimTo(pool.handle, 1 << 30));
  printf("reserved %s\n", wide(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 8 << 20 ? "stays" : "goes");
  SHOW(cuMemPoolTrimTo(pool.handle, 0));
  printf("reserved %s\n", wide(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 8 << 20 ? "stays" : "goes");
}

CASE(trim_bad_pool) {
  Gpu gpu;
  SHOW(cuMemPoolTrimTo(nullptr, 0));
}

CASE(alloc_bad_arguments) {
  Gpu gpu;
  Stream stream;
  CUdeviceptr a = 0;
  SHOW(cuMemAllocAsync(nullptr, 100, stream.handle));
  SHOW(cuMemAllocAsync(&a, 0, stream.handle));
  printf("address %s\n", a == 0 ? "none" : "some");
  SHOW(cuMemAllocAsync(&a, size_t{1} << 50, stream.handle));
  SHOW(cuMemAllocFromPoolAsync(&a, 100, nullptr, stream.handle));
  Pool pool;
  SHOW(cuMemAllocFromPoolAsync(nullptr, 100, pool.handle, stream.handle));
  SHOW(cuMemAllocFromPoolAsync(&a, 0, pool.handle, stream.handle));
}

CASE(alloc_on_each_default_stream) {
  Gpu gpu;
  for (CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    CUdeviceptr a = 0;
    SHOW(cuMemAllocAsync(&a, 1000, stream));
    SHOW(cuMemsetD8Async(a, 3, 1000, stream));
    SHOW(cuMemFreeAsync(a, stream));
  }
  SHOW(cuCtxSynchronize());
}

CASE(free_bad_arguments) {
  Gpu gpu;
  Stream stream;
  CUdeviceptr a = 0;
  SHOW(cuMemFreeAsync(0, stream.handle));
  SHOW(cuMemFreeAsync(0x1234, stream.handle));
  CU(cuMemAllocAsync(&a, 10000, stream.handle));
  SHOW(cuMemFreeAsync(a + 256, stream.handle));
  SHOW(cuMemFreeAsync(a, stream.handle));
  SHOW(cuMemFreeAsync(a, stream.handle));
}

CASE(free_async_of_ordinary_memory) {
  Gpu gpu;
  Stream stream;
  CUdeviceptr a = 0;
  CU(cuMemAlloc(&a, 10000));
  SHOW(cuMemFreeAsync(a, stream.handle));
  SHOW(cuStreamSynchronize(stream.handle));
}

CASE(free_async_of_pinned_memory) {
  Gpu gpu;
  Stream stream;
  void* p = nullptr;
  CU(cuMemAllocHost(&p, 10000));
  SHOW(cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(p), stream.handle));
}

CASE(plain_free_of_pool_memory) {
  Gpu gpu;
  Stream stream;
  CUdeviceptr a = 0;
  CU(cuMemAllocAsync(&a, 10000, stream.handle));
  SHOW(cuMemFree(a));
  SHOW(cuMemFree(a));
}

CASE(free_on_another_stream) {
  Gpu gpu;
  Stream one, two;
  CUdeviceptr a = 0;
  CUevent event;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CU(cuMemAllocAsync(&a, 4000, one.handle));
  CU(cuMemsetD32Async(a, 9, 1000, one.handle));
  CU(cuEventRecord(event, one.handle));
  CU(cuStreamWaitEvent(two.handle, event, 0));
  uint32_t last = 0;
  CU(cuMemcpyDtoHAsync(&last, a + 3996, 4, two.handle));
  SHOW(cuMemFreeAsync(a, two.handle));
  SHOW(cuStreamSynchronize(two.handle));
  printf("%u\n", last);
}

CASE(allocation_outlives_its_pool) {
  Gpu gpu;
  Stream stream;
  Pool pool;
  CUdeviceptr a = 0;
  CU(cuMemAllocFromPoolAsync(&a, 4000, pool.handle, stream.handle));
  SHOW(cuMemPoolDestroy(pool.handle));
  SHOW(cuMemsetD32Async(a, 5, 1000, stream.handle));
  uint32_t last = 0;
  CU(cuStreamSynchronize(stream.handle));  // which no legacy copy waits for
  SHOW(cuMemcpyDtoH(&last, a + 3996, 4));
  SHOW(cuMemFreeAsync(a, stream.handle));
  SHOW(cuStreamSynchronize(stream.handle));
}

CASE(max_size) {
  Gpu gpu;
  Stream stream;
  CUmemPoolProps props = device_props();
  props.maxSize = 64 << 20;
  CUmemoryPool pool = nullptr;
  SHOW(cuMemPoolCreate(&pool, &props));
  CUdeviceptr a = 0, b = 0;
  SHOW(cuMemAllocFromPoolAsync(&a, 32 << 20, pool, stream.handle));
  SHOW(cuMemAllocFromPoolAsync(&b, 128 << 20, pool, stream.handle));
  SHOW(cuMemFreeAsync(a, stream.handle));
}

CASE(reserved_fields_must_be_zero) {
  Gpu gpu;
  CUmemoryPool pool = nullptr;
  CUmemPoolProps props = device_props();
  props.reserved[3] = 1;
  SHOW(cuMemPoolCreate(&pool, &props));
  props = device_props();
  props.usage = 0x8000;
  SHOW(cuMemPoolCreate(&pool, &props));
}

CASE(access_of_the_own_device) {
  Gpu gpu;
  Pool pool;
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  SHOW(cuMemPoolGetAccess(&flags, pool.handle, &location));
  printf("%d\n", static_cast<int>(flags));
  CUmemAccessDesc desc{location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  SHOW(cuMemPoolSetAccess(pool.handle, &desc, 1));
  desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  SHOW(cuMemPoolSetAccess(pool.handle, &desc, 1));
  desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  SHOW(cuMemPoolSetAccess(pool.handle, &desc, 1));
}

CASE(access_bad_arguments) {
  Gpu gpu;
  Pool pool;
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0}, nowhere{CU_MEM_LOCATION_TYPE_DEVICE, 99};
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  SHOW(cuMemPoolGetAccess(nullptr, pool.handle, &location));
  SHOW(cuMemPoolGetAccess(&flags, nullptr, &location));
  SHOW(cuMemPoolGetAccess(&flags, pool.handle, nullptr));
  SHOW(cuMemPoolGetAccess(&flags, pool.handle, &nowhere));
  CUmemAccessDesc desc{nowhere, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  SHOW(cuMemPoolSetAccess(pool.handle, &desc, 1));
  SHOW(cuMemPoolSetAccess(pool.handle, nullptr, 1));
  SHOW(cuMemPoolSetAccess(pool.handle, &desc, 0));
  SHOW(cuMemPoolSetAccess(nullptr, &desc, 1));
}

CASE(pointer_attributes_of_pool_memory) {
  Gpu gpu;
  Stream stream;
  Pool pool;
  CUdeviceptr a = 0;
  CU(cuMemAllocFromPoolAsync(&a, 10000, pool.handle, stream.handle));
  CUmemoryPool owner = nullptr;
  unsigned type = 9, ipc = 9;
  CUcontext context = nullptr;
  int ordinal = -9;
  SHOW(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a + 10));
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a));
  SHOW(cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, a));
  SHOW(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, a));
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a));
  printf("pool %s, type %u, ipc %u, context %s, device %d\n", owner == pool.handle ? "ours" : owner == nullptr ? "none" : "other", type, ipc,
         context == gpu.context ? "ours" : context == nullptr ? "none" : "other", ordinal);
  CU(cuMemAllocAsync(&a, 10000, stream.handle));
  CUmemoryPool standard = nullptr;
  CU(cuDeviceGetDefaultMemPool(&standard, gpu.device));
  SHOW(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
  printf("pool %s\n", owner == standard ? "the default" : owner == nullptr ? "none" : "other");
}

CASE(address_range_of_pool_memory) {
  Gpu gpu;
  Stream stream;
  CUdeviceptr a = 0, base = 0;
  size_t size = 0;
  CU(cuMemAllocAsync(&a, 10000, stream.handle));
  SHOW(cuMemGetAddressRange(&base, &size, a + 100));
  printf("offset %lld size %zu\n", static_cast<long long>(a - base), size);
}

CASE(export_without_handle_type) {
  Gpu gpu;
  Pool pool;
  int fd = -1;
  SHOW(cuMemPoolExportToShareableHandle(&fd, pool.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUmemoryPool standard = nullptr;
  CU(cuDeviceGetDefaultMemPool(&standard, gpu.device));
  SHOW(cuMemPoolExportToShareableHandle(&fd, standard, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

CASE(export_bad_arguments) {
  Gpu gpu;
  Pool pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  int fd = -1;
  SHOW(cuMemPoolExportToShareableHandle(nullptr, pool.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  SHOW(cuMemPoolExportToShareableHandle(&fd, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  SHOW(cuMemPoolExportToShareableHandle(&fd, pool.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
  SHOW(cuMemPoolExportToShareableHandle(&fd, pool.handle, CU_MEM_HANDLE_TYPE_NONE, 0));
  SHOW(cuMemPoolExportToShareableHandle(&fd, pool.handle, CU_MEM_HANDLE_TYPE_WIN32, 0));
}

CASE(import_in_the_same_process) {
  Gpu gpu;
  Stream stream;
  Pool pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  int fd = -1;
  SHOW(cuMemPoolExportToShareableHandle(&fd, pool.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUmemoryPool imported = nullptr;
  SHOW(cuMemPoolImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(fd);
  CUdeviceptr a = 0;
  SHOW(cuMemAllocFromPoolAsync(&a, 4000, pool.handle, stream.handle));
  CUmemPoolPtrExportData data;
  memset(&data, 0, sizeof data);
  SHOW(cuMemPoolExportPointer(&data, a));
  if (imported == nullptr) return;
  CUdeviceptr b = 0;
  SHOW(cuMemPoolImportPointer(&b, imported, &data));
  SHOW(cuMemAllocFromPoolAsync(&b, 4000, imported, stream.handle));
}

CASE(import_bad_arguments) {
  Gpu gpu;
  CUmemoryPool pool = nullptr;
  SHOW(cuMemPoolImportFromShareableHandle(nullptr, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  SHOW(cuMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(static_cast<intptr_t>(-1)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  int ends[2];
  EXPECT(pipe(ends) == 0);
  SHOW(cuMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(static_cast<intptr_t>(ends[0])), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUmemPoolPtrExportData data;
  memset(&data, 0, sizeof data);
  CUdeviceptr a = 0;
  SHOW(cuMemPoolImportPointer(&a, nullptr, &data));
  SHOW(cuMemPoolExportPointer(nullptr, a));
  SHOW(cuMemPoolExportPointer(&data, 0x1234));
}

CASE(export_pointer_of_other_memory) {
  Gpu gpu;
  Stream stream;
  CUmemPoolPtrExportData data;
  DeviceArray<char> plain(1000);
  SHOW(cuMemPoolExportPointer(&data, plain.pointer));
  CUdeviceptr a = 0;
  CU(cuMemAllocAsync(&a, 1000, stream.handle));
  SHOW(cuMemPoolExportPointer(&data, a));
}

CASE(reused_memory_in_stream_order) {
  Gpu gpu;
  Stream stream;
  Pool pool;
  uint64_t hash = 0;
  for (uint32_t round = 0; round < 200; ++round) {
    CUdeviceptr a = 0;
    CU(cuMemAllocFromPoolAsync(&a, 4096, pool.handle, stream.handle));
    CU(cuMemsetD32Async(a, round, 1024, stream.handle));
    uint32_t last = 0;
    CU(cuMemcpyDtoHAsync(&last, a + 4092, 4, stream.handle));
    CU(cuMemFreeAsync(a, stream.handle));
    CU(cuStreamSynchronize(stream.handle));
    hash = hash * 31 + last;
  }
  printf("%016llx, used %llu\n", static_cast<unsigned long long>(hash),
         static_cast<unsigned long long>(wide(pool.handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)));
}

CASE(pool_of_host_memory) {
  Gpu gpu;
  CUmemoryPool pool = nullptr;
  CUmemPoolProps props = device_props();
  props.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  CUresult code = cuMemPoolCreate(&pool, &props);
  int supported = 0;
  CU(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, gpu.device));
  printf("%s\n", (code == CUDA_SUCCESS) == (supported != 0) ? "as the attribute says" : code_name(code));
}

CASE(without_a_context) {
  CU(cuInit(0));
  CUdeviceptr a = 0;
  SHOW(cuMemAllocAsync(&a, 100, nullptr));
  SHOW(cuMemFreeAsync(0x1000, nullptr));
  CUmemoryPool pool = nullptr;
  CUmemPoolProps props = device_props();
  SHOW(cuDeviceGetDefaultMemPool(&pool, 0));
  SHOW(cuMemPoolCreate(&pool, &props));
  SHOW(cuMemPoolDestroy(pool));
}

CASE(fabric_handles_without_a_channel) {
  Gpu gpu;
  CUmemoryPool pool = nullptr;
  CUmemPoolProps props = device_props(CU_MEM_HANDLE_TYPE_FABRIC);
  SHOW(cuMemPoolCreate(&pool, &props));
}

CASE(refused_allocation_leaves_no_trace) {
  Gpu gpu;
  CUmemoryPool pool = nullptr;
  CU(cuDeviceGetDefaultMemPool(&pool, gpu.device));
  cuuint64_t all = UINT64_MAX;
  CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
  CUdeviceptr held = 0, refused = 0;
  CU(cuMemAllocAsync(&held, 3 << 20, nullptr));
  const auto show = [&] {
    for (const CUmemPool_attribute attribute :
         {CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
          CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH})
      printf("%llu ", static_cast<unsigned long long>(wide(pool, attribute)) >> 20);
    printf("MiB\n");
  };
  show();
  SHOW(cuMemAllocAsync(&refused, size_t{1} << 40, nullptr));
  show();
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 511, size_t{1} << 63})
    SHOW(cuMemAllocAsync(&refused, bytes, nullptr));
  show();
  CU(cuMemFreeAsync(held, nullptr));
  CU(cuStreamSynchronize(nullptr));
  show();
  CU(cuMemPoolTrimTo(pool, 0));
  show();
}
