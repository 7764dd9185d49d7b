// The _ptsz and _ptds forms: by them stream 0 means the calling thread's own stream. Each is called
// by its exported name, and does what the plain form does on CU_STREAM_PER_THREAD.
//
// The other way to see which stream was meant: the legacy stream is held at a gate, and work in the
// thread's stream waits for it while work in a non-blocking stream does not; so the gate is put
// into another thread's own stream, which neither of them waits for.
#include "tests/conformance/gate.h"

#include <thread>

CASES_HOLD_STREAMS;

// The transcripts hold a call whose text has braces around a number.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wbraced-scalar-init"
#endif

namespace {

// A thread's own stream is the same by both ways: an event recorded by the form comes after work
// put there by name, and only then.
struct Own {
  Gpu gpu;
  Gate gate;
  DeviceArray<uint32_t> data{64};
  CUstream free_running = nullptr;
  Own() {
    CU(cuMemsetD32(data.pointer, 0, 64));
    CU(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
    CU(cuCtxSynchronize());
  }
  // Puts the gate before work that `form` makes with stream 0, and says whether the work waited for
  // it.
  template <typename Form>
  void waits(const char* name, Form form) {
    *gate.word = 0;
    gate.stop(CU_STREAM_PER_THREAD);
    const CUresult result = form();
    const CUresult own = cuStreamQuery(CU_STREAM_PER_THREAD);
    CU(cuStreamSynchronize(free_running));
    gate.open();
    const CUresult after = cuStreamSynchronize(CU_STREAM_PER_THREAD);
    printf("%s: %s, then %s, at last %s\n", name, code_name(result), code_name(own), code_name(after));
  }
  uint32_t value(size_t index) { return data.read()[index]; }
};

}  // namespace

#define WAITS(own, call) (own).waits(#call, [&] { return call; })

CASE(memsets_async) {
  Own own;
  const CUdeviceptr p = own.data.pointer;
  WAITS(own, cuMemsetD8Async_ptsz(p, 1, 4, nullptr));
  WAITS(own, cuMemsetD16Async_ptsz(p + 4, 2, 2, nullptr));
  WAITS(own, cuMemsetD32Async_ptsz(p + 8, 3, 1, nullptr));
  WAITS(own, cuMemsetD2D8Async_ptsz(p + 16, 16, 4, 4, 1, nullptr));
  WAITS(own, cuMemsetD2D16Async_ptsz(p + 32, 16, 5, 2, 1, nullptr));
  WAITS(own, cuMemsetD2D32Async_ptsz(p + 48, 16, 6, 1, 1, nullptr));
  print_hash("memory", own.data.read());
}

CASE(memsets) {
  Own own;
  const CUdeviceptr p = own.data.pointer;
  SHOW(cuMemsetD8_v2_ptds(p, 1, 4));
  SHOW(cuMemsetD16_v2_ptds(p + 4, 2, 2));
  SHOW(cuMemsetD32_v2_ptds(p + 8, 3, 1));
  SHOW(cuMemsetD2D8_v2_ptds(p + 16, 16, 4, 4, 1));
  SHOW(cuMemsetD2D16_v2_ptds(p + 32, 16, 5, 2, 1));
  SHOW(cuMemsetD2D32_v2_ptds(p + 48, 16, 6, 1, 1));
  CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  print_hash("memory", own.data.read());
}

CASE(copies_async) {
  Own own;
  const CUdeviceptr p = own.data.pointer;
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 64, 0));
  memset(memory, 9, 64);
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  CUcontext context = own.gpu.context;
  WAITS(own, cuMemcpyAsync_ptsz(p, address, 16, nullptr));
  WAITS(own, cuMemcpyHtoDAsync_v2_ptsz(p + 16, memory, 16, nullptr));
  WAITS(own, cuMemcpyDtoHAsync_v2_ptsz(static_cast<char*>(memory) + 32, p, 16, nullptr));
  WAITS(own, cuMemcpyDtoDAsync_v2_ptsz(p + 32, p, 16, nullptr));
  WAITS(own, cuMemcpyPeerAsync_ptsz(p + 48, context, p, context, 16, nullptr));
  print_hash("memory", own.data.read());
  CU(cuMemFreeHost(memory));
}

