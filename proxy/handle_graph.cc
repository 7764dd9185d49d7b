// Stream capture, and the graph calls whose parameters the client packs by hand; the regular ones are generated.
//
// The driver always captures in relaxed mode: the stricter modes are rules about a client's threads and are kept by the
// hook, while here one client's capture must not forbid anything to another (decision 8).
#include <cstring>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/client_limits.h"
#include "proxy/copy_region.h"
#include "proxy/gpus.h"
#include "proxy/module_state.h"
#include "proxy/session.h"

namespace tube::proxy {

CUresult handle(Session& session, const Decoded<wire::cuStreamBeginCapture_v2>& call, Reply<wire::cuStreamBeginCapture_v2>&) {
  StreamOp op = session.stream_op(call->hStream, StreamUse::kMarker);
  if (op.error != CUDA_SUCCESS) return op.error;
  if (op.state->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CUresult error = session.driver().cuStreamBeginCapture_v2(op.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (error == CUDA_SUCCESS) session.capture_started();
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeBeginCaptureToGraph>& call, Reply<wire::tubeBeginCaptureToGraph>&) {
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
  CUresult error = session.driver().cuStreamBeginCaptureToGraph(op.stream, graph.handle, nodes.data(), edges.empty() ? nullptr : edges.data(),
                                                                nodes.size(), CU_STREAM_CAPTURE_MODE_RELAXED);
  if (error == CUDA_SUCCESS) session.capture_started();
  return error;
}

CUresult handle(Session& session, const Decoded<wire::cuStreamEndCapture>& call, Reply<wire::cuStreamEndCapture>&) {
  StreamOp op = session.stream_op(call->hStream, StreamUse::kMarker);
  if (op.error != CUDA_SUCCESS) return op.error;
  CUgraph graph = nullptr;
  CUresult error = session.driver().cuStreamEndCapture(op.stream, &graph);
  // Which streams were part of it is the driver's knowledge; a capture that failed for good is over as well.
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (session.driver().cuStreamIsCapturing(op.stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE) {
    session.capture_ended();
  }
  const uint64_t under_construction = session.objects().adopted(wire::Kind::kGraph, reinterpret_cast<uint64_t>(graph));
  if (graph == nullptr) return error;
  // Captured into a graph that the client has already (tubeBeginCaptureToGraph): nothing new to keep.
  // Under another id it would be destroyed twice, so every graph is looked at: ending a capture is rare.
  for (uint64_t id : session.objects().ids(wire::Kind::kGraph)) {
    const Object* owned = session.objects().find(wire::Kind::kGraph, id);
    if (owned->handle<CUgraph>() == graph && owned->owner == 0) return id == call->phGraph ? error : CUDA_ERROR_INVALID_VALUE;
  }
  CUresult kept = session.objects().insert(wire::Kind::kGraph, call->phGraph, graph, session.record().context);
  if (kept != CUDA_SUCCESS) {
    session.driver().cuGraphDestroy(graph);
    return kept;
  }
  if (under_construction != 0) {
    session.objects().change_owner(wire::Kind::kGraphNode, under_construction, call->phGraph);
    session.objects().erase(wire::Kind::kGraph, under_construction);
  }
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeCaptureInfo>& call, Reply<wire::tubeCaptureInfo>& reply) {
  StreamOp op = session.stream_op(call->stream, StreamUse::kMarker);
  if (op.error != CUDA_SUCCESS) return op.error;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t capture = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  CUresult error = session.driver().cuStreamGetCaptureInfo_v3(op.stream, &status, &capture, &graph, &nodes, &edges, &count);
  if (error != CUDA_SUCCESS) return error;
  reply->status = status;
  reply->capture = capture;
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  Objects& objects = session.objects();
  // Owned by the capture (its stream): nobody but the driver may destroy it until the capture ends.
  constexpr uint64_t kCapture = ~uint64_t{0};
  reply->graph = objects.adopt(wire::Kind::kGraph, graph, session.record().context, kCapture);
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(objects.adopt(wire::Kind::kGraphNode, nodes[i], session.record().context, reply->graph));
  if (!ids.empty() && !reply.put(&wire::tubeCaptureInfo_reply::dependencies, std::as_bytes(std::span(ids)))) return CUDA_ERROR_NOT_SUPPORTED;
  if (edges != nullptr && count != 0) reply.put(&wire::tubeCaptureInfo_reply::edges, std::as_bytes(std::span(edges, count)));
  return CUDA_SUCCESS;
}

namespace {

enum NodeOp : uint32_t { kAdd = 0, kSet = 1, kSetInExec = 2 };

// What op 0, 1 and 2 need, resolved.
struct NodeTarget {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
  std::vector<CUgraphNode> dependencies;
  CUcontext context = nullptr;
};

template <class X>
CUresult resolve_target(Session& session, const Decoded<X>& call, NodeTarget& target) {
  target.context = session.shared().gpus[session.context()->gpu].context;
  if (call->op > kSetInExec) return CUDA_ERROR_INVALID_VALUE;
  if (call->op == kAdd) {
    auto graph = session.resolve<CUgraph>(wire::Kind::kGraph, call->graph);
    if (graph.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    target.graph = graph.handle;
    for (uint64_t id : call.template array<uint64_t>(call->dependencies)) {
      auto node = session.resolve<CUgraphNode>(wire::Kind::kGraphNode, id);
      if (node.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
      target.dependencies.push_back(node.handle);
    }
    return CUDA_SUCCESS;
  }
  auto node = session.resolve<CUgraphNode>(wire::Kind::kGraphNode, call->node);
  if (node.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  target.node = node.handle;
  if (call->op == kSet) return CUDA_SUCCESS;
  auto exec = session.resolve<CUgraphExec>(wire::Kind::kGraphExec, call->exec);
  if (exec.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  target.exec = exec.handle;
  return CUDA_SUCCESS;
}

template <class X>
CUresult name_node(Session& session, const Decoded<X>& call, CUgraphNode node, Reply<X>& reply) {
  reply->node = session.objects().adopt(wire::Kind::kGraphNode, node, session.record().context, call->graph);
  return reply->node != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeGraphKernelNode>& call, Reply<wire::tubeGraphKernelNode>& reply) {
  NodeTarget target;
  if (CUresult error = resolve_target(session, call, target); error != CUDA_SUCCESS) return error;
  Object* object = session.objects().find(wire::Kind::kKernel, call->kernel);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto& kernel = static_cast<const KernelState&>(*object->state);
  const auto parameters = call.blob(call->parameters);
  if (parameters.size() < kernel.parameter_bytes || parameters.size() > limits::kParameterBytes) return CUDA_ERROR_INVALID_VALUE;
  size_t bytes = parameters.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(parameters.data()), CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  CUDA_KERNEL_NODE_PARAMS_v2 params{};
  if (kernel.is_library_kernel) {
    params.kern = reinterpret_cast<CUkernel>(kernel.function);
  } else {
    params.func = kernel.function;
  }
  params.gridDimX = call->grid[0];
  params.gridDimY = call->grid[1];
  params.gridDimZ = call->grid[2];
  params.blockDimX = call->block[0];
  params.blockDimY = call->block[1];
  params.blockDimZ = call->block[2];
  params.sharedMemBytes = call->shared_bytes;
  params.extra = bytes != 0 ? extra : nullptr;
  const Driver& driver = session.driver();
  if (call->op == kSet) return driver.cuGraphKernelNodeSetParams_v2(target.node, &params);
  if (call->op == kSetInExec) return driver.cuGraphExecKernelNodeSetParams_v2(target.exec, target.node, &params);
  // Annotated edges (programmatic launch, which XLA uses) need the typed call; no edge data means "after".
  const auto edges = call.array<CUgraphEdgeData>(call->edges);
  if (!edges.empty() && edges.size() != target.dependencies.size()) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode node = nullptr;
  CUresult error = CUDA_SUCCESS;
  if (edges.empty()) {
    error = driver.cuGraphAddKernelNode_v2(&node, target.graph, target.dependencies.data(), target.dependencies.size(), &params);
  } else {
    CUgraphNodeParams typed{};
    typed.type = CU_GRAPH_NODE_TYPE_KERNEL;
    typed.kernel = {params.func, params.gridDimX, params.gridDimY, params.gridDimZ, params.blockDimX, params.blockDimY,
                    params.blockDimZ, params.sharedMemBytes, params.kernelParams, params.extra, params.kern, params.ctx};
    error = driver.cuGraphAddNode_v2(&node, target.graph, target.dependencies.data(), edges.data(), target.dependencies.size(), &typed);
  }
  return error != CUDA_SUCCESS ? error : name_node(session, call, node, reply);
}

CUresult handle(Session& session, const Decoded<wire::tubeGraphCopyNode>& call, Reply<wire::tubeGraphCopyNode>& reply) {
  NodeTarget target;
  if (CUresult error = resolve_target(session, call, target); error != CUDA_SUCCESS) return error;
  if (call->extent[0] == 0 || call->extent[1] == 0 || call->extent[2] == 0) return CUDA_ERROR_INVALID_VALUE;
  // A node outlives every chunk.
  if (call->src_kind == kChunkSide || call->dst_kind == kChunkSide) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D copy;
  CUresult error = build_copy(session, {call->src_kind, call->src, call->src_pitch, call->src_height, call->src_origin},
                              {call->dst_kind, call->dst, call->dst_pitch, call->dst_height, call->dst_origin}, call->extent, &copy);
  if (error != CUDA_SUCCESS) return error;
  const Driver& driver = session.driver();
  if (call->op == kSet) return driver.cuGraphMemcpyNodeSetParams(target.node, &copy);
  if (call->op == kSetInExec) return driver.cuGraphExecMemcpyNodeSetParams(target.exec, target.node, &copy, target.context);
  CUgraphNode node = nullptr;
  error = driver.cuGraphAddMemcpyNode(&node, target.graph, target.dependencies.data(), target.dependencies.size(), &copy, target.context);
  return error != CUDA_SUCCESS ? error : name_node(session, call, node, reply);
}

CUresult handle(Session& session, const Decoded<wire::tubeGraphMemsetNode>& call, Reply<wire::tubeGraphMemsetNode>& reply) {
  NodeTarget target;
  if (CUresult error = resolve_target(session, call, target); error != CUDA_SUCCESS) return error;
  CUresult error = check_memset(session, call->dst, call->pitch, call->element_bytes, call->width, call->height);
  if (error != CUDA_SUCCESS) return error;
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = call->dst;
  params.pitch = call->pitch;
  params.value = call->value;
  params.elementSize = call->element_bytes;
  params.width = call->width;
  params.height = call->height;
  const Driver& driver = session.driver();
  if (call->op == kSet) return driver.cuGraphMemsetNodeSetParams(target.node, &params);
  if (call->op == kSetInExec) return driver.cuGraphExecMemsetNodeSetParams(target.exec, target.node, &params, target.context);
  CUgraphNode node = nullptr;
  error = driver.cuGraphAddMemsetNode(&node, target.graph, target.dependencies.data(), target.dependencies.size(), &params, target.context);
  return error != CUDA_SUCCESS ? error : name_node(session, call, node, reply);
}

CUresult handle(Session& session, const Decoded<wire::tubeGraphInstantiate>& call, Reply<wire::tubeGraphInstantiate>& reply) {
  if (CUresult error = session.objects().admit(wire::Kind::kGraphExec, call->exec); error != CUDA_SUCCESS) return error;
  auto graph = session.resolve<CUgraph>(wire::Kind::kGraph, call->graph);
  if (graph.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = call->flags;
  if ((call->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
    StreamOp op = session.stream_op(call->stream);
    if (op.error != CUDA_SUCCESS) return op.error;
    params.hUploadStream = op.stream;
  }
  CUgraphExec exec = nullptr;
  reply->result = session.driver().cuGraphInstantiateWithParams(&exec, graph.handle, &params);
  reply->status = params.result_out;
  if (reply->result != CUDA_SUCCESS) {
    if (params.hErrNode_out != nullptr) {
      reply->error_node = session.objects().adopt(wire::Kind::kGraphNode, params.hErrNode_out, session.record().context, call->graph);
    }
    return CUDA_SUCCESS;
  }
  return session.objects().insert(wire::Kind::kGraphExec, call->exec, exec, session.record().context);
}

CUresult handle(Session& session, const Decoded<wire::tubeGraphExecUpdate>& call, Reply<wire::tubeGraphExecUpdate>& reply) {
  auto exec = session.resolve<CUgraphExec>(wire::Kind::kGraphExec, call->exec);
  auto graph = session.resolve<CUgraph>(wire::Kind::kGraph, call->graph);
  if (exec.error != CUDA_SUCCESS || graph.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResultInfo info{};
  reply->result = session.driver().cuGraphExecUpdate_v2(exec.handle, graph.handle, &info);
  reply->status = info.result;
  auto name = [&](CUgraphNode node) -> uint64_t {
    return node == nullptr ? 0 : session.objects().adopt(wire::Kind::kGraphNode, node, session.record().context, call->graph);
  };
  reply->error_node = name(info.errorNode);
  reply->error_from_node = name(info.errorFromNode);
  return CUDA_SUCCESS;
}

}  // namespace tube::proxy
