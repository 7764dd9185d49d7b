// Calls in a thread without a current context, on objects made with one: many need none, because
// their handles know theirs. Libraries do this from helper threads (a pin-memory thread, XLA's
// executor), so each answer must be the driver's.
#include "tests/conformance/case.h"

CASES_HOLD_STREAMS;

namespace {

struct Objects {
  Gpu gpu;
  Module module{"kernels.fatbin"};
  CUfunction fill = module.function("fill");
  CUstream stream = nullptr, other = nullptr;
  CUevent event = nullptr, timed = nullptr;
  CUdeviceptr device = 0;
  void* pinned = nullptr;
  uint32_t host[64] = {};

  Objects() {
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU(cuEventCreate(&timed, 0));
    CU(cuMemAlloc(&device, 4096));
    CU(cuMemAllocHost(&pinned, 4096));
    CU(cuEventRecord(event, stream));
    CU(cuEventRecord(timed, stream));
    CU(cuStreamSynchronize(stream));
    CUcontext popped;
    CU(cuCtxPopCurrent(&popped));
    CUcontext none;
    CU(cuCtxGetCurrent(&none));
    EXPECT(none == nullptr);
  }
  ~Objects() { CU(cuCtxSetCurrent(gpu.context)); }  // for the destructors of the members
};

}  // namespace

CASE(streams) {
  Objects o;
  CUstream made;
  SHOW(cuStreamCreate(&made, 0));
  SHOW(cuStreamQuery(o.stream));
  SHOW(cuStreamSynchronize(o.stream));
  unsigned flags = 99;
  SHOW(cuStreamGetFlags(o.stream, &flags));
  int priority = 99;
  SHOW(cuStreamGetPriority(o.stream, &priority));
  unsigned long long id = 0;
  SHOW(cuStreamGetId(o.stream, &id));
  CUcontext context = nullptr;
  SHOW(cuStreamGetCtx(o.stream, &context));
  CUdevice device = 9;
  SHOW(cuStreamGetDevice(o.stream, &device));
  SHOW(cuStreamWaitEvent(o.stream, o.event, 0));
  CUstreamAttrValue value{};
  SHOW(cuStreamGetAttribute(o.stream, CU_STREAM_ATTRIBUTE_PRIORITY, &value));
  SHOW(cuStreamSetAttribute(o.stream, CU_STREAM_ATTRIBUTE_PRIORITY, &value));
  SHOW(cuStreamCopyAttributes(o.other, o.stream));
  SHOW(cuStreamDestroy(o.other));
}

CASE(default_streams) {
  Objects o;
  SHOW(cuStreamQuery(nullptr));
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuStreamQuery(CU_STREAM_PER_THREAD));
  SHOW(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  SHOW(cuEventRecord(o.event, nullptr));
  SHOW(cuStreamWaitEvent(nullptr, o.event, 0));
  SHOW(cuMemsetD8Async(o.device, 1, 16, nullptr));
  SHOW(cuMemsetD8(o.device, 1, 16));
  unsigned flags = 0;
  SHOW(cuStreamGetFlags(nullptr, &flags));
  SHOW(cuCtxSynchronize());
}

CASE(events) {
  Objects o;
  CUevent made;
  SHOW(cuEventCreate(&made, 0));
  SHOW(cuEventRecord(o.timed, o.stream));
  SHOW(cuEventRecordWithFlags(o.timed, o.stream, 0));
  SHOW(cuEventSynchronize(o.timed));
  SHOW(cuEventQuery(o.timed));
  float ms = 0;
  SHOW(cuEventElapsedTime(&ms, o.timed, o.timed));
  SHOW(cuEventDestroy(o.event));
}

CASE(host_functions) {
  Objects o;
  static int ran = 0;
  SHOW(cuLaunchHostFunc(o.stream, [](void*) { ++ran; }, nullptr));
  SHOW(cuStreamAddCallback(o.stream, [](CUstream, CUresult, void*) { ++ran; }, nullptr, 0));
  SHOW(cuStreamSynchronize(o.stream));
  printf("ran %d\n", ran);
}

