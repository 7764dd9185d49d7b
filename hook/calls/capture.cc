// Stream capture: the proxy's stream captures in relaxed mode; which streams take part, and the
// stricter modes, are kept here, because they are rules about the threads of this process.
//
// A capture spreads as natively: an event recorded in a capturing stream carries the capture to
// every stream that waits for it. A call that is unsafe for a capture invalidates it; ending it
// then answers 901 as the driver does.
#include <algorithm>
#include <cstring>
#include <deque>
#include <new>
#include <vector>

#include "hook/objects/capture.h"
#include "hook/objects/id_list.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {

// Never freed, for an event keeps a pointer to the capture it was recorded in; but reused, for
// programs capture step after step. Whoever holds a pointer for longer than a call holds the id
// too, which no second capture has.
struct Capture {
  std::atomic<uint64_t> id{0};
  CUstreamCaptureMode mode{};
  const Thread* thread = nullptr;
  Stream* origin = nullptr;
  CUgraph graph = nullptr;  // captured into a graph of the program's
  std::atomic<CUgraph> told{
      nullptr};  // what cuStreamGetCaptureInfo called the graph that is being made
  std::atomic<bool> invalid{false};
  std::atomic<bool> active{true};
  std::vector<Stream*> streams;  // under g_captures.lock
};

