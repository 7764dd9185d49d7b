#include "tests/unit/sim/support.h"

#include <thread>

namespace tube::sim::test {
namespace {

class GraphTest : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    load();
    CU_OK(cuMemAlloc(&p_, 64));
    CU_OK(cuMemsetD32(p_, 0, 16));
    CU_OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    CU_OK(cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
    CU_OK(cuCtxSynchronize());
  }
  CUDA_KERNEL_NODE_PARAMS add_params(unsigned* n, unsigned* k) {
    args_[0] = &p_;
    args_[1] = n;
    args_[2] = k;
    CUDA_KERNEL_NODE_PARAMS p{};
    p.func = add_;
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
    p.blockDimX = 16;
    p.kernelParams = args_;
    return p;
  }
  CUdeviceptr p_ = 0;
  CUstream stream_ = nullptr, other_ = nullptr;
  void* args_[3] = {};
};

TEST_F(GraphTest, CapturesAndReplays) {
  CU_OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU_OK(launch_add(p_, 16, 1, stream_));
  CU_OK(launch_add(p_, 16, 2, stream_));
  CUgraph graph;
  CU_OK(cuStreamEndCapture(stream_, &graph));
  EXPECT_EQ(0u, read(p_));  // nothing ran
  size_t nodes = 0;
  CU_OK(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(2u, nodes);
  CUgraphExec exec;
  CU_OK(cuGraphInstantiate(&exec, graph, 0));
  CU_OK(cuGraphDestroy(graph));
  for (int i = 0; i < 5; ++i) CU_OK(cuGraphLaunch(exec, stream_));
  CU_OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(15u, read(p_));
  CU_OK(cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, CaptureSpreadsThroughEventsAndMustJoin) {
  CUevent fork, join;
  CU_OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  CU_OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  CUgraph graph;
  for (bool joined : {false, true}) {
    CU_OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CU_OK(launch_add(p_, 1, 1, stream_));
    CU_OK(cuEventRecord(fork, stream_));
    CU_OK(cuStreamWaitEvent(other_, fork, 0));
    CU_OK(launch_add(p_, 1, 10, other_));
    CU_OK(cuEventRecord(join, other_));
    if (joined) {
      CU_OK(cuStreamWaitEvent(stream_, join, 0));
    }
    CU_IS(joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
          cuStreamEndCapture(stream_, &graph));
  }
  CUgraphExec exec;
  CU_OK(cuGraphInstantiate(&exec, graph, 0));
  CU_OK(cuGraphLaunch(exec, stream_));
  CU_OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(11u, read(p_));
}

TEST_F(GraphTest, UnsafeCallsInvalidateACapture) {
  CUgraph graph = nullptr;
  CUdeviceptr q;
  CU_OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&q, 4));
  CUstreamCaptureStatus status;
  CU_OK(cuStreamIsCapturing(stream_, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status);
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, launch_add(p_, 1, 1, stream_));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream_, &graph));
  EXPECT_EQ(nullptr, graph);
  CU_IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream_, &graph));

  CU_OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CU_OK(cuThreadExchangeStreamCaptureMode(&mode));
  CU_OK(cuMemAlloc(&q, 4));
  CU_OK(cuThreadExchangeStreamCaptureMode(&mode));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream_));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream_, &graph));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

TEST_F(GraphTest, BuildsByHandAndUpdatesNodes) {
  CUgraph graph;
  CU_OK(cuGraphCreate(&graph, 0));
  CUgraphNode clear, add, copy;
  CUDA_MEMSET_NODE_PARAMS m{p_, 0, 100, 4, 16, 1};
  CU_OK(cuGraphAddMemsetNode(&clear, graph, nullptr, 0, &m, context_));
  unsigned n = 16, k = 5;
  CUDA_KERNEL_NODE_PARAMS kp = add_params(&n, &k);
  CU_OK(cuGraphAddKernelNode(&add, graph, &clear, 1, &kp));
  k = 999;  // copied at the call
  unsigned out[16] = {};
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = p_;
  c.dstMemoryType = CU_MEMORYTYPE_HOST;
  c.dstHost = out;
  c.WidthInBytes = 64;
  c.Height = c.Depth = 1;
  CU_OK(cuGraphAddMemcpyNode(&copy, graph, &add, 1, &c, context_));
  CUgraphExec exec;
  CU_OK(cuGraphInstantiate(&exec, graph, 0));
  CU_OK(cuGraphLaunch(exec, stream_));
  CU_OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(105u, out[15]);
  k = 7;
  kp = add_params(&n, &k);
  CU_OK(cuGraphExecKernelNodeSetParams(exec, add, &kp));
  CU_OK(cuGraphLaunch(exec, stream_));
  CU_OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(107u, out[0]);
  CU_OK(cuGraphNodeSetEnabled(exec, add, 0));
  CU_OK(cuGraphLaunch(exec, stream_));
  CU_OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(100u, out[0]);
  CUDA_KERNEL_NODE_PARAMS back{};
  CU_OK(cuGraphKernelNodeGetParams(add, &back));
  EXPECT_EQ(5u, *static_cast<unsigned*>(back.kernelParams[2]));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cuGraphAddDependencies(graph, &add, &copy, nullptr, 1));  // exists
  CU_OK(cuGraphAddDependencies(graph, &copy, &clear, nullptr, 1));
  CUgraphExec cyclic;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&cyclic, graph, 0));
}

