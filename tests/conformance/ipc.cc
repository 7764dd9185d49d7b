// cuIpc*: which memory and events have handles, who may open them, and what an opened one is.
#include "tests/conformance/two_processes.h"

static CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr pointer = 0;
  CU(cuMemAlloc(&pointer, bytes));
  return pointer;
}
static bool same(const CUipcMemHandle& a, const CUipcMemHandle& b) { return memcmp(&a, &b, sizeof(a)) == 0; }
static CUipcMemHandle handle_of(CUdeviceptr pointer) {
  CUipcMemHandle handle;
  CU(cuIpcGetMemHandle(&handle, pointer));
  return handle;
}
static CUdeviceptr opened(const CUipcMemHandle& handle) {
  CUdeviceptr pointer = 0;
  CU(cuIpcOpenMemHandle(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  return pointer;
}
static unsigned first_word(CUdeviceptr pointer) {
  unsigned word = 0;
  CU(cuMemcpyDtoH(&word, pointer, sizeof(word)));
  return word;
}

// ---- handles of memory, in one process ----

CASE(device_supports_ipc) {
  Gpu gpu;
  int value = 0;
  SHOW(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, gpu.device));
  printf("%d\n", value);
}

CASE(get_mem_handle) {
  Gpu gpu;
  CUipcMemHandle handle;
  const CUdeviceptr pointer = allocate(4096);
  SHOW(cuIpcGetMemHandle(&handle, pointer));
  SHOW(cuMemFree(pointer));
}

CASE(get_mem_handle_null) {
  Gpu gpu;
  CUipcMemHandle handle;
  SHOW(cuIpcGetMemHandle(nullptr, allocate(4096)));
  SHOW(cuIpcGetMemHandle(&handle, 0));
  SHOW(cuIpcGetMemHandle(nullptr, 0));
}

CASE(get_mem_handle_before_init) {
  CUipcMemHandle handle;
  SHOW(cuIpcGetMemHandle(&handle, 0x1000));
}

CASE(get_mem_handle_without_context) {
  CU(cuInit(0));
  CUipcMemHandle handle;
  SHOW(cuIpcGetMemHandle(&handle, 0x1000));
}

CASE(get_mem_handle_of_no_allocation) {
  Gpu gpu;
  CUipcMemHandle handle;
  SHOW(cuIpcGetMemHandle(&handle, 0x1234));
  int local = 0;
  SHOW(cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(&local)));
}

CASE(get_mem_handle_of_freed_memory) {
  Gpu gpu;
  CUipcMemHandle handle;
  const CUdeviceptr pointer = allocate(8 << 20);
  CU(cuMemFree(pointer));
  SHOW(cuIpcGetMemHandle(&handle, pointer));
}

CASE(get_mem_handle_twice_is_the_same) {
  Gpu gpu;
  const CUdeviceptr pointer = allocate(4096);
  printf("%d\n", same(handle_of(pointer), handle_of(pointer)));
}

CASE(get_mem_handle_of_an_inner_pointer) {
  Gpu gpu;
  CUipcMemHandle handle;
  const CUdeviceptr pointer = allocate(4096);
  SHOW(cuIpcGetMemHandle(&handle, pointer + 512));
  printf("the same as the base's: %d\n", same(handle, handle_of(pointer)));
}

CASE(get_mem_handle_past_the_end) {
  Gpu gpu;
  CUipcMemHandle handle;
  const CUdeviceptr pointer = allocate(8 << 20);
  SHOW(cuIpcGetMemHandle(&handle, pointer + (8 << 20) - 1));
}

CASE(handles_of_two_allocations_differ) {
  Gpu gpu;
  printf("%d\n", same(handle_of(allocate(4096)), handle_of(allocate(4096))));
  printf("%d\n", same(handle_of(allocate(4 << 20)), handle_of(allocate(4 << 20))));
}