CASE(copies) {
  Own own;
  const CUdeviceptr p = own.data.pointer;
  char host[64];
  memset(host, 7, sizeof(host));
  SHOW(cuMemcpy_ptds(p, reinterpret_cast<CUdeviceptr>(host), 16));
  SHOW(cuMemcpyHtoD_v2_ptds(p + 16, host, 16));
  SHOW(cuMemcpyDtoD_v2_ptds(p + 32, p, 16));
  SHOW(cuMemcpyPeer_ptds(p + 48, own.gpu.context, p, own.gpu.context, 16));
  SHOW(cuMemcpyDtoH_v2_ptds(host, p + 48, 16));
  printf("%d\n", host[3]);
  print_hash("memory", own.data.read());
}

CASE(synchronous_forms_do_not_wait_for_another_threads_stream) {
  Own own;
  std::thread([&] {
    CU(cuCtxSetCurrent(own.gpu.context));
    own.gate.stop(CU_STREAM_PER_THREAD);
  }).join();
  uint32_t value = 5;
  SHOW(cuMemcpyHtoD_v2_ptds(own.data.pointer, &value, 4));
  value = 0;
  SHOW(cuMemcpyDtoH_v2_ptds(&value, own.data.pointer, 4));
  printf("%u\n", value);
  SHOW(cuStreamQuery_ptsz(nullptr));
  SHOW(cuStreamSynchronize_ptsz(nullptr));
  own.gate.open();
}

static CUDA_MEMCPY2D rectangle(CUdeviceptr from, CUdeviceptr to) {
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from, copy.srcPitch = 16;
  copy.dstDevice = to, copy.dstPitch = 16;
  copy.WidthInBytes = 8, copy.Height = 2;
  return copy;
}

CASE(rectangle_copies) {
  Own own;
  CU(cuMemsetD32(own.data.pointer, 0x01020304, 8));
  CUDA_MEMCPY2D copy = rectangle(own.data.pointer, own.data.pointer + 64);
  SHOW(cuMemcpy2D_v2_ptds(&copy));
  copy.dstDevice += 32;
  SHOW(cuMemcpy2DUnaligned_v2_ptds(&copy));
  copy.dstDevice += 32;
  WAITS(own, cuMemcpy2DAsync_v2_ptsz(&copy, nullptr));
  print_hash("memory", own.data.read());
}

CASE(box_copies) {
  Own own;
  CU(cuMemsetD32(own.data.pointer, 0x01020304, 16));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = own.data.pointer, copy.srcPitch = 8, copy.srcHeight = 2;
  copy.dstDevice = own.data.pointer + 64, copy.dstPitch = 8, copy.dstHeight = 2;
  copy.WidthInBytes = 5, copy.Height = 2, copy.Depth = 2;
  SHOW(cuMemcpy3D_v2_ptds(&copy));
  copy.dstDevice += 32;
  WAITS(own, cuMemcpy3DAsync_v2_ptsz(&copy, nullptr));
  CUDA_MEMCPY3D_PEER peer = {};
  peer.srcMemoryType = peer.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  peer.srcDevice = own.data.pointer, peer.srcPitch = 8, peer.srcHeight = 2, peer.srcContext = own.gpu.context;
  peer.dstDevice = own.data.pointer + 128, peer.dstPitch = 8, peer.dstHeight = 2, peer.dstContext = own.gpu.context;
  peer.WidthInBytes = 5, peer.Height = 2, peer.Depth = 2;
  SHOW(cuMemcpy3DPeer_ptds(&peer));
  peer.dstDevice += 32;
  WAITS(own, cuMemcpy3DPeerAsync_ptsz(&peer, nullptr));
  print_hash("memory", own.data.read());
}

