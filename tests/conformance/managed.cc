// Managed memory: allocation, use from both sides, advice, prefetches, range attributes, attachment
// to streams.
#include "tests/conformance/case.h"

namespace {

struct Managed {
  CUdeviceptr address = 0;
  size_t bytes;
  explicit Managed(size_t size = 1 << 20, unsigned flags = CU_MEM_ATTACH_GLOBAL) : bytes(size) { CU(cuMemAllocManaged(&address, size, flags)); }
  uint32_t* values() const { return reinterpret_cast<uint32_t*>(address); }
};

constexpr CUmemLocation kDevice{CU_MEM_LOCATION_TYPE_DEVICE, 0};
constexpr CUmemLocation kHost{CU_MEM_LOCATION_TYPE_HOST, 0};
constexpr CUmemLocation kNowhere{CU_MEM_LOCATION_TYPE_DEVICE, 99};

int attribute_of(CUdeviceptr p, size_t bytes, CUmem_range_attribute attribute) {
  int value = -77;
  SHOW(cuMemRangeGetAttribute(&value, sizeof value, attribute, p, bytes));
  return value;
}

}  // namespace

CASE(alloc_bad_arguments) {
  Gpu gpu;
  CUdeviceptr p = 0;
  SHOW(cuMemAllocManaged(nullptr, 4096, CU_MEM_ATTACH_GLOBAL));
  SHOW(cuMemAllocManaged(&p, 0, CU_MEM_ATTACH_GLOBAL));
  SHOW(cuMemAllocManaged(&p, 4096, 0));
  SHOW(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_SINGLE));
  SHOW(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST));
  SHOW(cuMemAllocManaged(&p, 4096, 0x10));
}

CASE(managed_memory_attribute) {
  Gpu gpu;
  int value = 0;
  CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, gpu.device));
  printf("%d\n", value);
}

CASE(kernel_and_host_see_the_same) {
  Gpu gpu;
  Module module("kernels.fatbin");
  Managed memory;
  const int count = 5000;
  for (int i = 0; i < count; ++i) memory.values()[i] = static_cast<uint32_t>(i);
  LAUNCH(module.function("step"), {20}, {256}, 0, nullptr, memory.address, 3u, 7u, count);
  CU(cuCtxSynchronize());
  printf("hash %016llx\n", static_cast<unsigned long long>(hash_bytes(memory.values(), count * 4)));
  SHOW(cuMemFree(memory.address));
}

CASE(attach_host_then_used_by_a_kernel) {
  Gpu gpu;
  Module module("kernels.fatbin");
  Managed memory(1 << 20, CU_MEM_ATTACH_HOST);
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SHOW(cuStreamAttachMemAsync(stream, memory.address, 0, CU_MEM_ATTACH_GLOBAL));
  CU(cuStreamSynchronize(stream));
  for (int i = 0; i < 1000; ++i) memory.values()[i] = static_cast<uint32_t>(i);
  LAUNCH(module.function("step"), {4}, {256}, 0, stream, memory.address, 5u, 1u, 1000);
  CU(cuStreamSynchronize(stream));
  printf("hash %016llx\n", static_cast<unsigned long long>(hash_bytes(memory.values(), 4000)));
}

CASE(copies_and_memsets) {
  Gpu gpu;
  Managed memory;
  std::vector<uint32_t> host(1000, 7), back(1000);
  SHOW(cuMemcpyHtoD(memory.address, host.data(), 4000));
  CU(cuCtxSynchronize());
  printf("%u\n", memory.values()[999]);
  SHOW(cuMemsetD32(memory.address, 9, 500));
  SHOW(cuMemcpyDtoH(back.data(), memory.address, 4000));
  printf("%u %u\n", back[0], back[999]);
  DeviceArray<uint32_t> device(1000);
  SHOW(cuMemcpyDtoD(device.pointer, memory.address, 4000));
  print_hash("device", device.read());
  SHOW(cuMemcpy(memory.address + 8000, device.pointer, 4000));
  CU(cuCtxSynchronize());
  printf("%u\n", memory.values()[2000]);
}

CASE(free_interior_and_twice) {
  Gpu gpu;
  Managed memory;
  SHOW(cuMemFree(memory.address + 4096));
  SHOW(cuMemFree(memory.address));
  SHOW(cuMemFree(memory.address));
}

