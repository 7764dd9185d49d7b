// What a session knows of its graphs when a call that ends one is refused, or names what lies
// inside of one.
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

class GraphObjects : public SessionTest {
 protected:
  static constexpr uint64_t kStream = make_id(5, 1), kGraph = make_id(1, 1), kChild = make_id(2, 1);
  static constexpr size_t kNodes = 2048;
  static inline const auto kCaptured = reinterpret_cast<CUgraph>(0x700);
  static inline const auto kInside = reinterpret_cast<CUgraph>(0x710);
  static inline const auto kNode = reinterpret_cast<CUgraphNode>(0x720);
  static inline const auto kChildNode = reinterpret_cast<CUgraphNode>(0x730);
  static constexpr auto kCopy = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
  static constexpr auto kMove = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  static inline bool capturing = false;
  static inline int destroyed = 0;

  GraphObjects() {
    capturing = false;
    destroyed = 0;
    driver.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
      *status = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
      return CUDA_SUCCESS;
    };
    driver.cuStreamBeginCapture_v2 = [](CUstream, CUstreamCaptureMode) {
      return capturing = true, CUDA_SUCCESS;
    };
    driver.cuStreamGetCaptureInfo_v3 =
        [](CUstream, CUstreamCaptureStatus* status, cuuint64_t* number, CUgraph* graph,
           const CUgraphNode** nodes, const CUgraphEdgeData** edges, size_t* count) {
          *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
          if (number != nullptr) *number = 7;
          if (graph != nullptr) *graph = kCaptured;
          if (nodes != nullptr) *nodes = &kNode;
          if (edges != nullptr) *edges = nullptr;
          if (count != nullptr) *count = 1;
          return CUDA_SUCCESS;
        };
    driver.cuStreamEndCapture = [](CUstream, CUgraph* graph) {
      return capturing = false, *graph = kCaptured, CUDA_SUCCESS;
    };
    driver.cuGraphDestroy = [](CUgraph) { return ++destroyed, CUDA_SUCCESS; };
    driver.cuGraphDestroyNode = [](CUgraphNode) { return CUDA_SUCCESS; };
  }
  CUresult destroy(uint64_t node) {
    wire::cuGraphDestroyNode call_it{};
    call_it.hNode = node;
    wire::cuGraphDestroyNode::Reply none{};
    return call(call_it, &none);
  }
};