CASE(handle_of_new_memory_at_an_old_address) {
  Gpu gpu;
  const CUdeviceptr first = allocate(8 << 20);
  const CUipcMemHandle before = handle_of(first);
  CU(cuMemFree(first));
  const CUdeviceptr second = allocate(8 << 20);
  printf("%d\n", same(before, handle_of(second)));
}

CASE(get_mem_handle_of_pinned_memory) {
  Gpu gpu;
  CUipcMemHandle handle;
  void* host = nullptr;
  CU(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  SHOW(cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(host)));
}

CASE(get_mem_handle_of_mapped_memory) {
  Gpu gpu;
  CUipcMemHandle handle;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle memory;
  CUdeviceptr pointer = 0;
  CU(cuMemCreate(&memory, 2 << 20, &prop, 0));
  CU(cuMemAddressReserve(&pointer, 2 << 20, 0, 0, 0));
  CU(cuMemMap(pointer, 2 << 20, 0, memory, 0));
  CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CU(cuMemSetAccess(pointer, 2 << 20, &access, 1));
  SHOW(cuIpcGetMemHandle(&handle, pointer));
}

CASE(get_mem_handle_of_pool_memory) {
  Gpu gpu;
  CUipcMemHandle handle;
  CUdeviceptr pointer = 0;
  CU(cuMemAllocAsync(&pointer, 4096, nullptr));
  CU(cuStreamSynchronize(nullptr));
  SHOW(cuIpcGetMemHandle(&handle, pointer));
}

CASE(pitched_memory_has_a_handle) {
  Gpu gpu;
  CUipcMemHandle handle;
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  CU(cuMemAllocPitch(&pointer, &pitch, 100, 10, 4));
  SHOW(cuIpcGetMemHandle(&handle, pointer));
}

CASE(legacy_ipc_capable_attribute) {
  Gpu gpu;
  unsigned capable = 7;
  SHOW(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, allocate(4096)));
  printf("%u\n", capable);
  void* host = nullptr;
  CU(cuMemHostAlloc(&host, 4096, 0));
  SHOW(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, reinterpret_cast<CUdeviceptr>(host)));
  printf("%u\n", capable);
}