CASE(free_host_of_managed_memory) {
  Gpu gpu;
  Managed memory;
  SHOW(cuMemFreeHost(memory.values()));
}

CASE(pointer_attributes) {
  Gpu gpu;
  Managed memory(100000);
  const CUdeviceptr p = memory.address + 100;
  unsigned type = 9, managed = 9, mapped = 9, sync = 9, ipc = 9, access = 9;
  CUdeviceptr device = 0, start = 0;
  void* host = nullptr;
  size_t size = 0;
  CUcontext context = nullptr;
  int ordinal = -9;
  uint64_t handles = 9;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
  SHOW(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
  SHOW(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, p));
  SHOW(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  SHOW(cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
  SHOW(cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p));
  SHOW(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p));
  SHOW(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
  SHOW(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p));
  SHOW(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
  SHOW(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p));
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
  SHOW(cuPointerGetAttribute(&handles, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p));
  printf("type %u managed %u mapped %u sync %u ipc %u access %u device %d host %d start %lld size %zu context %d ordinal %d handles %llu\n", type,
         managed, mapped, sync, ipc, access, device == p, reinterpret_cast<CUdeviceptr>(host) == p, static_cast<long long>(p - start), size,
         context == gpu.context, ordinal, static_cast<unsigned long long>(handles));
}

CASE(address_range) {
  Gpu gpu;
  Managed memory(100000);
  CUdeviceptr base = 0;
  size_t size = 0;
  SHOW(cuMemGetAddressRange(&base, &size, memory.address + 500));
  printf("offset %lld size %zu\n", static_cast<long long>(memory.address + 500 - base), size);
}

CASE(host_calls_on_managed_memory) {
  Gpu gpu;
  Managed memory;
  CUdeviceptr device = 0;
  unsigned flags = 0;
  SHOW(cuMemHostGetDevicePointer(&device, memory.values(), 0));
  SHOW(cuMemHostGetFlags(&flags, memory.values()));
  SHOW(cuMemHostRegister(memory.values(), 4096, 0));
  SHOW(cuMemHostUnregister(memory.values()));
}

CASE(advice_is_accepted) {
  Gpu gpu;
  Managed memory;
  for (CUmem_advise advice : {CU_MEM_ADVISE_SET_READ_MOSTLY, CU_MEM_ADVISE_UNSET_READ_MOSTLY, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                              CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, CU_MEM_ADVISE_SET_ACCESSED_BY, CU_MEM_ADVISE_UNSET_ACCESSED_BY}) {
    SHOW(cuMemAdvise(memory.address, memory.bytes, advice, kDevice));
    SHOW(cuMemAdvise(memory.address, memory.bytes, advice, kHost));
  }
}