// The driver's next graph of another client may have the same handles.
TEST_F(GraphObjects, ARefusedEndOfACaptureLeavesNoNames) {
  wire::tubeStreamCreate stream{};
  stream.stream = kStream;
  post(stream);
  wire::cuStreamBeginCapture_v2 begin{};
  begin.hStream = kStream;
  wire::cuStreamBeginCapture_v2::Reply began{};
  ASSERT_EQ(call(begin, &began), CUDA_SUCCESS);
  wire::tubeCaptureInfo info{};
  info.stream = kStream;
  wire::tubeCaptureInfo_reply told{};
  ASSERT_EQ(call(info, &told), CUDA_SUCCESS);
  ASSERT_EQ(session->objects().count(Kind::kGraph), 1u);
  ASSERT_EQ(session->objects().count(Kind::kGraphNode), 1u);
  const uint64_t node = session->objects().ids(Kind::kGraphNode).at(0);
  wire::cuStreamEndCapture end{};
  end.hStream = kStream;
  end.phGraph = 0;  // no id
  wire::cuStreamEndCapture::Reply ended{};
  EXPECT_EQ(call(end, &ended), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(session->objects().count(Kind::kGraph), 0u);
  EXPECT_EQ(session->objects().count(Kind::kGraphNode), 0u);
  EXPECT_EQ(destroy(node), CUDA_ERROR_INVALID_VALUE);
}

// A node inside a child graph goes with it, whoever named it.
TEST_F(GraphObjects, AnErrorsNodeEndsWithTheGraphThatItLiesIn) {
  driver.cuGraphCreate = [](CUgraph* graph, unsigned int) {
    return *graph = kCaptured, CUDA_SUCCESS;
  };
  driver.cuGraphGetNodes = [](CUgraph graph, CUgraphNode* nodes, size_t* count) {
    if (nodes != nullptr) *nodes = graph == kInside ? kNode : kChildNode;
    return *count = 1, CUDA_SUCCESS;
  };
  driver.cuGraphNodeGetType = [](CUgraphNode node, CUgraphNodeType* type) {
    *type = node == kChildNode ? CU_GRAPH_NODE_TYPE_GRAPH : CU_GRAPH_NODE_TYPE_KERNEL;
    return CUDA_SUCCESS;
  };
  driver.cuGraphChildGraphNodeGetGraph = [](CUgraphNode, CUgraph* graph) {
    return *graph = kInside, CUDA_SUCCESS;
  };
  driver.cuGraphInstantiateWithParams = [](CUgraphExec*, CUgraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
    return params->hErrNode_out = kNode, CUDA_ERROR_NOT_SUPPORTED;
  };
  wire::cuGraphCreate create{};
  create.phGraph = kGraph;
  post(create);
  wire::tubeGraphInstantiate instantiate{};
  instantiate.graph = kGraph;
  instantiate.exec = make_id(1, 1);
  wire::tubeGraphInstantiate_reply told{};
  ASSERT_EQ(call(instantiate, &told), CUDA_SUCCESS);
  ASSERT_NE(told.error_node, 0u);
  const uint64_t outer =
      session->objects().adopted(Kind::kGraphNode, reinterpret_cast<uint64_t>(kChildNode));
  EXPECT_EQ(destroy(outer), CUDA_SUCCESS);
  EXPECT_EQ(destroy(told.error_node), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(session->objects().count(Kind::kGraphNode), 0u);
}

// Graphs of kNodes nodes, and what the driver copies of them.
class CopiedGraphs : public GraphObjects {
 protected:
  CopiedGraphs() {
    next = 0x1000;
    driver.cuGraphCreate = [](CUgraph* graph, unsigned int) {
      return *graph = reinterpret_cast<CUgraph>(next += 16), CUDA_SUCCESS;
    };
    driver.cuGraphClone = [](CUgraph* graph, CUgraph) {
      return *graph = reinterpret_cast<CUgraph>(next += 16), CUDA_SUCCESS;
    };
    driver.cuGraphInstantiateWithParams = [](CUgraphExec* exec, CUgraph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS*) {
      return *exec = reinterpret_cast<CUgraphExec>(next += 16), CUDA_SUCCESS;
    };
    driver.cuGraphAddNode_v2 = [](CUgraphNode* node, CUgraph, const CUgraphNode*,
                                  const CUgraphEdgeData*, size_t, CUgraphNodeParams*) {
      return *node = reinterpret_cast<CUgraphNode>(next += 16), CUDA_SUCCESS;
    };
    driver.cuGraphGetNodes = [](CUgraph, CUgraphNode* nodes, size_t* count) {
      if (nodes != nullptr) std::fill_n(nodes, kNodes, kNode);
      return *count = kNodes, CUDA_SUCCESS;
    };
    driver.cuGraphNodeGetType = [](CUgraphNode, CUgraphNodeType* type) {
      return *type = CU_GRAPH_NODE_TYPE_KERNEL, CUDA_SUCCESS;
    };
    driver.cuGraphExecDestroy = [](CUgraphExec) { return CUDA_SUCCESS; };
    make(kGraph);
    make(kChild);
  }
  void make(uint64_t graph) {
    wire::cuGraphCreate call_it{};
    call_it.phGraph = graph;
    post(call_it);
    EXPECT_EQ(async_error(), 0u);
  }
  CUresult instantiate(uint32_t index) {
    wire::tubeGraphInstantiate make{};
    make.graph = kGraph;
    make.exec = make_id(index, 1);
    wire::tubeGraphInstantiate_reply reply{};
    return call(make, &reply);
  }
  CUresult clone(uint32_t index) {
    wire::cuGraphClone make{};
    make.originalGraph = kGraph;
    make.phGraphClone = make_id(index, 1);
    wire::cuGraphClone::Reply reply{};
    return call(make, &reply);
  }
  CUresult put_inside(uint64_t child, uint64_t parent, CUgraphChildGraphNodeOwnership how,
                      uint64_t* node) {
    const wire::GraphChildParams params{child, static_cast<uint32_t>(how), 0};
    wire::tubeGraphNode add{};
    add.op = wire::GraphEdit::kAdd;
    add.type = CU_GRAPH_NODE_TYPE_GRAPH;
    add.graph = parent;
    const auto record = with(add, &wire::tubeGraphNode::params,
                             std::string(reinterpret_cast<const char*>(&params), sizeof params));
    const CUresult error = call(record);
    wire::tubeGraphNode_reply reply{};
    std::memcpy(static_cast<void*>(&reply), client_segment.reply_payload(0),
                wire::tubeGraphNode_reply::kFixedBytes);
    if (node != nullptr) *node = reply.node;
    return error;
  }

  static inline uint64_t next = 0;
};

TEST_F(CopiedGraphs, TheirNodesAreBounded) {
  constexpr uint32_t kMost = limits::kCopiedNodes / kNodes;
  for (uint32_t i = 1; i <= kMost - 2; ++i) ASSERT_EQ(instantiate(i), CUDA_SUCCESS) << i;
  uint64_t node = 0;
  ASSERT_EQ(put_inside(kChild, kGraph, kCopy, &node), CUDA_SUCCESS);
  ASSERT_EQ(clone(3), CUDA_SUCCESS);
  EXPECT_EQ(instantiate(kMost), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(put_inside(kChild, kGraph, kCopy, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(clone(4), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(destroy(node), CUDA_SUCCESS);
  EXPECT_EQ(instantiate(kMost), CUDA_SUCCESS);
  EXPECT_EQ(instantiate(kMost + 1), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(CopiedGraphs, NoneMovesIntoItself) {
  ASSERT_EQ(put_inside(kChild, kGraph, kMove, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(put_inside(kGraph, kGraph, kMove, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(put_inside(kGraph, kChild, kMove, nullptr), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace tube::proxy
