// Stream capture, and what the client's graphs are made of and go away with; the regular calls are
// generated.
//
// The driver always captures in relaxed mode: the stricter modes are rules about a client's threads
// and are kept by the hook, while here one client's capture must not forbid anything to another
// (docs/facts.md).
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/calls/graph_place.h"
#include "proxy/calls/graph_steps.h"
#include "proxy/calls/graph_walk.h"
#include "proxy/gpu/capture.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/graph_objects.h"
#include "proxy/session/session.h"

namespace tube::proxy {
namespace {

void note_capture(Session& session, const StreamOp& op) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  (void)session.driver().cuStreamGetCaptureInfo_v3(op.stream, &status, &number, &op.state->captured,
                                                   nullptr, nullptr, nullptr);
  op.state->capture = number != 0 ? number : ~uint64_t{0};
  session.contexts().capture_started();
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::cuStreamBeginCapture_v2>& call,
                Reply<wire::cuStreamBeginCapture_v2>&) {
  StreamOp op = session.stream_op(call->hStream, StreamUse::kMarker);
  if (op.error != CUDA_SUCCESS) return op.error;
  if (op.state->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CUresult error = session.contexts().enter_capture(*op.state);
  if (error == CUDA_SUCCESS)
    error = session.driver().cuStreamBeginCapture_v2(op.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (error == CUDA_SUCCESS) note_capture(session, op);
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeBeginCaptureToGraph>& call,
                Reply<wire::tubeBeginCaptureToGraph>&) {
  auto graph = session.resolve<CUgraph>(wire::Kind::kGraph, call->graph);
  if (graph.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> nodes;
  for (uint64_t id : call.array<uint64_t>(call->dependencies)) {
    auto node = session.resolve<CUgraphNode>(wire::Kind::kGraphNode, id);
    if (node.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    nodes.push_back(node.handle);
  }
  const auto edges = call.array<CUgraphEdgeData>(call->edges);
  if (!edges.empty() && edges.size() != nodes.size()) return CUDA_ERROR_INVALID_VALUE;
  StreamOp op = session.stream_op(call->stream, StreamUse::kMarker);
  if (op.error != CUDA_SUCCESS) return op.error;
  if (op.state->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CUresult error = session.contexts().enter_capture(*op.state);
  if (error == CUDA_SUCCESS) {
    error = session.driver().cuStreamBeginCaptureToGraph(
        op.stream, graph.handle, nodes.data(), edges.empty() ? nullptr : edges.data(), nodes.size(),
        CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  if (error == CUDA_SUCCESS) note_capture(session, op);
  return error;
}

CUresult handle(Session& session, const Decoded<wire::cuStreamEndCapture>& call,
                Reply<wire::cuStreamEndCapture>&) {
  StreamOp op = session.stream_op(call->hStream, StreamUse::kMarker);
  if (op.error != CUDA_SUCCESS) return op.error;
  CUgraph graph = nullptr;
  CUresult error = session.driver().cuStreamEndCapture(op.stream, &graph);
  // Which streams were part of it is the driver's knowledge; a capture that failed for good is over
  // as well.
  uint64_t ended = 0;
  if (op.state->capture != 0 && !is_capturing(session.driver(), op.stream)) {
    ended = std::exchange(op.state->capture, 0);
    session.contexts().capture_ended();
  }
  const uint64_t under_construction =
      session.objects().adopted(wire::Kind::kGraph, reinterpret_cast<uint64_t>(graph));
  if (graph == nullptr) {
    if (error != CUDA_SUCCESS && ended != 0) forget_capture(session, ended, op.state->captured);
    return error;
  }
  const GraphMemory::Owner captured{wire::Kind::kCount, reinterpret_cast<uint64_t>(graph)};
  if (under_construction != 0 &&
      call->phGraph == under_construction) {  // the client has been told that name: it keeps it
    Object* made = session.objects().find(wire::Kind::kGraph, under_construction);
    made->owner = 0;
    made->state.reset();
    session.graph_memory().change_owner(captured, {wire::Kind::kGraph, under_construction});
    return error;
  }
  // Captured into a graph that the client has already (tubeBeginCaptureToGraph): nothing new to
  // keep. Under another id it would be destroyed twice, so every graph is looked at: ending a
  // capture is rare.
  for (uint64_t id : session.objects().ids(wire::Kind::kGraph)) {
    const Object* owned = session.objects().find(wire::Kind::kGraph, id);
    if (owned->handle<CUgraph>() != graph) continue;
    if (id != call->phGraph && id == under_construction) continue;
    if (id != call->phGraph) return CUDA_ERROR_INVALID_VALUE;
    if (owned->owner != 0) bring_nodes(session, graph, nullptr);
    session.graph_memory().change_owner(captured, {wire::Kind::kGraph, id});
    return error;
  }
  CUresult kept =
      session.objects().insert(wire::Kind::kGraph, call->phGraph, graph, session.record().context);
  if (kept != CUDA_SUCCESS) {
    // Nothing of it has a name any more: the driver gives its handles to other functions' nodes.
    if (under_construction != 0) forget_graph(session, under_construction);
    session.graph_memory().drop_owner(session, captured);
    session.driver().cuGraphDestroy(graph);
    return kept;
  }
  session.graph_memory().change_owner(captured, {wire::Kind::kGraph, call->phGraph});
  if (under_construction != 0) {
    session.objects().change_owner(wire::Kind::kGraphNode, under_construction, call->phGraph);
    session.objects().erase(wire::Kind::kGraph, under_construction);
  }
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeCaptureInfo>& call,
                Reply<wire::tubeCaptureInfo>& reply) {
  StreamOp op = session.stream_op(call->stream, StreamUse::kMarker);
  if (op.error != CUDA_SUCCESS) return op.error;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t capture = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  CUresult error = session.driver().cuStreamGetCaptureInfo_v3(op.stream, &status, &capture, &graph,
                                                              &nodes, &edges, &count);
  if (error != CUDA_SUCCESS) return error;
  reply->status = status;
  reply->capture = capture;
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  Objects& objects = session.objects();
  // Owned by the capture (its stream): nobody but the driver may destroy it until the capture ends.
  constexpr uint64_t kCapture = ~uint64_t{0};
  reply->graph = find_id(session, wire::Kind::kGraph,
                         reinterpret_cast<uint64_t>(graph));  // captured into one of the client's
  if (reply->graph == 0) {
    reply->graph = objects.adopt(wire::Kind::kGraph, graph, session.record().context, kCapture);
    Object* object = objects.find(wire::Kind::kGraph, reply->graph);
    if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    auto inner = std::make_unique<InnerGraph>();
    inner->capture = capture;
    object->state = std::move(inner);
  }
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < count; ++i)
    ids.push_back(
        objects.adopt(wire::Kind::kGraphNode, nodes[i], session.record().context, reply->graph));
  if (!ids.empty() &&
      !reply.put(&wire::tubeCaptureInfo_reply::dependencies, std::as_bytes(std::span(ids))))
    return CUDA_ERROR_NOT_SUPPORTED;
  if (edges != nullptr && count != 0)
    reply.put(&wire::tubeCaptureInfo_reply::edges, std::as_bytes(std::span(edges, count)));
  return CUDA_SUCCESS;
}

// The step comes behind what the stream has captured so far, as a captured host function or copy
// does.
CUresult handle(Session& session, const Decoded<wire::tubeCaptureStep>& call,
                Reply<wire::tubeCaptureStep>&) {
  const auto params = call.array<wire::GraphStepParams>(call->params);
  if (params.size() != 1) return CUDA_ERROR_INVALID_VALUE;
  StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  const Driver& driver = session.driver();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  CUresult error =
      driver.cuStreamGetCaptureInfo_v3(op.stream, &status, nullptr, &graph, &nodes, &edges, &count);
  if (error != CUDA_SUCCESS) return error;
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_ERROR_ILLEGAL_STATE;
  const std::vector<CUgraphNode> behind(
      nodes, nodes + count);  // the stream's own array ends with its next call
  std::vector<CUgraphEdgeData> behind_edges;
  if (edges != nullptr) behind_edges.assign(edges, edges + count);
  const NodeSpot spot{graph, session.shared().gpus[session.context()->gpu].context, behind,
                      behind_edges};
  CUgraphNode node = nullptr;
  if (error = add_step(session, spot, params[0], &node); error != CUDA_SUCCESS) return error;
  return driver.cuStreamUpdateCaptureDependencies_v2(op.stream, &node, nullptr, 1,
                                                     CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

CUresult handle(Session& session, const Decoded<wire::cuGraphDestroy>& call,
                Reply<wire::cuGraphDestroy>&) {
  const Object* graph = session.objects().find_to_end(wire::Kind::kGraph, call->hGraph);
  if (graph == nullptr || graph->owner != 0)
    return CUDA_ERROR_INVALID_VALUE;  // inside a node, or being captured
  return session.destroy_object(wire::Kind::kGraph, call->hGraph);
}

CUresult handle(Session& session, const Decoded<wire::cuGraphClone>& call,
                Reply<wire::cuGraphClone>&) {
  if (CUresult error = session.objects().admit(wire::Kind::kGraph, call->phGraphClone);
      error != CUDA_SUCCESS)
    return error;
  auto original = session.resolve<CUgraph>(wire::Kind::kGraph, call->originalGraph);
  if (original.error != CUDA_SUCCESS) return original.error;
  uint64_t nodes = 0;
  if (CUresult error = admit_copy(session, original.handle, &nodes); error != CUDA_SUCCESS)
    return error;
  CUgraph clone = nullptr;
  if (CUresult error = session.driver().cuGraphClone(&clone, original.handle);
      error != CUDA_SUCCESS)
    return error;
  clone_user_objects(session, call->originalGraph, call->phGraphClone);
  const CUresult kept = session.objects().insert(wire::Kind::kGraph, call->phGraphClone, clone,
                                                 session.record().context);
  session.objects().weigh(wire::Kind::kGraph, call->phGraphClone, nodes);
  return kept;
}

CUresult handle(Session& session, const Decoded<wire::cuGraphDestroyNode>& call,
                Reply<wire::cuGraphDestroyNode>&) {
  auto node = session.resolve<CUgraphNode>(wire::Kind::kGraphNode, call->hNode);
  if (node.error != CUDA_SUCCESS) return node.error;
  if (CUresult error = session.driver().cuGraphDestroyNode(node.handle); error != CUDA_SUCCESS)
    return error;
  forget_inside(session, call->hNode);
  session.objects().erase(wire::Kind::kGraphNode, call->hNode);
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::cuGraphNodeGetType>& call,
                Reply<wire::cuGraphNodeGetType>& reply) {
  auto node = session.resolve<CUgraphNode>(wire::Kind::kGraphNode, call->hNode);
  if (node.error != CUDA_SUCCESS) return node.error;
  CUgraphNodeType type{};
  const CUresult error = visible_type(session, node.handle, &type);
  reply->type = type;
  return error;
}

}  // namespace tube::proxy