CASE(launches) {
  Objects o;
  SHOW(try_launch(o.fill, {1}, {32}, 0, o.stream, o.device, 7u, 32));
  SHOW(try_launch(o.fill, {1}, {32}, 0, nullptr, o.device, 7u, 32));
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 32;
  config.hStream = o.stream;
  unsigned value = 3;
  int count = 32;
  void* parameters[] = {&o.device, &value, &count};
  SHOW(cuLaunchKernelEx(&config, o.fill, parameters, nullptr));
  SHOW(cuLaunchCooperativeKernel(o.fill, 1, 1, 1, 32, 1, 1, 0, o.stream, parameters));
  SHOW(cuStreamSynchronize(o.stream));
}

CASE(allocations) {
  Objects o;
  CUdeviceptr p;
  SHOW(cuMemAlloc(&p, 16));
  size_t pitch;
  SHOW(cuMemAllocPitch(&p, &pitch, 16, 4, 4));
  void* h;
  SHOW(cuMemAllocHost(&h, 16));
  SHOW(cuMemHostAlloc(&h, 16, 0));
  SHOW(cuMemAllocManaged(&p, 16, CU_MEM_ATTACH_GLOBAL));
  size_t a, b;
  SHOW(cuMemGetInfo(&a, &b));
  SHOW(cuMemFreeHost(o.pinned));
  SHOW(cuMemFree(o.device));
}

CASE(pointer_questions) {
  Objects o;
  CUdeviceptr base;
  size_t size = 0;
  SHOW(cuMemGetAddressRange(&base, &size, o.device));
  CUmemorytype type{};
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, o.device));
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(o.pinned)));
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(o.host)));
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  int ordinal = 9;
  void* answers[] = {&type, &ordinal};
  SHOW(cuPointerGetAttributes(2, which, answers, o.device));
  printf("type %d device %d\n", type, ordinal);
  SHOW(cuPointerGetAttributes(2, which, answers, reinterpret_cast<CUdeviceptr>(o.host)));
  printf("type %d device %d\n", type, ordinal);
  int one = 1;
  SHOW(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, o.device));
  CUdeviceptr alias;
  SHOW(cuMemHostGetDevicePointer(&alias, o.pinned, 0));
  unsigned flags;
  SHOW(cuMemHostGetFlags(&flags, o.pinned));
}

CASE(host_registration) {
  Objects o;
  alignas(4096) static char memory[8192];
  SHOW(cuMemHostRegister(memory, 8192, 0));
  SHOW(cuMemHostRegister(memory, 8192, CU_MEMHOSTREGISTER_PORTABLE));
  SHOW(cuMemHostUnregister(memory));
}

CASE(copies) {
  Objects o;
  SHOW(cuMemcpyHtoD(o.device, o.host, 64));
  SHOW(cuMemcpyDtoH(o.host, o.device, 64));
  SHOW(cuMemcpyDtoD(o.device, o.device + 128, 64));
  SHOW(cuMemcpy(o.device, o.device + 128, 64));
  SHOW(cuMemcpyHtoDAsync(o.device, o.host, 64, o.stream));
  SHOW(cuMemcpyDtoHAsync(o.pinned, o.device, 64, o.stream));
  SHOW(cuMemcpyDtoDAsync(o.device, o.device + 128, 64, o.stream));
  SHOW(cuMemcpyAsync(o.device, o.device + 128, 64, o.stream));
  SHOW(cuMemsetD8Async(o.device, 1, 64, o.stream));
  SHOW(cuMemsetD32Async(o.device, 1, 16, o.stream));
  SHOW(cuMemsetD2D8Async(o.device, 64, 1, 16, 2, o.stream));
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = o.device;
  copy.dstDevice = o.device + 2048;
  copy.srcPitch = copy.dstPitch = 64;
  copy.WidthInBytes = 32;
  copy.Height = 4;
  SHOW(cuMemcpy2DAsync(&copy, o.stream));
  SHOW(cuMemcpy2D(&copy));
  SHOW(cuStreamSynchronize(o.stream));
}

