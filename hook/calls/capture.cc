// The capture calls. Which streams take part is kept in objects/capture.h; the proxy's stream
// captures in relaxed mode.
#include <algorithm>
#include <cstring>

#include "hook/calls/capture_info.h"
#include "hook/objects/id_list.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {

namespace {

constexpr size_t kMaxDependencies = 2048;  // of one capture into a graph: what a record holds

bool is_plain(const CUgraphEdgeData& edge) {
  constexpr CUgraphEdgeData kPlain{};
  return std::memcmp(&edge, &kPlain, sizeof kPlain) == 0;
}

}  // namespace

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = begin_checks(stream, mode); r != CUDA_SUCCESS) return r;
  Capture* capture = begin_capture(stream, mode, nullptr);
  if (capture == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result;
  {
    Request<wire::cuStreamBeginCapture_v2> r(stream);
    r->hStream = stream->id;
    r->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    result = r.call();
  }
  if (result != CUDA_SUCCESS) dissolve(capture);
  return result;
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = begin_checks(stream, mode); r != CUDA_SUCCESS) return r;
  uint64_t graph = 0;
  if (hGraph == nullptr || id_of(Kind::kGraph, hGraph, &graph) != CUDA_SUCCESS)
    return CUDA_ERROR_INVALID_VALUE;
  if (numDependencies != 0 && dependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (numDependencies > kMaxDependencies) return CUDA_ERROR_NOT_SUPPORTED;
  IdList nodes;
  if (nodes.fill(Kind::kGraphNode, dependencies, numDependencies) != CUDA_SUCCESS)
    return CUDA_ERROR_INVALID_VALUE;
  const auto node_bytes = static_cast<uint32_t>(numDependencies * 8);
  const auto edge_bytes = dependencyData == nullptr
                              ? 0u
                              : static_cast<uint32_t>(numDependencies * sizeof(CUgraphEdgeData));
  Capture* capture = begin_capture(stream, mode, hGraph);
  if (capture == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result;
  {
    Request<wire::tubeBeginCaptureToGraph> r(stream, blob_room(node_bytes) + blob_room(edge_bytes));
    r->stream = stream->id;
    r->graph = graph;
    if (node_bytes != 0)
      r.put(&wire::tubeBeginCaptureToGraph::dependencies, nodes.data(), node_bytes);
    if (edge_bytes != 0) r.put(&wire::tubeBeginCaptureToGraph::edges, dependencyData, edge_bytes);
    result = r.call();
  }
  if (result != CUDA_SUCCESS) dissolve(capture);
  return result;
}
CUresult cuStreamBeginCapture(CUstream hStream) {
  return hook::cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  Capture* capture = stream->capture.load(std::memory_order_acquire);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  // A capture into the program's own graph ends with that graph, which stays the program's whatever
  // the outcome. Without a place for the handle of a new one the capture ends all the same.
  const bool own_graph = capture->graph != nullptr;
  if (capture->origin != stream) {
    capture->invalid.store(true, std::memory_order_release);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  // By the wrong thread it ends too, and nothing comes of it.
  const bool wrong_thread =
      capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &this_thread();
  bool nobody_knows_it = phGraph == nullptr && !own_graph;
  void* handle = capture->graph;
  uint64_t graph = 0;
  if (own_graph) {
    if (id_of(Kind::kGraph, handle, &graph) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  } else if (handle = capture->told.load(std::memory_order_acquire);
             handle == nullptr || id_of(Kind::kGraph, handle, &graph) != CUDA_SUCCESS) {
    graph = new_id(Kind::kGraph, &handle);
    if (graph == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    nobody_knows_it = false;  // cuStreamGetCaptureInfo told the program
  }
  const bool invalid = capture->invalid.load(std::memory_order_acquire);
  CUresult result;
  {
    Request<wire::cuStreamEndCapture> r(stream);
    r->hStream = stream->id;
    r->phGraph = graph;
    result = r.call();
  }
  dissolve(capture);
  const bool in_vain = invalid || wrong_thread;
  if (result == CUDA_SUCCESS && ((in_vain && !own_graph) || nobody_knows_it)) {
    Request<wire::cuGraphDestroy> r;
    r->hGraph = graph;
    (void)r.post();
  }
  if (in_vain) {
    result =
        invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  if (result != CUDA_SUCCESS) {
    if (!own_graph) drop(Kind::kGraph, graph);
    return result;
  }
  if (nobody_knows_it) drop(Kind::kGraph, graph);
  if (phGraph != nullptr) *phGraph = static_cast<CUgraph>(handle);
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  if (captureStatus == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream_in(current_context(), hStream, &error);
  if (stream == nullptr) return error;
  if (const Capture* capture = stream->capture.load(std::memory_order_acquire)) {
    *captureStatus = capture->invalid.load(std::memory_order_acquire)
                         ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  }
  return legacy_would_wait(stream, false) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Thread& thread =
      this_thread();  // a mode that is none is taken too; here it counts as thread-local
  const CUstreamCaptureMode before = thread.capture_mode;
  thread.capture_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

// Only the proxy knows graph_out and dependencies; a caller that asks for them pays a round trip.
CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out,
                                   size_t* numDependencies_out) {
  if (captureStatus_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = hook::cuStreamIsCapturing(hStream, captureStatus_out); r != CUDA_SUCCESS)
    return r;
  if (*captureStatus_out != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    return CUDA_SUCCESS;
  }
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  const Capture* capture = stream->capture.load(std::memory_order_acquire);
  if (capture == nullptr) return CUDA_SUCCESS;
  if (id_out != nullptr) *id_out = capture->id.load(std::memory_order_relaxed);
  if (graph_out == nullptr && dependencies_out == nullptr && numDependencies_out == nullptr)
    return CUDA_SUCCESS;
  return capture_graph_info(stream, graph_out, dependencies_out, edgeData_out, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out,
                                   size_t* numDependencies_out) {
  return hook::cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out,
                                         dependencies_out, nullptr, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                cuuint64_t* id_out) {
  if (id_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return hook::cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, nullptr, nullptr,
                                         nullptr, nullptr);
}

CUresult capture_graph_info(Stream* stream, CUgraph* graph_out,
                            const CUgraphNode** dependencies_out, const CUgraphEdgeData** edges_out,
                            size_t* count_out) {
  // The driver keeps these arrays in the stream until its next operation; here they belong to the
  // calling thread.
  thread_local constinit CUgraphNode t_nodes[256] = {};
  thread_local constinit CUgraphEdgeData t_edges[256] = {};
  wire::tubeCaptureInfo_reply reply{};
  ReplyBlobs blobs;
  CUresult result;
  {
    Request<wire::tubeCaptureInfo> r(stream);
    r->stream = stream->id;
    result = r.call(&reply, &blobs);
  }
  if (result != CUDA_SUCCESS) return result;
  if (graph_out != nullptr) {
    *graph_out = static_cast<CUgraph>(adopt(Kind::kGraph, reply.graph));
    Capture* capture = stream->capture.load(std::memory_order_acquire);
    if (capture != nullptr && capture->graph == nullptr)
      capture->told.store(*graph_out, std::memory_order_release);
  }
  const auto nodes = blobs.get(reply.dependencies);
  const size_t count = nodes.size() / 8;
  if (count > 256) return CUDA_ERROR_NOT_SUPPORTED;
  for (size_t i = 0; i < count; ++i) {
    t_nodes[i] = static_cast<CUgraphNode>(adopt(Kind::kGraphNode, wire::blob_u64(nodes, i)));
  }
  const auto edges = blobs.get(reply.edges);
  std::memset(t_edges, 0, count * sizeof t_edges[0]);
  if (edges.size() == count * sizeof t_edges[0]) std::memcpy(t_edges, edges.data(), edges.size());
  if (dependencies_out != nullptr && edges_out == nullptr &&
      !std::all_of(t_edges, t_edges + count, is_plain))
    return CUDA_ERROR_LOSSY_QUERY;
  if (dependencies_out != nullptr) *dependencies_out = t_nodes;
  if (edges_out != nullptr) *edges_out = t_edges;
  if (count_out != nullptr) *count_out = count;
  return CUDA_SUCCESS;
}

}  // namespace tube::hook
