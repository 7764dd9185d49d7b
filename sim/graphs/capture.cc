// Stream capture. Every stream of a capture carries its own tail (the nodes its next node depends
// on); events carry tails from one stream to another. Errors invalidate the capture; the stream
// stays capturing until cuStreamEndCapture.
#include "sim/graphs/capture.h"

#include <algorithm>

#include "sim/graphs/graph.h"

namespace tube::sim {
namespace {

CUresult invalidate(Capture& capture, CUresult error) {
  if (capture.invalid == CUDA_SUCCESS) capture.invalid = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  return error;
}

void leave(Stream* stream) {
  if (!stream->capture) return;
  std::erase(stream->capture->streams, stream);
  stream->capture = nullptr;
  stream->capture_tail.clear();
}

void add_to(std::vector<Edge>& tail, const Edge& edge) {
  for (const Edge& e : tail)
    if (e.node == edge.node) return;
  tail.push_back(edge);
}

bool legacy_would_depend(const State& s, const Context* context) {
  for (auto& capture : s.captures)
    for (Stream* stream : capture->streams)
      if (stream->context == context && stream->blocking()) return true;
  return false;
}

// Ends the capture for everybody.
void finish(State& s, const CapturePtr& capture) {
  for (Stream* stream : std::vector<Stream*>(capture->streams)) leave(stream);
  if (s.live.count(capture->graph) != 0)  // a conditional node's graph may be gone with its owner
    for (auto& node : capture->graph->nodes) node->to_be_joined = false;
  std::erase(s.captures, capture);
}

// Whether the origin's tail depends on everything that streams captured. Nodes that the program
// added itself do not count.
bool all_joined(const State& s, const Capture& capture) {
  if (s.live.count(capture.graph) == 0) return true;
  std::vector<const Node*> stack;
  for (const Edge& e : capture.origin->capture_tail) stack.push_back(e.node);
  std::unordered_map<const Node*, bool> reached;
  while (!stack.empty()) {
    const Node* n = stack.back();
    stack.pop_back();
    if (reached[n]) continue;
    reached[n] = true;
    for (const Edge& e : n->in) stack.push_back(e.node);
  }
  for (auto& node : capture.graph->nodes)
    if (node->to_be_joined && !reached[node.get()]) return false;
  return true;
}

CUresult begin(Context* context, CUstream handle, CUstreamCaptureMode mode, Graph* graph,
               std::vector<Edge> tail) {
  State& s = state();
  Lock lock(s.mutex);
  Stream* stream = nullptr;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = resolve_stream(lock, context, handle, &stream)) return r;
  if (stream == stream->context->legacy_stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = s.new_id();
  capture->own_graph = graph == nullptr;
  capture->graph = graph == nullptr ? make_graph(s) : graph;
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = thread().id;
  capture->streams.push_back(stream);
  stream->capture = capture;
  stream->capture_tail = std::move(tail);
  s.captures.push_back(capture);
  return CUDA_SUCCESS;
}

CUresult info(Context* context, CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
              CUgraph* graph, const CUgraphNode** dependencies, const CUgraphEdgeData** edges,
              size_t* count) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  Stream* stream = nullptr;
  if (CUresult r = look_at_stream(lock, context, handle, &stream)) return r;
  // A query about the legacy stream is refused but does not invalidate the captures it would depend
  // on.
  if (stream == stream->context->legacy_stream && legacy_would_depend(s, stream->context))
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  Capture* capture = stream->capture.get();
  *status = capture == nullptr                 ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->invalid == CUDA_SUCCESS ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                               : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(capture->graph);
  // The arrays stay valid until the stream's next call, as documented.
  stream->capture_nodes.clear();
  stream->capture_edges.clear();
  for (const Edge& e : stream->capture_tail) {
    stream->capture_nodes.push_back(reinterpret_cast<CUgraphNode>(e.node));
    stream->capture_edges.push_back(e.data);
    if (dependencies != nullptr && edges == nullptr && !is_plain(e.data))
      return CUDA_ERROR_LOSSY_QUERY;
  }
  if (dependencies != nullptr) *dependencies = stream->capture_nodes.data();
  if (edges != nullptr) *edges = stream->capture_edges.data();
  if (count != nullptr) *count = stream->capture_tail.size();
  return CUDA_SUCCESS;
}

CUresult update(Context* context, CUstream handle, CUgraphNode* dependencies,
                const CUgraphEdgeData* edges, size_t count, unsigned flags) {
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count > 0 && dependencies == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, handle, &stream)) return r;
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture->invalid != CUDA_SUCCESS) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<Edge> tail;
  if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES) tail = stream->capture_tail;
  for (size_t i = 0; i < count; ++i) {
    Node* node = live_node(s, dependencies[i]);
    if (node == nullptr || node->graph != stream->capture->graph) return CUDA_ERROR_INVALID_VALUE;
    add_to(tail, {node, edges == nullptr ? CUgraphEdgeData{} : edges[i]});
  }
  for (const Edge& e : stream->capture_tail) {
    const bool kept = std::any_of(tail.begin(), tail.end(),
                                  [&e](const Edge& other) { return other.node == e.node; });
    // What the program takes out need not be joined, as documented; it may have destroyed the node,
    // too.
    if (!kept && s.live.count(e.node) != 0) e.node->to_be_joined = false;
  }
  stream->capture_tail = std::move(tail);
  return CUDA_SUCCESS;
}