CASE(open_in_the_process_that_made_it) {
  Gpu gpu;
  CUdeviceptr pointer = 0;
  SHOW(cuIpcOpenMemHandle(&pointer, handle_of(allocate(4096)), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  SHOW(cuIpcOpenMemHandle(&pointer, handle_of(allocate(8 << 20)), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

CASE(open_nonsense) {
  Gpu gpu;
  CUdeviceptr pointer = 0;
  CUipcMemHandle handle;
  memset(&handle, 0, sizeof(handle));
  SHOW(cuIpcOpenMemHandle(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  SHOW(cuIpcOpenMemHandle(nullptr, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

CASE(open_without_context) {
  CU(cuInit(0));
  CUdeviceptr pointer = 0;
  CUipcMemHandle handle;
  memset(&handle, 0, sizeof(handle));
  SHOW(cuIpcOpenMemHandle(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  SHOW(cuIpcCloseMemHandle(0x1000));
}

CASE(close_what_was_never_opened) {
  Gpu gpu;
  SHOW(cuIpcCloseMemHandle(0));
  SHOW(cuIpcCloseMemHandle(0x1234));
  const CUdeviceptr own = allocate(4096);
  SHOW(cuIpcCloseMemHandle(own));
  SHOW(cuMemFree(own));
}

// ---- memory between two processes ----

// The parent exports `bytes` of memory whose first word is 0x11; the child does something with it.
static CUdeviceptr export_to(Other& other, size_t bytes, size_t offset = 0) {
  const CUdeviceptr pointer = allocate(bytes);
  CU(cuMemsetD32(pointer, 0x11, bytes / 4));
  CU(cuCtxSynchronize());
  other.link().send(handle_of(pointer + offset));
  return pointer;
}

static void reads_and_writes(Link& link) {
  Gpu gpu;
  CUdeviceptr pointer = 0;
  SHOW(cuIpcOpenMemHandle(&pointer, link.receive<CUipcMemHandle>(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  printf("reads %x\n", first_word(pointer));
  CU(cuMemsetD32(pointer, 0x22, 1));
  CU(cuCtxSynchronize());
  SHOW(cuIpcCloseMemHandle(pointer));
  link.done();
}
CASE(open_shares_small_memory) {
  Other other(reads_and_writes);
  Gpu gpu;
  const CUdeviceptr pointer = export_to(other, 4096);
  other.link().wait();
  printf("then %x\n", first_word(pointer));
  SHOW(cuMemFree(pointer));
}
CASE(open_shares_large_memory) {
  Other other(reads_and_writes);
  Gpu gpu;
  const CUdeviceptr pointer = export_to(other, 40 << 20);
  other.link().wait();
  printf("then %x\n", first_word(pointer));
  SHOW(cuMemFree(pointer));
}

static void looks_at_bad_flags(Link& link) {
  Gpu gpu;
  const auto handle = link.receive<CUipcMemHandle>();
  CUdeviceptr pointer = 0;
  SHOW(cuIpcOpenMemHandle(nullptr, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  SHOW(cuIpcOpenMemHandle(&pointer, handle, 2));
  SHOW(cuIpcOpenMemHandle(&pointer, handle, 0xffffffffu));
  SHOW(cuIpcOpenMemHandle(&pointer, handle, 0));
  link.done();
}
CASE(open_with_bad_flags) {
  Other other(looks_at_bad_flags);
  Gpu gpu;
  export_to(other, 4096);
  other.link().wait();
}

static void opens_by_the_old_name(Link& link) {
  Gpu gpu;
  auto* open = conformance::symbol_as<decltype(cuIpcOpenMemHandle)>("cuIpcOpenMemHandle");
  CUdeviceptr pointer = 0;
  SHOW(open(&pointer, link.receive<CUipcMemHandle>(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  printf("reads %x\n", first_word(pointer));
  SHOW(cuIpcCloseMemHandle(pointer));
  link.done();
}
CASE(open_by_the_old_name) {
  Other other(opens_by_the_old_name);
  Gpu gpu;
  export_to(other, 4096);
  other.link().wait();
}

static void asks_for_the_range(Link& link) {
  Gpu gpu;
  const CUdeviceptr pointer = opened(link.receive<CUipcMemHandle>());
  CUdeviceptr base = 0;
  size_t size = 0;
  SHOW(cuMemGetAddressRange(&base, &size, pointer));
  printf("begins there %d, bytes %zu\n", base == pointer, size);
  link.done();
}
CASE(range_of_opened_memory) {
  Other other(asks_for_the_range);
  Gpu gpu;
  export_to(other, 6 << 20);
  other.link().wait();
}

static void asks_for_attributes(Link& link) {
  Gpu gpu;
  const CUdeviceptr pointer = opened(link.receive<CUipcMemHandle>());
  unsigned type = 0, managed = 7, capable = 7;
  int ordinal = -1;
  CUcontext context = nullptr;
  CUdeviceptr device_pointer = 0;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer + 16));
  SHOW(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer));
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));
  SHOW(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
  SHOW(cuPointerGetAttribute(&device_pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pointer + 16));
  printf("type %u, managed %u, device %d, current context %d, pointer %d\n", type, managed, ordinal, context == gpu.context,
         device_pointer == pointer + 16);
  SHOW(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer));
  printf("capable %u\n", capable);
  link.done();
}
CASE(attributes_of_opened_memory) {
  Other other(asks_for_attributes);
  Gpu gpu;
  export_to(other, 6 << 20);
  other.link().wait();
}

static void opens_twice(Link& link) {
  Gpu gpu;
  const auto handle = link.receive<CUipcMemHandle>();
  const CUdeviceptr first = opened(handle), second = opened(handle);
  printf("the same %d\n", first == second);
  SHOW(cuIpcCloseMemHandle(first));
  printf("still reads %x\n", first_word(first));
  SHOW(cuIpcCloseMemHandle(first));
  SHOW(cuIpcCloseMemHandle(first));
  unsigned word = 0;
  SHOW(cuMemcpyDtoH(&word, first, sizeof(word)));
  link.done();
}
CASE(open_twice_counts) {
  Other other(opens_twice);
  Gpu gpu;
  export_to(other, 8 << 20);
  other.link().wait();
}

static void closes_wrongly(Link& link) {
  Gpu gpu;
  const CUdeviceptr pointer = opened(link.receive<CUipcMemHandle>());
  SHOW(cuIpcCloseMemHandle(pointer + 256));
  SHOW(cuMemFree(pointer));
  SHOW(cuMemFreeHost(reinterpret_cast<void*>(pointer)));
  printf("reads %x\n", first_word(pointer));
  SHOW(cuIpcCloseMemHandle(pointer));
  link.done();
}
CASE(close_by_an_inner_pointer_or_by_free) {
  Other other(closes_wrongly);
  Gpu gpu;
  export_to(other, 8 << 20);
  other.link().wait();
}

static void exports_again(Link& link) {
  Gpu gpu;
  const CUdeviceptr pointer = opened(link.receive<CUipcMemHandle>());
  CUipcMemHandle handle;
  SHOW(cuIpcGetMemHandle(&handle, pointer));
  link.done();
}
CASE(handle_of_opened_memory) {
  Other other(exports_again);
  Gpu gpu;
  export_to(other, 8 << 20);
  other.link().wait();
}

static void opens_inner(Link& link) {
  Gpu gpu;
  const CUdeviceptr pointer = opened(link.receive<CUipcMemHandle>());
  printf("first word %x\n", first_word(pointer));
  link.done();
}
CASE(open_of_an_inner_pointer_gives_the_base) {
  Other other(opens_inner);
  Gpu gpu;
  const CUdeviceptr pointer = allocate(8 << 20);
  CU(cuMemsetD32(pointer, 0x11, 1024));
  CU(cuMemsetD32(pointer + 4096, 0x33, 1024));
  CU(cuCtxSynchronize());
  other.link().send(handle_of(pointer + 4096));
  other.link().wait();
}

static void runs_a_kernel(Link& link) {
  Gpu gpu;
  const CUdeviceptr pointer = opened(link.receive<CUipcMemHandle>());
  CU(cuMemsetD32(pointer, 5, 256));
  CU(cuMemsetD2D8(pointer + 1024, 64, 0xab, 16, 4));
  std::vector<unsigned char> own(2048, 0x5a);
  CU(cuMemcpyHtoD(pointer + 4096, own.data(), own.size()));
  DeviceArray<unsigned char> copy(2048);
  CU(cuMemcpyDtoD(copy.pointer, pointer + 4096, 2048));
  print_hash("copied on", copy.read());
  CU(cuCtxSynchronize());
  SHOW(cuIpcCloseMemHandle(pointer));
  link.done();
}
CASE(work_on_opened_memory) {
  Other other(runs_a_kernel);
  Gpu gpu;
  const CUdeviceptr pointer = export_to(other, 8192);
  other.link().wait();
  std::vector<unsigned char> bytes(8192);
  CU(cuMemcpyDtoH(bytes.data(), pointer, bytes.size()));
  print_hash("exporter sees", bytes);
}

static void opens_two(Link& link) {
  Gpu gpu;
  const CUdeviceptr first = opened(link.receive<CUipcMemHandle>()), second = opened(link.receive<CUipcMemHandle>());
  printf("%x %x, apart %d\n", first_word(first), first_word(second), first != second);
  SHOW(cuIpcCloseMemHandle(second));
  printf("%x\n", first_word(first));
  SHOW(cuIpcCloseMemHandle(first));
  link.done();
}
CASE(two_allocations_opened) {
  Other other(opens_two);
  Gpu gpu;
  const CUdeviceptr first = allocate(4096), second = allocate(4096);
  CU(cuMemsetD32(first, 0xa, 1024));
  CU(cuMemsetD32(second, 0xb, 1024));
  CU(cuCtxSynchronize());
  other.link().send(handle_of(first));
  other.link().send(handle_of(second));
  other.link().wait();
}

static void opens_again_after_close(Link& link) {
  Gpu gpu;
  const auto handle = link.receive<CUipcMemHandle>();
  for (int i = 0; i < 3; ++i) {
    const CUdeviceptr pointer = opened(handle);
    printf("%x\n", first_word(pointer));
    SHOW(cuIpcCloseMemHandle(pointer));
  }
  link.done();
}
CASE(open_close_open) {
  Other other(opens_again_after_close);
  Gpu gpu;
  export_to(other, 4096);
  other.link().wait();
}

static void resets_its_context(Link& link) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  CU(cuCtxSetCurrent(context));
  const CUdeviceptr pointer = opened(link.receive<CUipcMemHandle>());
  printf("%x\n", first_word(pointer));
  SHOW(cuDevicePrimaryCtxReset(0));
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  CU(cuCtxSetCurrent(context));
  SHOW(cuIpcCloseMemHandle(pointer));
  link.done();
}
CASE(reset_closes_opened_memory) {
  Other other(resets_its_context);
  Gpu gpu;
  const CUdeviceptr pointer = export_to(other, 8 << 20);
  other.link().wait();
  printf("exporter reads %x\n", first_word(pointer));
  SHOW(cuMemFree(pointer));
}

// ---- memory by fd ----

static CUdeviceptr map_memory(CUmemGenericAllocationHandle memory, size_t bytes) {
  CUdeviceptr pointer = 0;
  CU(cuMemAddressReserve(&pointer, bytes, 0, 0, 0));
  CU(cuMemMap(pointer, bytes, 0, memory, 0));
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CU(cuMemSetAccess(pointer, bytes, &access, 1));
  return pointer;
}
static void imports_an_fd(Link& link) {
  Gpu gpu;
  const int fd = link.receive_fd();
  CUmemGenericAllocationHandle memory = 0;
  SHOW(cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  const CUdeviceptr pointer = map_memory(memory, 4 << 20);
  printf("reads %x\n", first_word(pointer));
  CU(cuMemsetD32(pointer, 0x22, 1));
  CU(cuCtxSynchronize());
  SHOW(cuMemUnmap(pointer, 4 << 20));
  SHOW(cuMemRelease(memory));
  SHOW(cuMemAddressFree(pointer, 4 << 20));
  link.done();
}
CASE(mapped_memory_by_fd) {
  Other other(imports_an_fd);
  Gpu gpu;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle memory = 0;
  CU(cuMemCreate(&memory, 4 << 20, &prop, 0));
  const CUdeviceptr pointer = map_memory(memory, 4 << 20);
  CU(cuMemsetD32(pointer, 0x11, 16));
  CU(cuCtxSynchronize());
  int fd = -1;
  SHOW(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  other.link().send_fd(fd);
  close(fd);
  other.link().wait();
  printf("then %x\n", first_word(pointer));
}

// The fd keeps the memory though its maker is gone.
static void makes_memory_and_leaves(Link& link) {
  Gpu gpu;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle memory = 0;
  CU(cuMemCreate(&memory, 4 << 20, &prop, 0));
  const CUdeviceptr pointer = map_memory(memory, 4 << 20);
  CU(cuMemsetD32(pointer, 0x77, 16));
  CU(cuCtxSynchronize());
  int fd = -1;
  CU(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  link.send_fd(fd);
}
CASE(fd_outlives_its_maker) {
  Other other(makes_memory_and_leaves);
  Gpu gpu;
  const int fd = other.link().receive_fd();
  other.finish();
  CUmemGenericAllocationHandle memory = 0;
  SHOW(cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  printf("reads %x\n", first_word(map_memory(memory, 4 << 20)));
}

CASE(import_descriptor_zero) {
  Gpu gpu;
  CUmemGenericAllocationHandle handle = 0;
  SHOW(cuMemImportFromShareableHandle(&handle, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}
