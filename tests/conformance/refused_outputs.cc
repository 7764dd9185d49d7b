// What a call that refuses leaves in the variables that it was to fill: nothing, a null, or
// something else. Programs that retry, or that look at the handle instead of the code, see it.
#include <cstring>

#include "tests/conformance/case.h"

namespace {

// A variable filled with a pattern before the call, and what became of it.
template <typename T>
struct Output {
  // NOLINTNEXTLINE(bugprone-sizeof-expression): a handle's own bytes are meant
  static constexpr size_t kBytes = sizeof(T);
  T value;
  Output() { std::memset(static_cast<void*>(&value), 0x5a, kBytes); }
  T* operator&() { return &value; }
  const char* now() const {
    unsigned char bytes[kBytes], pattern[kBytes], zeros[kBytes] = {};
    std::memcpy(bytes, static_cast<const void*>(&value), kBytes);
    std::memset(pattern, 0x5a, kBytes);
    if (std::memcmp(bytes, pattern, kBytes) == 0) return "as it was";
    return std::memcmp(bytes, zeros, kBytes) == 0 ? "zero" : "changed";
  }
};

// Calls `call`, in which `out` (and `more`) are the outputs, prints its code and what they hold.
#define REFUSED(type, call)                                            \
  do {                                                                 \
    Output<type> out;                                                  \
    SHOW(call);                                                        \
    printf("  out: %s\n", out.now());                                  \
  } while (0)
#define REFUSED2(type, other, call)                                    \
  do {                                                                 \
    Output<type> out;                                                  \
    Output<other> more;                                                \
    SHOW(call);                                                        \
    printf("  out: %s, more: %s\n", out.now(), more.now());            \
  } while (0)

struct Text {
  char bytes[16];
};

void update(CUgraphExec exec, CUgraph graph) {
  Output<CUgraphExecUpdateResultInfo> out;
  SHOW(cuGraphExecUpdate(exec, graph, &out));
  printf("  result %d, %s, %s\n", out.value.result, out.value.errorNode == nullptr ? "null" : "not null",
         out.value.errorFromNode == nullptr ? "null" : "not null");
}

constexpr size_t kTooMuch = size_t{1} << 50;

}  // namespace

CASE(allocations) {
  Gpu gpu;
  REFUSED(CUdeviceptr, cuMemAlloc(&out, 0));
  REFUSED(CUdeviceptr, cuMemAlloc(&out, kTooMuch));
  REFUSED2(CUdeviceptr, size_t, cuMemAllocPitch(&out, &more, 0, 4, 4));
  REFUSED2(CUdeviceptr, size_t, cuMemAllocPitch(&out, &more, 64, 4, 3));
  REFUSED2(CUdeviceptr, size_t, cuMemAllocPitch(&out, &more, size_t{1} << 30, size_t{1} << 20, 4));
  REFUSED(void*, cuMemAllocHost(&out, 0));
  REFUSED(void*, cuMemAllocHost(&out, kTooMuch));
  REFUSED(void*, cuMemHostAlloc(&out, 4096, 0x80));
  REFUSED(void*, cuMemHostAlloc(&out, kTooMuch, 0));
  REFUSED(CUdeviceptr, cuMemAllocManaged(&out, 0, CU_MEM_ATTACH_GLOBAL));
  REFUSED(CUdeviceptr, cuMemAllocManaged(&out, 4096, 0));
  REFUSED(CUdeviceptr, cuMemAllocManaged(&out, 4096, CU_MEM_ATTACH_SINGLE));
  REFUSED(CUdeviceptr, cuMemAllocAsync(&out, 0, nullptr));
  REFUSED(CUdeviceptr, cuMemAllocAsync(&out, kTooMuch, nullptr));
  CUmemoryPool pool;
  CU(cuDeviceGetDefaultMemPool(&pool, gpu.device));
  REFUSED(CUdeviceptr, cuMemAllocFromPoolAsync(&out, 0, pool, nullptr));
  REFUSED(CUdeviceptr, cuMemAllocFromPoolAsync(&out, kTooMuch, pool, nullptr));
}

