// What a session knows of its graphs when a call that ends one is refused.
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

class GraphObjects : public SessionTest {
 protected:
  static constexpr uint64_t kStream = make_id(5, 1);
  static inline const auto kCaptured = reinterpret_cast<CUgraph>(0x700);
  static inline const auto kNode = reinterpret_cast<CUgraphNode>(0x720);
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

}  // namespace
}  // namespace tube::proxy