TEST_F(GraphTest, ExecUpdateTakesSameTopologyOnly) {
  unsigned n = 16, k = 1;
  CUgraph one, two;
  CUgraphNode a, b;
  CU_OK(cuGraphCreate(&one, 0));
  CU_OK(cuGraphCreate(&two, 0));
  CUDA_KERNEL_NODE_PARAMS kp = add_params(&n, &k);
  CU_OK(cuGraphAddKernelNode(&a, one, nullptr, 0, &kp));
  k = 50;
  CU_OK(cuGraphAddKernelNode(&b, two, nullptr, 0, &kp));
  CUgraphExec exec;
  CU_OK(cuGraphInstantiate(&exec, one, 0));
  CUgraphExecUpdateResultInfo info{};
  CU_OK(cuGraphExecUpdate(exec, two, &info));
  CU_OK(cuGraphLaunch(exec, stream_));
  CU_OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(50u, read(p_));
  CUgraphNode extra;
  CU_OK(cuGraphAddEmptyNode(&extra, two, &b, 1));
  CU_IS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, two, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info.result);
}

TEST_F(GraphTest, BranchesRunAtTheSameTime) {
  // One branch waits for a word that the other branch writes: a graph run as a sequence would never
  // end.
  CUgraph graph;
  CUgraphNode waits, writes;
  CU_OK(cuGraphCreate(&graph, 0));
  CUstreamBatchMemOpParams op{};
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{context_, 1, &op, 0};
  op.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, p_, {1}, CU_STREAM_WAIT_VALUE_EQ, 0};
  CU_OK(cuGraphAddBatchMemOpNode(&waits, graph, nullptr, 0, &params));
  op = {};
  op.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, p_, {1}, 0, 0};
  CU_OK(cuGraphAddBatchMemOpNode(&writes, graph, nullptr, 0, &params));
  CUgraphExec exec;
  CU_OK(cuGraphInstantiate(&exec, graph, 0));
  CU_OK(cuGraphLaunch(exec, stream_));
  CU_OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(1u, read(p_));
}

TEST_F(GraphTest, ChildGraphsAndAllocationNodes) {
  CUgraph parent, child;
  CUgraphNode node, inner;
  CU_OK(cuGraphCreate(&child, 0));
  unsigned n = 1, k = 3;
  CUDA_KERNEL_NODE_PARAMS kp = add_params(&n, &k);
  CU_OK(cuGraphAddKernelNode(&inner, child, nullptr, 0, &kp));
  CU_OK(cuGraphCreate(&parent, 0));
  CUgraphNode before = nullptr;
  for (int i = 0; i < 3; ++i) {
    CU_OK(cuGraphAddChildGraphNode(&node, parent, before == nullptr ? nullptr : &before,
                                   before == nullptr ? 0 : 1, child));
    before = node;
  }
  CU_OK(cuGraphDestroy(child));
  CUgraphExec exec;
  CU_OK(cuGraphInstantiate(&exec, parent, 0));
  CU_OK(cuGraphLaunch(exec, stream_));
  CU_OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(9u, read(p_));
  CU_OK(cuGraphExecDestroy(exec));
  CU_OK(cuGraphDestroy(parent));

  size_t free_before = 0, free_after = 0, total = 0;
  CU_OK(cuMemGetInfo(&free_before, &total));
  CU_OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr q;
  CU_OK(cuMemAllocAsync(&q, 4096, stream_));
  CU_OK(cuMemsetD32Async(q, 1, 16, stream_));
  CU_OK(cuMemFreeAsync(q, stream_));
  CU_OK(cuStreamEndCapture(stream_, &parent));
  CU_OK(cuGraphInstantiate(&exec, parent, 0));
  CU_OK(cuGraphLaunch(exec, stream_));
  CU_OK(cuGraphLaunch(exec, stream_));
  CU_OK(cuStreamSynchronize(stream_));
  CU_OK(cuGraphExecDestroy(exec));
  CU_OK(cuGraphDestroy(parent));
  CU_OK(cuMemGetInfo(&free_after, &total));
  EXPECT_EQ(free_before, free_after);
}

}  // namespace
}  // namespace tube::sim::test