CASE(stream_ordered_memory) {
  Objects o;
  CUdeviceptr p = 0;
  SHOW(cuMemAllocAsync(&p, 64, o.stream));
  if (p != 0) SHOW(cuMemFreeAsync(p, o.stream));
  SHOW(cuMemAllocAsync(&p, 64, nullptr));
  CUmemoryPool pool;
  SHOW(cuDeviceGetDefaultMemPool(&pool, o.gpu.device));
  SHOW(cuMemAllocFromPoolAsync(&p, 64, pool, o.stream));
  SHOW(cuMemFreeAsync(p, o.stream));
  uint64_t value = 0;
  SHOW(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
  SHOW(cuMemPoolTrimTo(pool, 0));
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool made = nullptr;
  SHOW(cuMemPoolCreate(&made, &props));
  if (made != nullptr) SHOW(cuMemPoolDestroy(made));
}

CASE(virtual_memory) {
  Objects o;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  size_t granularity = 0;
  SHOW(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUmemGenericAllocationHandle handle;
  SHOW(cuMemCreate(&handle, granularity, &prop, 0));
  CUdeviceptr at = 0;
  SHOW(cuMemAddressReserve(&at, granularity, 0, 0, 0));
  SHOW(cuMemMap(at, granularity, 0, handle, 0));
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  SHOW(cuMemSetAccess(at, granularity, &access, 1));
  SHOW(cuMemUnmap(at, granularity));
  SHOW(cuMemRelease(handle));
  SHOW(cuMemAddressFree(at, granularity));
}

CASE(modules) {
  Objects o;
  CUmodule module;
  SHOW(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  CUfunction function;
  SHOW(cuModuleGetFunction(&function, o.module.handle, "fill"));
  CUdeviceptr global;
  size_t size;
  SHOW(cuModuleGetGlobal(&global, &size, o.module.handle, "none"));
  unsigned count = 0;
  SHOW(cuModuleGetFunctionCount(&count, o.module.handle));
  int value;
  SHOW(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, o.fill));
  SHOW(cuFuncSetAttribute(o.fill, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
  SHOW(cuFuncSetCacheConfig(o.fill, CU_FUNC_CACHE_PREFER_L1));
  const char* name;
  SHOW(cuFuncGetName(&name, o.fill));
  CUmodule of;
  SHOW(cuFuncGetModule(&of, o.fill));
  size_t offset, bytes;
  SHOW(cuFuncGetParamInfo(o.fill, 0, &offset, &bytes));
  SHOW(cuFuncLoad(o.fill));
  CUfunctionLoadingState state;
  SHOW(cuFuncIsLoaded(&state, o.fill));
  int blocks;
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, o.fill, 32, 0));
  SHOW(cuModuleUnload(o.module.handle));
  fflush(stdout);
  _exit(0);  // whether the destructor's unload works depends on this one
}

CASE(libraries) {
  Objects o;
  CUlibrary library;
  auto image = read_beside("kernels.fatbin");
  SHOW(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel;
  SHOW(cuLibraryGetKernel(&kernel, library, "fill"));
  CUfunction function;
  SHOW(cuKernelGetFunction(&function, kernel));
  int value;
  SHOW(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 0));
  SHOW(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, kernel, 0));
  SHOW(try_launch(reinterpret_cast<CUfunction>(kernel), {1}, {32}, 0, o.stream, o.device, 7u, 32));
  CUmodule module;
  SHOW(cuLibraryGetModule(&module, library));
  CUdeviceptr global;
  size_t size;
  SHOW(cuLibraryGetGlobal(&global, &size, library, "none"));
  SHOW(cuLibraryUnload(library));
}

CASE(graphs) {
  Objects o;
  CUgraph graph = nullptr;
  SHOW(cuGraphCreate(&graph, 0));
  CUgraphNode empty, fill;  // a kernel node that names no context crashes the driver here
  SHOW(cuGraphAddEmptyNode(&empty, graph, nullptr, 0));
  CUcontext context;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  CUDA_MEMSET_NODE_PARAMS set{o.device, 0, 1, 1, 16, 1};
  SHOW(cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &set, context));
  size_t nodes = 0;
  SHOW(cuGraphGetNodes(graph, nullptr, &nodes));
  CUgraphNodeType type;
  SHOW(cuGraphNodeGetType(empty, &type));
  CUgraph copy;
  SHOW(cuGraphClone(&copy, graph));
  SHOW(cuGraphDestroy(copy));
  SHOW(cuGraphDestroy(graph));
}