CUresult end(Context* context, CUstream handle, CUgraph* out) {
  State& s = state();
  Lock lock(s.mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, handle, &stream)) return r;
  CapturePtr capture = stream->capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  CUresult result = CUDA_SUCCESS;
  // The wrong thread's call ends the capture all the same.
  if (capture->origin != stream && capture->invalid == CUDA_SUCCESS)
    result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  else if (capture->invalid != CUDA_SUCCESS) result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread().id)
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  else if (!all_joined(s, *capture)) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  if (result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED) return invalidate(*capture, result);
  finish(s, capture);
  if (out != nullptr)
    *out = result == CUDA_SUCCESS ? reinterpret_cast<CUgraph>(capture->graph) : nullptr;
  if (result != CUDA_SUCCESS && capture->own_graph) destroy_graph(s, capture->graph);
  return result;
}

}  // namespace

CUresult capture_work(Lock&, Stream* stream, Work work) {
  Capture& capture = *stream->capture;
  if (capture.invalid != CUDA_SUCCESS) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::erase_if(stream->capture_tail, [](const Edge& e) {
    return !state().live.contains(e.node);
  });  // the program destroyed it
  Node* node =
      append_node(state(), capture.graph, stream->context, std::move(work), stream->capture_tail);
  // A stream that joins the node joins what is before it.
  for (const Edge& e : stream->capture_tail) e.node->to_be_joined = false;
  node->to_be_joined = true;
  stream->capture_tail = {{node, {}}};
  return CUDA_SUCCESS;
}

CUresult capture_event(Stream* stream, Event* event, const CUgraphEdgeData* edge) {
  if (stream->capture->invalid != CUDA_SUCCESS) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event->capture = stream->capture;
  event->capture_deps = stream->capture_tail;
  for (Edge& e : event->capture_deps)
    if (edge != nullptr) e.data = *edge;
  event->fence = nullptr;
  return CUDA_SUCCESS;
}

CUresult capture_wait(State& s, Stream* stream, Event* event) {
  CapturePtr capture = event->capture;
  bool active = std::find(s.captures.begin(), s.captures.end(), capture) != s.captures.end();
  if (!active) return CUDA_ERROR_INVALID_VALUE;  // that capture has ended
  if (capture->invalid != CUDA_SUCCESS) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream == stream->context->legacy_stream)
    return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (stream->capture && stream->capture != capture) {
    invalidate(*stream->capture, CUDA_SUCCESS);
    return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (!stream->capture) {
    stream->capture = capture;
    capture->streams.push_back(stream);
  }
  for (const Edge& e : event->capture_deps) add_to(stream->capture_tail, e);
  return CUDA_SUCCESS;
}