CASE(launches) {
  Own own;
  Module module("kernels.fatbin");
  CUfunction fill = module.function("fill");
  uint32_t value = 40;
  int count = 8;
  void* arguments[] = {&own.data.pointer, &value, &count};
  WAITS(own, cuLaunchKernel_ptsz(fill, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
  WAITS(own, cuLaunchCooperativeKernel_ptsz(fill, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments));
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32, config.blockDimY = config.blockDimZ = 1;
  WAITS(own, cuLaunchKernelEx_ptsz(&config, fill, arguments, nullptr));
  printf("%u\n", own.value(7));
}

CASE(host_functions) {
  Own own;
  int count = 0;
  WAITS(own, cuLaunchHostFunc_ptsz(nullptr, [](void* n) { ++*static_cast<int*>(n); }, &count));
  WAITS(own, cuStreamAddCallback_ptsz(nullptr, [](CUstream, CUresult, void* n) { ++*static_cast<int*>(n); }, &count, 0));
  printf("%d\n", count);
}

CASE(events) {
  Own own;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  WAITS(own, cuEventRecord_ptsz(event, nullptr));
  own.waits("cuEventQuery after cuEventRecord_ptsz", [&] {
    CU(cuEventRecord_ptsz(event, nullptr));
    return cuEventQuery(event);
  });
  own.waits("cuEventQuery after cuEventRecordWithFlags_ptsz", [&] {
    CU(cuEventRecordWithFlags_ptsz(event, nullptr, 0));
    return cuEventQuery(event);
  });
  WAITS(own, cuStreamWaitEvent_ptsz(nullptr, event, 0));
}

CASE(questions) {
  Own own;
  unsigned long long by_form = 0, by_name = 1;
  SHOW(cuStreamGetId_ptsz(nullptr, &by_form));
  CU(cuStreamGetId(CU_STREAM_PER_THREAD, &by_name));
  printf("same id: %s\n", by_form == by_name ? "yes" : "no");
  unsigned flags = 99;
  SHOW(cuStreamGetFlags_ptsz(nullptr, &flags));
  printf("%u\n", flags);
  int priority = 99;
  SHOW(cuStreamGetPriority_ptsz(nullptr, &priority));
  printf("%d\n", priority);
  CUcontext context = nullptr;
  SHOW(cuStreamGetCtx_ptsz(nullptr, &context));
  printf("%s\n", context == own.gpu.context ? "same" : "another");
  CUdevice device = -1;
  SHOW(cuStreamGetDevice_ptsz(nullptr, &device));
  printf("%d\n", device);
  CUgreenCtx green = nullptr;
  context = nullptr;
  SHOW(cuStreamGetCtx_v2_ptsz(nullptr, &context, &green));
  printf("%s, green %s\n", context == own.gpu.context ? "same" : "another", green == nullptr ? "null" : "set");
}

CASE(query_and_synchronise) {
  Own own;
  own.gate.stop(CU_STREAM_PER_THREAD);
  SHOW(cuStreamQuery_ptsz(nullptr));
  own.gate.open();
  SHOW(cuStreamSynchronize_ptsz(nullptr));
  SHOW(cuStreamQuery_ptsz(nullptr));
}

CASE(attributes) {
  Own own;
  CUstreamAttrValue value = {};
  value.syncPolicy = CU_SYNC_POLICY_YIELD;
  SHOW(cuStreamSetAttribute_ptsz(nullptr, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  value = {};
  SHOW(cuStreamGetAttribute_ptsz(nullptr, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  printf("%d\n", static_cast<int>(value.syncPolicy));
  value = {};
  SHOW(cuStreamGetAttribute(CU_STREAM_PER_THREAD, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  printf("%d\n", static_cast<int>(value.syncPolicy));
  SHOW(cuStreamCopyAttributes_ptsz(own.free_running, nullptr));
  value = {};
  SHOW(cuStreamGetAttribute(own.free_running, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  printf("%d\n", static_cast<int>(value.syncPolicy));
}

CASE(stream_memory_operations) {
  Own own;
  const CUdeviceptr p = own.data.pointer;
  WAITS(own, cuStreamWriteValue32_v2_ptsz(nullptr, p, 5, 0));
  WAITS(own, cuStreamWriteValue64_v2_ptsz(nullptr, p + 8, 6, 0));
  WAITS(own, cuStreamWaitValue32_v2_ptsz(nullptr, p, 5, CU_STREAM_WAIT_VALUE_EQ));
  WAITS(own, cuStreamWaitValue64_v2_ptsz(nullptr, p + 8, 6, CU_STREAM_WAIT_VALUE_EQ));
  CUstreamBatchMemOpParams op = {};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = p + 16;
  op.writeValue.value = 7;
  WAITS(own, cuStreamBatchMemOp_v2_ptsz(nullptr, 1, &op, 0));
  printf("%u %u %u\n", own.value(0), own.value(2), own.value(4));
}

CASE(stream_memory_operations_first_versions) {
  Own own;
  const CUdeviceptr p = own.data.pointer;
  SHOW(cuStreamWriteValue32_ptsz(nullptr, p, 5, 0));
  SHOW(cuStreamWriteValue64_ptsz(nullptr, p + 8, 6, 0));
  SHOW(cuStreamWaitValue32_ptsz(nullptr, p, 0, 0));
  SHOW(cuStreamWaitValue64_ptsz(nullptr, p + 8, 0, 0));
  CUstreamBatchMemOpParams op = {};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = p + 16;
  SHOW(cuStreamBatchMemOp_ptsz(nullptr, 1, &op, 0));
  SHOW(cuCtxSynchronize());
}

CASE(pools) {
  Own own;
  CUdeviceptr memory = 0;
  WAITS(own, cuMemAllocAsync_ptsz(&memory, 4096, nullptr));
  WAITS(own, cuMemFreeAsync_ptsz(memory, nullptr));
  CUmemoryPool pool = nullptr;
  CU(cuDeviceGetDefaultMemPool(&pool, 0));
  WAITS(own, cuMemAllocFromPoolAsync_ptsz(&memory, 4096, pool, nullptr));
  SHOW(cuMemFreeAsync_ptsz(memory, nullptr));
  SHOW(cuCtxSynchronize());
}

CASE(capture) {
  Own own;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  SHOW(cuStreamBeginCapture_v2_ptsz(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuStreamIsCapturing_ptsz(nullptr, &status));
  printf("%d\n", static_cast<int>(status));
  CU(cuStreamIsCapturing(CU_STREAM_PER_THREAD, &status));
  printf("%d\n", static_cast<int>(status));
  SHOW(cuMemsetD32Async_ptsz(own.data.pointer, 8, 8, nullptr));
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 99;
  SHOW(cuStreamGetCaptureInfo_v2_ptsz(nullptr, &status, &id, &graph, &nodes, &count));
  printf("%d %zu\n", static_cast<int>(status), count);
  SHOW(cuStreamGetCaptureInfo_v3_ptsz(nullptr, &status, &id, &graph, &nodes, &edges, &count));
  printf("%d %zu\n", static_cast<int>(status), count);
  SHOW(cuStreamGetCaptureInfo_ptsz(nullptr, &status, &id));
  SHOW(cuStreamUpdateCaptureDependencies_v2_ptsz(nullptr, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  SHOW(cuStreamUpdateCaptureDependencies_ptsz(nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  CUgraph captured = nullptr;
  SHOW(cuStreamEndCapture_ptsz(nullptr, &captured));
  SHOW(cuGraphGetNodes(captured, nullptr, &count));
  printf("%zu\n", count);
  SHOW(cuGraphDestroy(captured));
}

CASE(capture_first_version_and_into_a_graph) {
  Own own;
  SHOW(cuStreamBeginCapture_ptsz(nullptr));
  SHOW(cuMemsetD32Async_ptsz(own.data.pointer, 8, 8, nullptr));
  CUgraph captured = nullptr;
  SHOW(cuStreamEndCapture_ptsz(nullptr, &captured));
  CU(cuGraphDestroy(captured));
  CUgraph graph = nullptr;
  CU(cuGraphCreate(&graph, 0));
  SHOW(cuStreamBeginCaptureToGraph_ptsz(nullptr, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuMemsetD32Async_ptsz(own.data.pointer, 8, 8, nullptr));
  SHOW(cuStreamEndCapture_ptsz(nullptr, &captured));
  printf("%s\n", captured == graph ? "same graph" : "another");
  CU(cuGraphDestroy(graph));
}

CASE(graphs) {
  Own own;
  CUgraph graph = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS memset_node = {};
  memset_node.dst = own.data.pointer;
  memset_node.value = 77;
  memset_node.elementSize = 4;
  memset_node.width = 8;
  memset_node.height = 1;
  CUgraphNode node = nullptr;
  CU(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &memset_node, own.gpu.context));
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
  SHOW(cuGraphInstantiateWithParams_ptsz(&exec, graph, &params));
  printf("%d\n", static_cast<int>(params.result_out));
  SHOW(cuGraphUpload_ptsz(exec, nullptr));
  WAITS(own, cuGraphLaunch_ptsz(exec, nullptr));
  printf("%u\n", own.value(7));
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

CASE(managed_memory_calls_on_other_memory) {
  Own own;
  SHOW(cuStreamAttachMemAsync_ptsz(nullptr, own.data.pointer, 0, CU_MEM_ATTACH_SINGLE));
  SHOW(cuMemPrefetchAsync_v2_ptsz(0, 0, CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, 0, nullptr));
}

CASE(array_copies_bad_arguments) {
  Own own;
  char host[16] = {};
  SHOW(cuMemcpyAtoH_v2_ptds(host, nullptr, 0, 16));
  SHOW(cuMemcpyHtoA_v2_ptds(nullptr, 0, host, 16));
  SHOW(cuMemcpyAtoD_v2_ptds(own.data.pointer, nullptr, 0, 16));
  SHOW(cuMemcpyDtoA_v2_ptds(nullptr, 0, own.data.pointer, 16));
  SHOW(cuMemcpyAtoA_v2_ptds(nullptr, 0, nullptr, 0, 16));
  SHOW(cuMemcpyAtoHAsync_v2_ptsz(host, nullptr, 0, 16, nullptr));
  SHOW(cuMemcpyHtoAAsync_v2_ptsz(nullptr, 0, host, 16, nullptr));
}

CASE(batches_bad_arguments) {
  Own own;
  SHOW(cuMemcpyBatchAsync_v2_ptsz(nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0, own.free_running));
  SHOW(cuMemcpy3DBatchAsync_v2_ptsz(0, nullptr, 0, own.free_running));
  SHOW(cuMemPrefetchBatchAsync_ptsz(nullptr, nullptr, 0, nullptr, nullptr, 0, 0, own.free_running));
  SHOW(cuMemDiscardBatchAsync_ptsz(nullptr, nullptr, 0, 0, own.free_running));
  SHOW(cuMemDiscardAndPrefetchBatchAsync_ptsz(nullptr, nullptr, 0, nullptr, nullptr, 0, 0, own.free_running));
  SHOW(cuMemBatchDecompressAsync_ptsz(nullptr, 0, 0, nullptr, own.free_running));
  SHOW(cuMemMapArrayAsync_ptsz(nullptr, 0, nullptr));
  SHOW(cuSignalExternalSemaphoresAsync_ptsz(nullptr, nullptr, 0, nullptr));
  SHOW(cuWaitExternalSemaphoresAsync_ptsz(nullptr, nullptr, 0, nullptr));
}