CASE(capture) {
  Objects o;
  SHOW(cuStreamBeginCapture(o.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus status{};
  SHOW(cuStreamIsCapturing(o.stream, &status));
  printf("status %d\n", status);
  SHOW(cuMemsetD8Async(o.device, 1, 64, o.stream));
  SHOW(cuStreamGetCaptureInfo(o.stream, &status, nullptr, nullptr, nullptr, nullptr, nullptr));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(o.stream, &graph));
  printf("graph %d\n", graph != nullptr);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  SHOW(cuThreadExchangeStreamCaptureMode(&mode));
}

CASE(stream_memory_operations) {
  Objects o;
  const auto address = reinterpret_cast<CUdeviceptr>(o.pinned);
  SHOW(cuStreamWriteValue32(o.stream, address, 5, 0));
  SHOW(cuStreamWaitValue32(o.stream, address, 5, CU_STREAM_WAIT_VALUE_EQ));
  CUstreamBatchMemOpParams op{};
  op.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, address, {6}, 0, 0};
  SHOW(cuStreamBatchMemOp(o.stream, 1, &op, 0));
  SHOW(cuStreamSynchronize(o.stream));
  printf("value %u\n", *static_cast<uint32_t*>(o.pinned));
}

CASE(context_calls) {
  Objects o;
  CUdevice device;
  SHOW(cuCtxGetDevice(&device));
  unsigned flags;
  SHOW(cuCtxGetFlags(&flags));
  size_t limit;
  SHOW(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  SHOW(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
  CUfunc_cache cache;
  SHOW(cuCtxGetCacheConfig(&cache));
  SHOW(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_NONE));
  int least, greatest;
  SHOW(cuCtxGetStreamPriorityRange(&least, &greatest));
  unsigned version;
  SHOW(cuCtxGetApiVersion(nullptr, &version));
  unsigned long long id;
  SHOW(cuCtxGetId(nullptr, &id));
  CUcontext popped;
  SHOW(cuCtxPopCurrent(&popped));
  SHOW(cuCtxSetCurrent(nullptr));
  SHOW(cuCtxResetPersistingL2Cache());
  SHOW(cuCtxDisablePeerAccess(nullptr));
}

CASE(linking) {
  Objects o;
  CUlinkState link = nullptr;
  SHOW(cuLinkCreate(0, nullptr, nullptr, &link));
  if (link == nullptr) return;
  auto ptx = read_beside("kernels.ptx");
  SHOW(cuLinkAddData(link, CU_JIT_INPUT_PTX, ptx.data(), ptx.size(), "k", 0, nullptr, nullptr));
  void* image;
  size_t size;
  SHOW(cuLinkComplete(link, &image, &size));
  SHOW(cuLinkDestroy(link));
}

CASE(handles_for_other_programs) {
  Gpu gpu;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0, imported = 0;
  CU(cuMemCreate(&handle, 2 << 20, &prop, 0));
  DeviceArray<char> plain(4096);
  CUcontext popped;
  CU(cuCtxPopCurrent(&popped));
  int fd = -1;
  SHOW(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  SHOW(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  SHOW(cuMemRelease(imported));
  SHOW(cuMemRelease(handle));
  CUipcMemHandle ipc;
  SHOW(cuIpcGetMemHandle(&ipc, plain.pointer));
  CU(cuCtxSetCurrent(gpu.context));
}