void forget_capture(State& s, Stream* stream) {
  CapturePtr capture = stream->capture;
  if (!capture) return;
  if (capture->origin != stream) return leave(stream);
  finish(s, capture);
  if (capture->own_graph) destroy_graph(s, capture->graph);
}

CUresult check_legacy_capture(State& s, Context* context) {
  CUresult result = CUDA_SUCCESS;
  for (auto& capture : s.captures)
    for (Stream* stream : capture->streams)
      if (stream->context == context && stream->blocking())
        result = invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  return result;
}

CUresult check_capture_valid(const Stream* stream) {
  return stream->capture && stream->capture->invalid != CUDA_SUCCESS
             ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
             : CUDA_SUCCESS;
}

CUresult refuse_in_capture(Stream* stream, CUresult error) {
  return stream->capture ? invalidate(*stream->capture, error) : error;
}

CUresult check_not_capturing(Stream* stream) {
  if (stream->capture) return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  if (stream == stream->context->legacy_stream)
    return check_legacy_capture(state(), stream->context);
  return CUDA_SUCCESS;
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuStreamBeginCapture(CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return begin(context, hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {});
}
SIM_API CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  SIM_ENTER_STREAM(context, hStream);
  return begin(context, hStream, mode, nullptr, {});
}

SIM_API CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                             const CUgraphNode* dependencies,
                                             const CUgraphEdgeData*, size_t numDependencies,
                                             CUstreamCaptureMode mode) {
  SIM_ENTER_STREAM(context, hStream);
  Graph* graph = nullptr;
  std::vector<Edge> tail;
  {
    State& s = state();
    Lock lock(s.mutex);
    graph = live_graph(s, hGraph);
    if (graph == nullptr || (numDependencies > 0 && dependencies == nullptr))
      return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numDependencies; ++i) {
      Node* node = live_node(s, dependencies[i]);
      if (node == nullptr || node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
      tail.push_back({node, {}});
    }
  }
  return begin(context, hStream, mode, graph, std::move(tail));
}

SIM_API CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  zero(phGraph);
  SIM_ENTER_STREAM(context, hStream);
  return end(context, hStream, phGraph);
}

SIM_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SIM_ENTER(kInit);
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, thread().capture_mode);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  SIM_ENTER_STREAM(context, hStream);
  return info(context, hStream, captureStatus, nullptr, nullptr, nullptr, nullptr, nullptr);
}
SIM_API CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                        cuuint64_t* id_out) {
  SIM_ENTER_STREAM(context, hStream);
  return info(context, hStream, captureStatus_out, id_out, nullptr, nullptr, nullptr, nullptr);
}
SIM_API CUresult cuStreamGetCaptureInfo_v2(CUstream hStream,
                                           CUstreamCaptureStatus* captureStatus_out,
                                           cuuint64_t* id_out, CUgraph* graph_out,
                                           const CUgraphNode** dependencies_out,
                                           size_t* numDependencies_out) {
  SIM_ENTER_STREAM(context, hStream);
  return info(context, hStream, captureStatus_out, id_out, graph_out, dependencies_out, nullptr,
              numDependencies_out);
}
SIM_API CUresult cuStreamGetCaptureInfo_v3(CUstream hStream,
                                           CUstreamCaptureStatus* captureStatus_out,
                                           cuuint64_t* id_out, CUgraph* graph_out,
                                           const CUgraphNode** dependencies_out,
                                           const CUgraphEdgeData** edgeData_out,
                                           size_t* numDependencies_out) {
  SIM_ENTER_STREAM(context, hStream);
  return info(context, hStream, captureStatus_out, id_out, graph_out, dependencies_out,
              edgeData_out, numDependencies_out);
}
SIM_API CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                                   size_t numDependencies, unsigned int flags) {
  SIM_ENTER_STREAM(context, hStream);
  return update(context, hStream, dependencies, nullptr, numDependencies, flags);
}
SIM_API CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                                      const CUgraphEdgeData* dependencyData,
                                                      size_t numDependencies, unsigned int flags) {
  SIM_ENTER_STREAM(context, hStream);
  return update(context, hStream, dependencies, dependencyData, numDependencies, flags);
}