CASE(advice_first_version) {
  Gpu gpu;
  Managed memory;
  auto* advise = conformance::symbol_as<CUresult(CUdeviceptr, size_t, CUmem_advise, CUdevice)>("cuMemAdvise");
  SHOW(advise(memory.address, memory.bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
  SHOW(advise(memory.address, memory.bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
  SHOW(advise(memory.address, memory.bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, 99));
  printf("%d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION));
}

CASE(advice_bad_arguments) {
  Gpu gpu;
  Managed memory;
  DeviceArray<char> plain(1 << 20);
  SHOW(cuMemAdvise(memory.address, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice));
  SHOW(cuMemAdvise(memory.address, memory.bytes * 2, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice));
  SHOW(cuMemAdvise(plain.pointer, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice));
  SHOW(cuMemAdvise(0, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice));
  SHOW(cuMemAdvise(memory.address, memory.bytes, static_cast<CUmem_advise>(99), kDevice));
  SHOW(cuMemAdvise(memory.address, memory.bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kNowhere));
  SHOW(cuMemAdvise(memory.address, memory.bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, kNowhere));
  SHOW(cuMemAdvise(memory.address, memory.bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, {CU_MEM_LOCATION_TYPE_INVALID, 0}));
}

CASE(prefetch) {
  Gpu gpu;
  Managed memory;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SHOW(cuMemPrefetchAsync(memory.address, memory.bytes, kDevice, 0, stream));
  SHOW(cuMemPrefetchAsync(memory.address, memory.bytes, kHost, 0, stream));
  SHOW(cuMemPrefetchAsync(memory.address, 4096, kDevice, 0, nullptr));
  SHOW(cuStreamSynchronize(stream));
}

CASE(prefetch_first_version) {
  Gpu gpu;
  Managed memory;
  auto* prefetch = conformance::symbol_as<CUresult(CUdeviceptr, size_t, CUdevice, CUstream)>("cuMemPrefetchAsync");
  auto* per_thread = conformance::symbol_as<CUresult(CUdeviceptr, size_t, CUdevice, CUstream)>("cuMemPrefetchAsync_ptsz");
  SHOW(prefetch(memory.address, memory.bytes, 0, nullptr));
  SHOW(per_thread(memory.address, memory.bytes, CU_DEVICE_CPU, nullptr));
  SHOW(prefetch(memory.address, memory.bytes, 99, nullptr));
}

CASE(prefetch_bad_arguments) {
  Gpu gpu;
  Managed memory;
  DeviceArray<char> plain(1 << 20);
  SHOW(cuMemPrefetchAsync(memory.address, 0, kDevice, 0, nullptr));
  SHOW(cuMemPrefetchAsync(memory.address, memory.bytes * 2, kDevice, 0, nullptr));
  SHOW(cuMemPrefetchAsync(memory.address, memory.bytes, kNowhere, 0, nullptr));
  SHOW(cuMemPrefetchAsync(memory.address, memory.bytes, kDevice, 1, nullptr));
  SHOW(cuMemPrefetchAsync(plain.pointer, 4096, kDevice, 0, nullptr));
  SHOW(cuMemPrefetchAsync(0, 4096, kDevice, 0, nullptr));
}

CASE(read_mostly_attribute) {
  Gpu gpu;
  Managed memory;
  printf("%d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY));
  CU(cuMemAdvise(memory.address, memory.bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice));
  printf("%d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY));
  CU(cuMemAdvise(memory.address, 65536, CU_MEM_ADVISE_UNSET_READ_MOSTLY, kDevice));
  printf("%d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY));
  printf("%d\n", attribute_of(memory.address + 65536, memory.bytes - 65536, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY));
}

CASE(preferred_location_attribute) {
  Gpu gpu;
  Managed memory;
  printf("%d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION));
  printf("type %d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE));
  CU(cuMemAdvise(memory.address, memory.bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kDevice));
  printf("%d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION));
  printf("type %d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE));
  printf("id %d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID));
  CU(cuMemAdvise(memory.address, memory.bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kHost));
  printf("%d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION));
  printf("type %d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE));
  CU(cuMemAdvise(memory.address, memory.bytes, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, kHost));
  printf("%d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION));
}

CASE(accessed_by_attribute) {
  Gpu gpu;
  Managed memory;
  int devices[3] = {7, 7, 7};
  SHOW(cuMemRangeGetAttribute(devices, sizeof devices, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory.address, memory.bytes));
  printf("%d %d %d\n", devices[0], devices[1], devices[2]);
  CU(cuMemAdvise(memory.address, memory.bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, kDevice));
  SHOW(cuMemRangeGetAttribute(devices, sizeof devices, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory.address, memory.bytes));
  printf("%d %d %d\n", devices[0], devices[1], devices[2]);
  CU(cuMemAdvise(memory.address, memory.bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, kHost));
  SHOW(cuMemRangeGetAttribute(devices, sizeof devices, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory.address, memory.bytes));
  printf("%d %d %d\n", devices[0], devices[1], devices[2]);
}

CASE(last_prefetch_location_attribute) {
  Gpu gpu;
  Managed memory;
  printf("%d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION));
  CU(cuMemPrefetchAsync(memory.address, memory.bytes, kDevice, 0, nullptr));
  CU(cuCtxSynchronize());
  printf("%d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION));
  printf("type %d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE));
  printf("id %d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID));
  CU(cuMemPrefetchAsync(memory.address, 65536, kHost, 0, nullptr));
  CU(cuCtxSynchronize());
  printf("%d\n", attribute_of(memory.address, 65536, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION));
  printf("%d\n", attribute_of(memory.address, memory.bytes, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION));
}

CASE(range_attribute_bad_arguments) {
  Gpu gpu;
  Managed memory;
  DeviceArray<char> plain(1 << 20);
  int value = 0;
  SHOW(cuMemRangeGetAttribute(nullptr, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory.address, memory.bytes));
  SHOW(cuMemRangeGetAttribute(&value, 0, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory.address, memory.bytes));
  SHOW(cuMemRangeGetAttribute(&value, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory.address, memory.bytes));
  SHOW(cuMemRangeGetAttribute(&value, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory.address, memory.bytes));
  SHOW(cuMemRangeGetAttribute(&value, 4, static_cast<CUmem_range_attribute>(99), memory.address, memory.bytes));
  SHOW(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory.address, 0));
  SHOW(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory.address, memory.bytes * 2));
  SHOW(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, plain.pointer, 4096));
  SHOW(cuMemRangeGetAttribute(&value, 2, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory.address, memory.bytes));
}

CASE(several_range_attributes) {
  Gpu gpu;
  Managed memory;
  int mostly = -9, location = -9;
  void* data[] = {&mostly, &location};
  size_t sizes[] = {4, 4};
  CUmem_range_attribute names[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION};
  SHOW(cuMemRangeGetAttributes(data, sizes, names, 2, memory.address, memory.bytes));
  printf("%d %d\n", mostly, location);
  SHOW(cuMemRangeGetAttributes(nullptr, sizes, names, 2, memory.address, memory.bytes));
  SHOW(cuMemRangeGetAttributes(data, nullptr, names, 2, memory.address, memory.bytes));
  SHOW(cuMemRangeGetAttributes(data, sizes, nullptr, 2, memory.address, memory.bytes));
  SHOW(cuMemRangeGetAttributes(data, sizes, names, 0, memory.address, memory.bytes));
}

CASE(attach_to_streams) {
  Gpu gpu;
  Managed memory;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SHOW(cuStreamAttachMemAsync(stream, memory.address, 0, CU_MEM_ATTACH_SINGLE));
  SHOW(cuStreamAttachMemAsync(stream, memory.address, memory.bytes, CU_MEM_ATTACH_HOST));
  SHOW(cuStreamAttachMemAsync(stream, memory.address, memory.bytes, CU_MEM_ATTACH_GLOBAL));
  SHOW(cuStreamAttachMemAsync(nullptr, memory.address, 0, CU_MEM_ATTACH_GLOBAL));
  SHOW(cuStreamSynchronize(stream));
}

CASE(attach_bad_arguments) {
  Gpu gpu;
  Managed memory;
  CUstream stream;
  DeviceArray<char> plain(1 << 20);
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SHOW(cuStreamAttachMemAsync(stream, memory.address, 4096, CU_MEM_ATTACH_GLOBAL));
  SHOW(cuStreamAttachMemAsync(stream, memory.address + 4096, 0, CU_MEM_ATTACH_GLOBAL));
  SHOW(cuStreamAttachMemAsync(nullptr, memory.address, 0, CU_MEM_ATTACH_SINGLE));
  SHOW(cuStreamAttachMemAsync(stream, plain.pointer, 0, CU_MEM_ATTACH_GLOBAL));
  SHOW(cuStreamAttachMemAsync(stream, 0, 0, CU_MEM_ATTACH_GLOBAL));
}

CASE(prefetch_batch) {
  Gpu gpu;
  Managed one, two;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr pointers[] = {one.address, two.address};
  size_t sizes[] = {one.bytes, two.bytes}, starts[] = {0};
  CUmemLocation locations[] = {kDevice};
  SHOW(cuMemPrefetchBatchAsync(pointers, sizes, 2, locations, starts, 1, 0, stream));
  CU(cuStreamSynchronize(stream));
  printf("%d\n", attribute_of(two.address, two.bytes, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION));
}

CASE(prefetch_batch_bad_arguments) {
  Gpu gpu;
  Managed one, two;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr pointers[] = {one.address, two.address};
  size_t sizes[] = {one.bytes, two.bytes}, starts[] = {0, 1}, wrong[] = {1}, unordered[] = {0, 0}, beyond[] = {0, 2};
  CUmemLocation locations[] = {kDevice, kHost};
  SHOW(cuMemPrefetchBatchAsync(nullptr, sizes, 2, locations, starts, 1, 0, stream));
  SHOW(cuMemPrefetchBatchAsync(pointers, nullptr, 2, locations, starts, 1, 0, stream));
  SHOW(cuMemPrefetchBatchAsync(pointers, sizes, 0, locations, starts, 1, 0, stream));
  SHOW(cuMemPrefetchBatchAsync(pointers, sizes, 2, nullptr, starts, 1, 0, stream));
  SHOW(cuMemPrefetchBatchAsync(pointers, sizes, 2, locations, nullptr, 1, 0, stream));
  SHOW(cuMemPrefetchBatchAsync(pointers, sizes, 2, locations, starts, 0, 0, stream));
  SHOW(cuMemPrefetchBatchAsync(pointers, sizes, 2, locations, wrong, 1, 0, stream));
  SHOW(cuMemPrefetchBatchAsync(pointers, sizes, 2, locations, unordered, 2, 0, stream));
  SHOW(cuMemPrefetchBatchAsync(pointers, sizes, 2, locations, beyond, 2, 0, stream));
  SHOW(cuMemPrefetchBatchAsync(pointers, sizes, 2, locations, starts, 3, 0, stream));
  SHOW(cuMemPrefetchBatchAsync(pointers, sizes, 2, locations, starts, 2, 1, stream));
  SHOW(cuMemPrefetchBatchAsync(pointers, sizes, 2, locations, starts, 2, 0, nullptr));
}

CASE(discard_batch) {
  Gpu gpu;
  Managed one, two;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr pointers[] = {one.address, two.address};
  size_t sizes[] = {one.bytes, two.bytes}, starts[] = {0};
  CUmemLocation locations[] = {kDevice};
  SHOW(cuMemDiscardBatchAsync(pointers, sizes, 2, 0, stream));
  SHOW(cuMemDiscardAndPrefetchBatchAsync(pointers, sizes, 2, locations, starts, 1, 0, stream));
  CU(cuMemsetD32Async(one.address, 3, 100, stream));
  CU(cuStreamSynchronize(stream));
  printf("%u\n", one.values()[99]);
}

CASE(discard_batch_bad_arguments) {
  Gpu gpu;
  Managed one;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  DeviceArray<char> plain(1 << 20);
  CUdeviceptr pointers[] = {one.address};
  size_t sizes[] = {one.bytes}, starts[] = {0}, none[] = {0};
  CUmemLocation locations[] = {kDevice};
  SHOW(cuMemDiscardBatchAsync(nullptr, sizes, 1, 0, stream));
  SHOW(cuMemDiscardBatchAsync(pointers, nullptr, 1, 0, stream));
  SHOW(cuMemDiscardBatchAsync(pointers, sizes, 0, 0, stream));
  SHOW(cuMemDiscardBatchAsync(pointers, sizes, 1, 1, stream));
  SHOW(cuMemDiscardBatchAsync(pointers, sizes, 1, 0, nullptr));
  SHOW(cuMemDiscardBatchAsync(pointers, none, 1, 0, stream));
  SHOW(cuMemDiscardBatchAsync(&plain.pointer, sizes, 1, 0, stream));
  SHOW(cuMemDiscardAndPrefetchBatchAsync(pointers, sizes, 1, nullptr, starts, 1, 0, stream));
  SHOW(cuMemDiscardAndPrefetchBatchAsync(pointers, sizes, 1, locations, nullptr, 1, 0, stream));
  SHOW(cuMemDiscardAndPrefetchBatchAsync(pointers, sizes, 1, locations, starts, 0, 0, stream));
}

CASE(no_managed_variable_of_that_name) {
  Gpu gpu;
  CUlibrary library;
  std::vector<char> image = read_beside("kernels.fatbin");
  CU(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUdeviceptr p = 0;
  size_t bytes = 0;
  void* function = nullptr;
  SHOW(cuLibraryGetManaged(&p, &bytes, library, "no_such_variable"));
  SHOW(cuLibraryGetManaged(&p, &bytes, library, nullptr));
  SHOW(cuLibraryGetManaged(&p, &bytes, nullptr, "x"));
  SHOW(cuLibraryGetUnifiedFunction(&function, library, "no_such_function"));
  SHOW(cuLibraryGetUnifiedFunction(nullptr, library, "x"));
  SHOW(cuLibraryGetUnifiedFunction(&function, nullptr, "x"));
}

CASE(context_reset_frees_it) {
  Gpu gpu;
  Managed memory;
  CU(cuDevicePrimaryCtxReset(gpu.device));
  CUcontext again = nullptr;
  CU(cuDevicePrimaryCtxRetain(&again, gpu.device));
  CU(cuCtxSetCurrent(again));
  SHOW(cuMemFree(memory.address));
}

CASE(without_a_context) {
  CU(cuInit(0));
  CUdeviceptr p = 0;
  SHOW(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
  SHOW(cuMemAdvise(0x1000, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice));
}