namespace {

struct Captures {
  Lock lock;  // rank 1
  std::vector<Capture*> active;
  std::deque<Capture*> ended;  // the oldest first
};
std::atomic<uint32_t> g_active_count{0};
Captures& captures() {
  static Captures* c = new Captures;
  return *c;
}
std::atomic<uint64_t> g_next_capture{1};
constexpr size_t kMaxDependencies = 2048;  // of one capture into a graph: what a record holds
// So many captures must have ended before one is used again: a thread that is about to break the
// capture of its stream while another thread ends that capture must not break a new one.
constexpr size_t kRest = 64;

bool forbids(const Capture& c, const Thread& thread) {
  if (c.mode == CU_STREAM_CAPTURE_MODE_RELAXED || !c.active.load(std::memory_order_relaxed))
    return false;
  if (thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (c.thread == &thread) return true;
  return thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         c.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void join(Capture* capture, Stream* stream) {
  Locked locked(captures().lock);
  capture->streams.push_back(stream);
  stream->capture.store(capture, std::memory_order_release);
}

// All its streams leave it.
void dissolve(Capture* capture) {
  Locked locked(captures().lock);
  for (Stream* s : capture->streams) {
    if (s->capture.load(std::memory_order_relaxed) == capture)
      s->capture.store(nullptr, std::memory_order_release);
  }
  capture->streams.clear();
  capture->active.store(false, std::memory_order_release);
  if (std::erase(captures().active, capture) != 0) captures().ended.push_back(capture);
  g_active_count.store(static_cast<uint32_t>(captures().active.size()), std::memory_order_release);
}

// A capture that nobody uses; the lock is held.
Capture* fresh_capture() {
  if (captures().ended.size() < kRest) return new (std::nothrow) Capture;
  Capture* capture = captures().ended.front();
  captures().ended.pop_front();
  return capture;
}

// Whether the capture that an event was recorded in goes on.
bool goes_on(const Capture& capture, uint64_t id) {
  return capture.active.load(std::memory_order_acquire) &&
         capture.id.load(std::memory_order_acquire) == id;
}

bool is_plain(const CUgraphEdgeData& edge) {
  constexpr CUgraphEdgeData kPlain{};
  return std::memcmp(&edge, &kPlain, sizeof kPlain) == 0;
}

bool valid_mode(CUstreamCaptureMode mode) {
  return static_cast<unsigned>(mode) <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

CUresult begin_checks(Stream* stream, CUstreamCaptureMode mode) {
  if (!valid_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  Mark before;  // once it captures, nothing can be signalled on it: whoever waits for its earlier
                // work needs this
  return mark_stream(stream, &before);
}

// Before the proxy captures: from the record that begins it on, nobody may put a signal or a free
// of kept memory into this stream any more, which other threads do at their synchronising calls
// (mark_stream looks again under the producer lock).
Capture* begin(Stream* stream, CUstreamCaptureMode mode, CUgraph graph) {
  Capture* capture = nullptr;
  {
    Locked locked(captures().lock);
    capture = fresh_capture();
    if (capture == nullptr) return nullptr;
    capture->id.store(g_next_capture.fetch_add(1, std::memory_order_relaxed),
                      std::memory_order_release);
    capture->mode = mode;
    capture->graph = graph;
    capture->thread = &this_thread();
    capture->origin = stream;
    capture->invalid.store(false, std::memory_order_relaxed);
    capture->told.store(nullptr, std::memory_order_relaxed);
    capture->active.store(true, std::memory_order_release);
    captures().active.push_back(capture);
    g_active_count.store(static_cast<uint32_t>(captures().active.size()),
                         std::memory_order_release);
  }
  join(capture, stream);
  return capture;
}

}  // namespace

CUresult forbid_capture(const Stream* stream) {
  if (g_active_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  if (Capture* capture = stream->capture.load(std::memory_order_acquire)) {
    capture->invalid.store(true, std::memory_order_release);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (!stream->legacy()) return CUDA_SUCCESS;
  // The legacy stream would wait for a capturing blocking stream of its context.
  Locked locked(captures().lock);
  for (Capture* capture : captures().active) {
    for (const Stream* s : capture->streams) {
      if (s->context == stream->context && s->blocking()) {
        capture->invalid.store(true, std::memory_order_release);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
    }
  }
  return CUDA_SUCCESS;
}

CUresult forbid_unsafe_call() {
  if (g_active_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  const Thread& thread = this_thread();
  bool forbidden = false;
  Locked locked(captures().lock);
  for (Capture* capture : captures().active) {
    if (!forbids(*capture, thread)) continue;
    capture->invalid.store(true, std::memory_order_release);
    forbidden = true;
  }
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult forbid_context_sync(const Context* context) {
  if (g_active_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  Locked locked(captures().lock);
  for (Capture* capture : captures().active) {
    if (capture->origin->context != context) continue;
    capture->invalid.store(true, std::memory_order_release);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

void capture_saw_record(Stream* stream, Event* event) {
  Capture* capture = stream->capture.load(std::memory_order_acquire);
  event->recorded = true;
  event->capture = capture;
  event->capture_id = capture == nullptr ? 0 : capture->id.load(std::memory_order_relaxed);
  event->mark = Mark{};
}

CUresult capture_saw_wait(Stream* stream, Event* event) {
  Capture* theirs;
  uint64_t their_id;
  {
    Locked locked(connection().producer);
    theirs = event->capture;
    their_id = event->capture_id;
  }
  // Recorded into a capture that has ended: there is nothing to wait for.
  if (theirs != nullptr && !goes_on(*theirs, their_id)) return CUDA_ERROR_INVALID_VALUE;
  if (g_active_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  Capture* ours = stream->capture.load(std::memory_order_acquire);
  if (const CUresult r = capture_broken(stream); r != CUDA_SUCCESS) return r;
  if (theirs == ours) return CUDA_SUCCESS;
  if (theirs == nullptr) {  // a capturing stream waits for ordinary work
    bool recorded;
    {
      Locked locked(connection().producer);
      recorded = event->recorded;
    }
    if (!recorded) return CUDA_SUCCESS;
    ours->invalid.store(true, std::memory_order_release);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (ours != nullptr) {
    ours->invalid.store(true, std::memory_order_release);
    theirs->invalid.store(true, std::memory_order_release);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (stream->legacy()) {
    theirs->invalid.store(true, std::memory_order_release);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  Mark before;  // as in begin_checks
  if (const CUresult r = mark_stream(stream, &before); r != CUDA_SUCCESS) return r;
  join(theirs, stream);
  return CUDA_SUCCESS;
}

CUresult ask_captured_event(Event* event) {
  Capture* capture;
  uint64_t id;
  {
    Locked locked(connection().producer);
    capture = event->capture;
    id = event->capture_id;
  }
  // Of a capture that is over or broken the event says nothing any more.
  if (capture == nullptr || !goes_on(*capture, id)) return CUDA_ERROR_INVALID_VALUE;
  return capture->invalid.exchange(true, std::memory_order_acq_rel) ? CUDA_ERROR_INVALID_VALUE
                                                                    : CUDA_ERROR_CAPTURED_EVENT;
}

CUresult capture_broken(const Stream* stream) {
  const Capture* capture = stream->capture.load(std::memory_order_acquire);
  return capture != nullptr && capture->invalid.load(std::memory_order_acquire)
             ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
             : CUDA_SUCCESS;
}

void operation_refused(const Stream* stream) {
  if (Capture* capture = stream->capture.load(std::memory_order_acquire))
    capture->invalid.store(true, std::memory_order_release);
}

CUresult admit_operation(const Stream* stream) {
  if (!stream->legacy()) return capture_broken(stream);
  return forbid_capture(stream);
}

void end_capture_of_destroyed(Stream* stream) {
  Capture* capture = stream->capture.load(std::memory_order_acquire);
  if (capture == nullptr) return;
  if (capture->origin == stream) {
    capture->invalid.store(true, std::memory_order_release);
    dissolve(capture);
    return;
  }
  // The capture goes on without a stream that had joined it; whether work is left unjoined in it,
  // the driver says at its end.
  Locked locked(captures().lock);
  std::erase(capture->streams, stream);
  stream->capture.store(nullptr, std::memory_order_release);
}

// ---- the calls
// --------------------------------------------------------------------------------------------------------

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = begin_checks(stream, mode); r != CUDA_SUCCESS) return r;
  Capture* capture = begin(stream, mode, nullptr);
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
  Capture* capture = begin(stream, mode, hGraph);
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
  if (phGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (capture->origin != stream) {
    capture->invalid.store(true, std::memory_order_release);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  *phGraph = nullptr;
  // By the wrong thread it ends too, and nothing comes of it.
  const bool wrong_thread =
      capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &this_thread();
  // A capture into the program's own graph ends with that graph, which stays the program's whatever
  // the outcome.
  const bool own_graph = capture->graph != nullptr;
  void* handle = capture->graph;
  uint64_t graph = 0;
  if (own_graph) {
    if (id_of(Kind::kGraph, handle, &graph) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  } else if (handle = capture->told.load(std::memory_order_acquire);
             handle == nullptr || id_of(Kind::kGraph, handle, &graph) != CUDA_SUCCESS) {
    graph = new_id(Kind::kGraph, &handle);
    if (graph == 0) return CUDA_ERROR_OUT_OF_MEMORY;
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
  if (invalid || wrong_thread) {
    if (result == CUDA_SUCCESS && !own_graph) {
      Request<wire::cuGraphDestroy> r;
      r->hGraph = graph;
      (void)r.post();
    }
    result = wrong_thread ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
                          : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (result != CUDA_SUCCESS) {
    if (!own_graph) drop(Kind::kGraph, graph);
    return result;
  }
  *phGraph = static_cast<CUgraph>(handle);
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  if (captureStatus == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (g_active_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  if (const Capture* capture = stream->capture.load(std::memory_order_acquire)) {
    *captureStatus = capture->invalid.load(std::memory_order_acquire)
                         ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  }
  if (!stream->legacy()) return CUDA_SUCCESS;
  Locked locked(captures().lock);
  for (const Capture* capture : captures().active) {
    for (const Stream* s : capture->streams) {
      if (s->context == stream->context && s->blocking()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  return CUDA_SUCCESS;
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

// graph_out and dependencies are only known to the proxy; who asks for them gets them by a round
// trip.
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