CASE(memory_queries) {
  Gpu gpu;
  uint64_t mine = 0;
  const auto pageable = reinterpret_cast<CUdeviceptr>(&mine);
  REFUSED2(CUdeviceptr, size_t, cuMemGetAddressRange(&out, &more, 0));
  REFUSED2(CUdeviceptr, size_t, cuMemGetAddressRange(&out, &more, pageable));
  REFUSED(CUdeviceptr, cuMemHostGetDevicePointer(&out, &mine, 0));
  REFUSED(CUdeviceptr, cuMemHostGetDevicePointer(&out, nullptr, 0));
  REFUSED(unsigned, cuMemHostGetFlags(&out, &mine));
  REFUSED(CUmemorytype, cuPointerGetAttribute(&out, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pageable));
  REFUSED(CUcontext, cuPointerGetAttribute(&out, CU_POINTER_ATTRIBUTE_CONTEXT, pageable));
  REFUSED(CUdeviceptr, cuPointerGetAttribute(&out, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pageable));
  REFUSED(int, cuPointerGetAttribute(&out, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pageable));
  REFUSED(int, cuPointerGetAttribute(&out, static_cast<CUpointer_attribute>(999), pageable));
  REFUSED(CUipcMemHandle, cuIpcGetMemHandle(&out, 0));
  REFUSED(CUipcMemHandle, cuIpcGetMemHandle(&out, pageable));
  CUipcMemHandle nothing = {};
  REFUSED(CUdeviceptr, cuIpcOpenMemHandle(&out, nothing, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  REFUSED(CUdeviceptr, cuIpcOpenMemHandle(&out, nothing, 0));
  REFUSED(int, cuMemRangeGetAttribute(&out, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, pageable, 8));
}

CASE(virtual_memory) {
  Gpu gpu;
  REFUSED(CUdeviceptr, cuMemAddressReserve(&out, 0, 0, 0, 0));
  REFUSED(CUdeviceptr, cuMemAddressReserve(&out, 4096, 0, 0, 0));
  REFUSED(CUdeviceptr, cuMemAddressReserve(&out, size_t{2} << 20, 0, 0, 1));
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE, properties.location.id = gpu.device;
  REFUSED(CUmemGenericAllocationHandle, cuMemCreate(&out, 0, &properties, 0));
  REFUSED(CUmemGenericAllocationHandle, cuMemCreate(&out, 4096, &properties, 0));
  REFUSED(CUmemGenericAllocationHandle, cuMemCreate(&out, size_t{2} << 20, &properties, 1));
  REFUSED(CUmemGenericAllocationHandle, cuMemCreate(&out, kTooMuch, &properties, 0));
  REFUSED(CUmemGenericAllocationHandle, cuMemRetainAllocationHandle(&out, nullptr));
  REFUSED(int, cuMemExportToShareableHandle(&out, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  REFUSED(CUmemAllocationProp, cuMemGetAllocationPropertiesFromHandle(&out, 0));
  properties.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  REFUSED(CUmemGenericAllocationHandle, cuMemCreate(&out, size_t{2} << 20, &properties, 0));
  REFUSED(size_t,
          cuMemGetAllocationGranularity(&out, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUmemLocation here{};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE, here.id = gpu.device;
  REFUSED(unsigned long long, cuMemGetAccess(&out, &here, 0));
}

CASE(code) {
  Gpu gpu;
  REFUSED(CUmodule, cuModuleLoad(&out, "there-is-no-such-file"));
  REFUSED(CUmodule, cuModuleLoadData(&out, "this is no image"));
  REFUSED(CUmodule, cuModuleLoadDataEx(&out, ".version 8.0\n.target sm_70\nnonsense\n", 0, nullptr, nullptr));
  REFUSED(CUlibrary, cuLibraryLoadFromFile(&out, "there-is-no-such-file", nullptr, nullptr, 0, nullptr, nullptr, 0));
  REFUSED(CUlibrary, cuLibraryLoadData(&out, "this is no image", nullptr, nullptr, 0, nullptr, nullptr, 0));
  Module module("kernels.fatbin");
  REFUSED(CUfunction, cuModuleGetFunction(&out, module.handle, "no_such_kernel"));
  REFUSED(CUfunction, cuModuleGetFunction(&out, module.handle, ""));
  REFUSED2(CUdeviceptr, size_t, cuModuleGetGlobal(&out, &more, module.handle, "no_such_variable"));
  REFUSED2(CUdeviceptr, size_t, cuModuleGetGlobal(&out, &more, module.handle, ""));
  REFUSED(CUtexref, cuModuleGetTexRef(&out, module.handle, "no_such_texture"));
  REFUSED(CUsurfref, cuModuleGetSurfRef(&out, module.handle, "no_such_surface"));
  CUfunction fill = module.function("fill");
  REFUSED(int, cuFuncGetAttribute(&out, static_cast<CUfunction_attribute>(999), fill));
  REFUSED(int, cuFuncGetAttribute(&out, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr));
  REFUSED2(size_t, size_t, cuFuncGetParamInfo(fill, 99, &out, &more));
  REFUSED(CUmodule, cuFuncGetModule(&out, nullptr));
}

CASE(libraries) {
  Gpu gpu;
  const std::string path = beside_executable("kernels.fatbin");
  CUlibrary library;
  CU(cuLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  REFUSED(CUkernel, cuLibraryGetKernel(&out, library, "no_such_kernel"));
  REFUSED(CUkernel, cuLibraryGetKernel(&out, library, ""));
  REFUSED2(CUdeviceptr, size_t, cuLibraryGetGlobal(&out, &more, library, "no_such_variable"));
  REFUSED2(CUdeviceptr, size_t, cuLibraryGetManaged(&out, &more, library, "no_such_variable"));
  REFUSED(void*, cuLibraryGetUnifiedFunction(&out, library, "no_such_function"));
  CUkernel fill;
  CU(cuLibraryGetKernel(&fill, library, "fill"));
  REFUSED(int, cuKernelGetAttribute(&out, static_cast<CUfunction_attribute>(999), fill, gpu.device));
  REFUSED(int, cuKernelGetAttribute(&out, CU_FUNC_ATTRIBUTE_NUM_REGS, fill, 99));
  REFUSED2(size_t, size_t, cuKernelGetParamInfo(fill, 99, &out, &more));
  CU(cuLibraryUnload(library));
}

CASE(streams_and_events) {
  Gpu gpu;
  REFUSED(CUstream, cuStreamCreate(&out, 0x80));
  REFUSED(CUstream, cuStreamCreateWithPriority(&out, 0x80, 0));
  REFUSED(CUevent, cuEventCreate(&out, 0x80));
  REFUSED(CUevent, cuEventCreate(&out, CU_EVENT_INTERPROCESS));
  CUevent begin, end, untimed;
  CU(cuEventCreate(&begin, 0));
  CU(cuEventCreate(&end, 0));
  CU(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  REFUSED(float, cuEventElapsedTime(&out, begin, end));
  REFUSED(float, cuEventElapsedTime(&out, begin, untimed));
  REFUSED(CUipcEventHandle, cuIpcGetEventHandle(&out, begin));
  CUipcEventHandle nothing = {};
  REFUSED(CUevent, cuIpcOpenEventHandle(&out, nothing));
  REFUSED(CUgraph, cuStreamEndCapture(nullptr, &out));
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  REFUSED(CUgraph, cuStreamEndCapture(stream, &out));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuEventRecord(untimed, stream));
  SHOW(cuStreamSynchronize(stream));
  REFUSED(CUgraph, cuStreamEndCapture(stream, &out));
  REFUSED(CUstreamAttrValue, cuStreamGetAttribute(stream, static_cast<CUstreamAttrID>(99), &out));
  CU(cuStreamDestroy(stream));
  for (CUevent event : {begin, end, untimed}) CU(cuEventDestroy(event));
}

CASE(graphs) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUgraph graph;
  REFUSED(CUgraph, cuGraphCreate(&out, 1));
  CU(cuGraphCreate(&graph, 0));
  REFUSED(CUgraphNode, cuGraphAddEmptyNode(&out, graph, nullptr, 1));
  REFUSED(CUgraphNode, cuGraphAddKernelNode(&out, graph, nullptr, 0, nullptr));
  CUDA_MEMSET_NODE_PARAMS memset = {};
  REFUSED(CUgraphNode, cuGraphAddMemsetNode(&out, graph, nullptr, 0, &memset, gpu.context));
  CUDA_MEMCPY3D copy = {};
  REFUSED(CUgraphNode, cuGraphAddMemcpyNode(&out, graph, nullptr, 0, &copy, gpu.context));
  CUDA_HOST_NODE_PARAMS host = {};
  REFUSED(CUgraphNode, cuGraphAddHostNode(&out, graph, nullptr, 0, &host));
  REFUSED(CUgraphNode, cuGraphAddChildGraphNode(&out, graph, nullptr, 0, nullptr));
  REFUSED(CUgraphExec, cuGraphInstantiateWithFlags(&out, graph, 0x1000));
  REFUSED(CUgraphExec, cuGraphInstantiateWithFlags(&out, nullptr, 0));
  REFUSED(CUgraph, cuGraphClone(&out, nullptr));
  CUgraphNode empty;
  CU(cuGraphAddEmptyNode(&empty, graph, nullptr, 0));
  CUgraph clone;
  CU(cuGraphCreate(&clone, 0));
  REFUSED(CUgraphNode, cuGraphNodeFindInClone(&out, empty, clone));
  REFUSED(CUDA_MEMSET_NODE_PARAMS, cuGraphMemsetNodeGetParams(empty, &out));
  REFUSED(CUgraph, cuGraphChildGraphNodeGetGraph(empty, &out));
  REFUSED(CUevent, cuGraphEventRecordNodeGetEvent(empty, &out));
  REFUSED(size_t, cuGraphGetNodes(nullptr, nullptr, &out));
  REFUSED(CUuserObject, cuUserObjectCreate(&out, nullptr, nullptr, 1, 0));
  CUgraphExec exec;
  CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  update(exec, nullptr);
  update(nullptr, graph);
  REFUSED(unsigned, cuGraphNodeGetEnabled(exec, empty, &out));
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(clone));
  CU(cuGraphDestroy(graph));
}

CASE(contexts_and_devices) {
  CU(cuInit(0));
  REFUSED(CUdevice, cuDeviceGet(&out, -1));
  REFUSED(CUdevice, cuDeviceGet(&out, 99));
  REFUSED(CUdevice, cuDeviceGetByPCIBusId(&out, "0000:ff:1f.7"));
  REFUSED(int, cuDeviceGetAttribute(&out, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99));
  REFUSED(int, cuDeviceGetAttribute(&out, static_cast<CUdevice_attribute>(9999), 0));
  REFUSED(size_t, cuDeviceTotalMem(&out, 99));
  REFUSED(CUuuid, cuDeviceGetUuid(&out, 99));
  REFUSED(CUcontext, cuDevicePrimaryCtxRetain(&out, 99));
  REFUSED2(unsigned, int, cuDevicePrimaryCtxGetState(99, &out, &more));
  REFUSED(CUcontext, cuCtxCreate_v2(&out, 0x1000, 0));
  REFUSED(CUcontext, cuCtxCreate_v2(&out, 0, 99));
  REFUSED(CUdevice, cuCtxGetDevice(&out));
  REFUSED(size_t, cuCtxGetLimit(&out, CU_LIMIT_STACK_SIZE));
  REFUSED(unsigned, cuCtxGetFlags(&out));
  REFUSED(unsigned long long, cuCtxGetId(nullptr, &out));
  REFUSED(unsigned, cuCtxGetApiVersion(nullptr, &out));
  REFUSED2(size_t, size_t, cuMemGetInfo(&out, &more));
  REFUSED2(int, int, cuCtxGetStreamPriorityRange(&out, &more));
  REFUSED(CUdeviceptr, cuMemAlloc(&out, 4096));
  REFUSED(CUevent, cuEventCreate(&out, 0));
  REFUSED(CUmodule, cuModuleLoadData(&out, "this is no image"));
  REFUSED(CUmemoryPool, cuDeviceGetDefaultMemPool(&out, 99));
  REFUSED(int, cuDeviceCanAccessPeer(&out, 0, 99));
  REFUSED(size_t, cuCtxGetLimit(&out, static_cast<CUlimit>(999)));
  Gpu gpu;
  REFUSED(size_t, cuCtxGetLimit(&out, static_cast<CUlimit>(999)));
  REFUSED(CUcontext, cuCtxAttach(&out, 1));
}

CASE(arrays_and_textures) {
  Gpu gpu;
  CUDA_ARRAY_DESCRIPTOR none = {};
  REFUSED(CUarray, cuArrayCreate(&out, &none));
  CUDA_ARRAY3D_DESCRIPTOR none3 = {};
  REFUSED(CUarray, cuArray3DCreate(&out, &none3));
  REFUSED(CUmipmappedArray, cuMipmappedArrayCreate(&out, &none3, 1));
  CUDA_RESOURCE_DESC resource = {};
  CUDA_TEXTURE_DESC texture = {};
  REFUSED(CUtexObject, cuTexObjectCreate(&out, &resource, &texture, nullptr));
  REFUSED(CUsurfObject, cuSurfObjectCreate(&out, &resource));
  REFUSED(CUDA_RESOURCE_DESC, cuTexObjectGetResourceDesc(&out, 0));
  CUDA_ARRAY_DESCRIPTOR small = {16, 16, CU_AD_FORMAT_FLOAT, 1};
  CUarray array;
  CU(cuArrayCreate(&array, &small));
  REFUSED(CUarray, cuArrayGetPlane(&out, array, 1));
  CU(cuArrayDestroy(array));
}

CASE(pools) {
  Gpu gpu;
  CUmemPoolProps properties = {};
  REFUSED(CUmemoryPool, cuMemPoolCreate(&out, &properties));
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE, properties.location.id = 99;
  REFUSED(CUmemoryPool, cuMemPoolCreate(&out, &properties));
  CUmemoryPool pool;
  CU(cuDeviceGetDefaultMemPool(&pool, gpu.device));
  REFUSED(int, cuMemPoolExportToShareableHandle(&out, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  REFUSED(cuuint64_t, cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(99), &out));
  CUdeviceptr ordinary;
  CU(cuMemAlloc(&ordinary, 4096));
  REFUSED(CUmemPoolPtrExportData, cuMemPoolExportPointer(&out, ordinary));
  CU(cuMemFree(ordinary));
  REFUSED(CUmemAccess_flags, cuMemPoolGetAccess(&out, pool, nullptr));
}

CASE(occupancy) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction fill = module.function("fill");
  REFUSED(int, cuOccupancyMaxActiveBlocksPerMultiprocessor(&out, fill, 0, 0));
  REFUSED(int, cuOccupancyMaxActiveBlocksPerMultiprocessor(&out, fill, 1 << 20, 0));
  REFUSED(int, cuOccupancyMaxActiveBlocksPerMultiprocessor(&out, nullptr, 32, 0));
  REFUSED(size_t, cuOccupancyAvailableDynamicSMemPerBlock(&out, fill, 0, 0));
  REFUSED(size_t, cuOccupancyAvailableDynamicSMemPerBlock(&out, fill, 1, 1 << 20));
  REFUSED2(int, int, cuOccupancyMaxPotentialBlockSize(&out, &more, nullptr, nullptr, 0, 0));
}

namespace {

// Those that write although nothing is there to do it with.
void call_early() {
  uint64_t mine = 0;
  REFUSED(CUdeviceptr, cuMemAlloc(&out, 4096));
  REFUSED2(CUdeviceptr, size_t, cuMemAllocPitch(&out, &more, 64, 4, 4));
  REFUSED(void*, cuMemAllocHost(&out, 4096));
  REFUSED(void*, cuMemHostAlloc(&out, 4096, 0));
  REFUSED(CUdeviceptr, cuMemAllocManaged(&out, 4096, CU_MEM_ATTACH_GLOBAL));
  REFUSED(CUdeviceptr, cuMemAllocAsync(&out, 4096, nullptr));
  REFUSED(CUdeviceptr, cuMemAllocFromPoolAsync(&out, 4096, nullptr, nullptr));
  REFUSED2(CUdeviceptr, size_t, cuMemGetAddressRange(&out, &more, reinterpret_cast<CUdeviceptr>(&mine)));
  REFUSED(CUdeviceptr, cuMemHostGetDevicePointer(&out, &mine, 0));
  REFUSED2(size_t, size_t, cuMemGetInfo(&out, &more));
  REFUSED(CUfunction, cuModuleGetFunction(&out, nullptr, "fill"));
  REFUSED2(CUdeviceptr, size_t, cuModuleGetGlobal(&out, &more, nullptr, "value"));
  REFUSED(CUipcEventHandle, cuIpcGetEventHandle(&out, nullptr));
  REFUSED(CUgraph, cuStreamEndCapture(nullptr, &out));
  REFUSED(CUgraphNode, cuGraphNodeFindInClone(&out, nullptr, nullptr));
  update(nullptr, nullptr);
  REFUSED(CUcontext, cuDevicePrimaryCtxRetain(&out, 99));
  REFUSED(CUmodule, cuModuleLoad(&out, "there-is-no-such-file"));
  REFUSED(CUgraph, cuGraphCreate(&out, 1));
  REFUSED(CUarray, cuArrayCreate(&out, nullptr));
}

}  // namespace

CASE(before_init) {
  REFUSED(size_t, cuDeviceTotalMem(&out, 0));
  REFUSED(int, cuDeviceGetCount(&out));
  call_early();
}

CASE(without_a_context) {
  CU(cuInit(0));
  REFUSED(size_t, cuDeviceTotalMem(&out, -1));
  call_early();
}

CASE(more_of_devices) {
  Gpu gpu;
  REFUSED(int, cuDeviceGetP2PAttribute(&out, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
  REFUSED(int, cuDeviceGetP2PAttribute(&out, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 99));
  REFUSED(char, cuDeviceGetName(&out, 1, 99));
  REFUSED(Text, cuDeviceGetPCIBusId(out.value.bytes, 16, 99));
  REFUSED(CUmemoryPool, cuDeviceGetMemPool(&out, 99));
  REFUSED(size_t, cuDeviceGetTexture1DLinearMaxWidth(&out, CU_AD_FORMAT_FLOAT, 3, 0));
  REFUSED(size_t, cuMemGetAllocationGranularity(&out, nullptr, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  REFUSED(CUcontext, cuCtxCreate_v4(&out, nullptr, 0x1000, 0));
  REFUSED(CUdevResource, cuDeviceGetDevResource(99, &out, CU_DEV_RESOURCE_TYPE_SM));
  REFUSED(CUdevResource, cuDeviceGetDevResource(0, &out, CU_DEV_RESOURCE_TYPE_INVALID));
  REFUSED(CUdevResourceDesc, cuDevResourceGenerateDesc(&out, nullptr, 0));
  REFUSED(CUgreenCtx, cuGreenCtxCreate(&out, nullptr, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  REFUSED(CUcontext, cuCtxFromGreenCtx(&out, nullptr));
}

CASE(more_of_streams) {
  Gpu gpu;
  REFUSED(CUstreamCaptureStatus, cuStreamIsCapturing(nullptr, &out));
  REFUSED2(CUstreamCaptureStatus, cuuint64_t, cuStreamGetCaptureInfo(nullptr, &out, &more, nullptr, nullptr, nullptr, nullptr));
  CUstream stream, other;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  REFUSED2(CUstreamCaptureStatus, cuuint64_t, cuStreamGetCaptureInfo(stream, &out, &more, nullptr, nullptr, nullptr, nullptr));
  CUevent fork;
  CU(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuEventRecord(fork, stream));
  CU(cuStreamWaitEvent(other, fork, 0));
  REFUSED(CUgraph, cuStreamEndCapture(other, &out));
  REFUSED(CUgraph, cuStreamEndCapture(stream, &out));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuEventRecord(fork, stream));
  CU(cuStreamWaitEvent(other, fork, 0));
  REFUSED(CUgraph, cuStreamEndCapture(stream, &out));
  REFUSED(CUdeviceptr, cuMemAllocAsync(&out, 0, stream));
  CU(cuEventDestroy(fork));
  CU(cuStreamDestroy(stream));
  CU(cuStreamDestroy(other));
}

CASE(more_of_graphs) {
  Gpu gpu;
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode empty;
  CU(cuGraphAddEmptyNode(&empty, graph, nullptr, 0));
  REFUSED(CUgraphNodeType, cuGraphNodeGetType(nullptr, &out));
  REFUSED(CUDA_KERNEL_NODE_PARAMS, cuGraphKernelNodeGetParams(empty, &out));
  REFUSED(CUDA_MEMCPY3D, cuGraphMemcpyNodeGetParams(empty, &out));
  REFUSED(CUDA_HOST_NODE_PARAMS, cuGraphHostNodeGetParams(empty, &out));
  REFUSED(CUdeviceptr, cuGraphMemFreeNodeGetParams(empty, &out));
  REFUSED(CUDA_MEM_ALLOC_NODE_PARAMS, cuGraphMemAllocNodeGetParams(empty, &out));
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
  REFUSED(CUgraphNode, cuGraphAddMemAllocNode(&out, graph, nullptr, 0, &allocation));
  printf("  address: %s\n", allocation.dptr == 0 ? "zero" : "set");
  REFUSED(CUgraphNode, cuGraphAddMemFreeNode(&out, graph, nullptr, 0, 0));
  REFUSED(CUgraphNode, cuGraphAddEventRecordNode(&out, graph, nullptr, 0, nullptr));
  REFUSED(CUgraphNode, cuGraphAddNode_v2(&out, graph, nullptr, nullptr, 0, nullptr));
  CUgraphNode list[2] = {};
  REFUSED(size_t, cuGraphNodeGetDependencies(nullptr, list, nullptr, &out));
  REFUSED(size_t, cuGraphGetRootNodes(nullptr, list, &out));
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {};
  parameters.flags = 0x1000;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): the handle itself is filled
  std::memset(&parameters.hErrNode_out, 0x5a, sizeof parameters.hErrNode_out);
  parameters.result_out = static_cast<CUgraphInstantiateResult>(77);
  REFUSED(CUgraphExec, cuGraphInstantiateWithParams(&out, graph, &parameters));
  printf("  result %d, %s\n", parameters.result_out, parameters.hErrNode_out == nullptr ? "null" : "not null");
  REFUSED(cuuint64_t, cuGraphExecGetFlags(nullptr, &out));
  CU(cuGraphDestroy(graph));
}

CASE(more_of_code) {
  Gpu gpu;
  REFUSED(CUfunction, cuKernelGetFunction(&out, nullptr));
  REFUSED(CUlibrary, cuKernelGetLibrary(&out, nullptr));
  REFUSED(const char*, cuKernelGetName(&out, nullptr));
  REFUSED(const char*, cuFuncGetName(&out, nullptr));
  REFUSED(CUmodule, cuLibraryGetModule(&out, nullptr));
  REFUSED(unsigned, cuLibraryGetKernelCount(&out, nullptr));
  REFUSED(unsigned, cuModuleGetFunctionCount(&out, nullptr));
}

CASE(more_of_memory) {
  Gpu gpu;
  CUmemoryPool pool;
  CU(cuDeviceGetDefaultMemPool(&pool, gpu.device));
  CUmemPoolPtrExportData nothing = {};
  REFUSED(CUdeviceptr, cuMemPoolImportPointer(&out, pool, &nothing));
  REFUSED(CUmemoryPool, cuMemPoolImportFromShareableHandle(&out, nullptr, CU_MEM_HANDLE_TYPE_NONE, 0));
  REFUSED(CUmemGenericAllocationHandle, cuMemImportFromShareableHandle(&out, nullptr, CU_MEM_HANDLE_TYPE_NONE));
  REFUSED(int, cuMemGetHandleForAddressRange(&out, 0, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {};
  REFUSED(CUexternalMemory, cuImportExternalMemory(&out, &description));
  REFUSED(CUDA_ARRAY_DESCRIPTOR, cuArrayGetDescriptor(&out, nullptr));
  REFUSED(CUDA_ARRAY3D_DESCRIPTOR, cuArray3DGetDescriptor(&out, nullptr));
  REFUSED(CUarray, cuMipmappedArrayGetLevel(&out, nullptr, 0));
  REFUSED(CUDA_TEXTURE_DESC, cuTexObjectGetTextureDesc(&out, 0));
  REFUSED(CUDA_RESOURCE_DESC, cuSurfObjectGetResourceDesc(&out, 0));
}
