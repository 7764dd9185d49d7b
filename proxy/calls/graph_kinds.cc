// Graph nodes of every kind but kernels, copies and memsets: each parameter struct
// (protocol/calls/graph_params.py) is checked and turned into the driver's, then the typed calls
// add or change the node.
#include <cstring>
#include <vector>

#include "proxy/calls/graph_target.h"
#include "proxy/calls/graph_walk.h"
#include "proxy/calls/handler_glue.h"
#include "proxy/calls/modules.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/graph_objects.h"

namespace tube::proxy {

namespace {

using Call = Decoded<wire::tubeGraphNode>;
using Answer = Reply<wire::tubeGraphNode>;

// The fixed struct in front of `params`, and what follows it.
template <class T>
bool take(const Call& call, T* fixed, std::span<const std::byte>* rest = nullptr) {
  const auto bytes = call.blob(call->params);
  if (bytes.size() < sizeof(T)) return false;
  std::memcpy(fixed, bytes.data(), sizeof(T));
  if (!wire::is_valid(*fixed)) return false;
  if (rest != nullptr) *rest = bytes.subspan(sizeof(T));
  return true;
}

CUresult change(Session& session, const NodeTarget& target, CUgraphNodeParams* params) {
  const Driver& driver = session.driver();
  return target.op == GraphEdit::kSet
             ? driver.cuGraphNodeSetParams(target.node, params)
             : driver.cuGraphExecNodeSetParams(target.exec, target.node, params);
}

CUresult add_or_change(Session& session, const Call& call, const NodeTarget& target,
                       CUgraphNodeParams* params, Answer& reply) {
  if (target.op != GraphEdit::kAdd) return change(session, target, params);
  CUgraphNode node = nullptr;
  if (CUresult error = add_typed(session, target, params, &node); error != CUDA_SUCCESS)
    return error;
  return name_node(session, call, node, reply);
}

CUresult step_node(Session& session, const Call& call, NodeTarget& target, Answer& reply) {
  wire::GraphStepParams step;
  if (!take(call, &step)) return CUDA_ERROR_INVALID_VALUE;
  if (target.op == GraphEdit::kAdd) {
    CUgraphNode node = nullptr;
    CUresult error = add_step(session, target.spot(), step, &node);
    return error != CUDA_SUCCESS ? error : name_node(session, call, node, reply);
  }
  if (target.op == GraphEdit::kSetInExec) {
    if (target.exec_state == nullptr) return CUDA_ERROR_INVALID_VALUE;
    uint32_t word = 0;
    CUresult error = set_exec_step(session, target.exec, *target.exec_state, target.node,
                                   target.context, step, &word, &reply->dptr);
    reply->node = word;
    return error;
  }
  CUgraphNodeType type{};
  const CUgraphNodeType wanted =
      wire::is_copy_step(step.tag) ? CU_GRAPH_NODE_TYPE_MEMCPY : CU_GRAPH_NODE_TYPE_HOST;
  if (CUresult error = visible_type(session, target.node, &type); error != CUDA_SUCCESS)
    return error;
  if (type != wanted) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = set_step(session, target.node, target.context, step);
  if (error != CUDA_ERROR_NOT_FOUND) return error;
  return replace_node(session, call->node, target, [&](const NodeTarget& spot, CUgraphNode* node) {
    return add_step(session, spot.spot(), step, node);
  });
}

CUresult child_node(Session& session, const Call& call, NodeTarget& target, Answer& reply) {
  wire::GraphChildParams child;
  if (!take(call, &child)) return CUDA_ERROR_INVALID_VALUE;
  Object* object = session.objects().find(wire::Kind::kGraph, child.graph);
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams p{};
  p.type = CU_GRAPH_NODE_TYPE_GRAPH;
  p.graph.graph = object->handle<CUgraph>();
  p.graph.ownership = static_cast<CUgraphChildGraphNodeOwnership>(child.ownership);
  if (target.op == GraphEdit::kSet) return CUDA_ERROR_INVALID_VALUE;
  if (target.op == GraphEdit::kSetInExec) {
    if (target.exec_state != nullptr) {
      if (CUresult error = place_child(session, *target.exec_state, target.node, p.graph.graph);
          error != CUDA_SUCCESS)
        return error;
    }
    bring_nodes(session, p.graph.graph, instance_context(target.exec_state));
    const auto set = [&] {
      return session.driver().cuGraphExecChildGraphNodeSetParams(target.exec, target.node,
                                                                 p.graph.graph);
    };
    return session.shared().gpus.gate().launch(this_caller(), update_gate(session),
                                               set);  // it may bring kernels
  }
  const bool moves = child.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  // A graph inside itself has no end, and a copy of it made there crashes the driver, in which all
  // functions are.
  if (is_around(session, child.graph, call->graph) || (moves && object->owner != 0))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t copied = 1;
  if (CUresult error = moves ? CUDA_SUCCESS : admit_copy(session, p.graph.graph, &copied);
      error != CUDA_SUCCESS)
    return error;
  CUgraphNode node = nullptr;
  if (CUresult error = add_typed(session, target, &p, &node); error != CUDA_SUCCESS) return error;
  if (CUresult error = name_node(session, call, node, reply); error != CUDA_SUCCESS) return error;
  session.objects().weigh(wire::Kind::kGraphNode, reply->node, copied);
  if (!moves) return CUDA_SUCCESS;
  session.graph_memory().share({wire::Kind::kGraph, child.graph},
                               {wire::Kind::kGraph, call->graph});
  move_inside(session, child.graph, call->graph, reply->node);
  return CUDA_SUCCESS;
}

CUresult event_node(Session& session, const Call& call, NodeTarget& target, Answer& reply) {
  wire::GraphEventParams params;
  if (!take(call, &params)) return CUDA_ERROR_INVALID_VALUE;
  auto event = session.resolve<CUevent>(wire::Kind::kEvent, params.event);
  if (event.error != CUDA_SUCCESS) return event.error;
  CUgraphNodeParams p{};
  p.type = static_cast<CUgraphNodeType>(call->type);
  if (p.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) p.eventWait.event = event.handle;
  else p.eventRecord.event = event.handle;
  return add_or_change(session, call, target, &p, reply);
}

CUresult mem_op_node(Session& session, const Call& call, NodeTarget& target, Answer& reply) {
  wire::GraphMemOpParams params;
  std::span<const std::byte> rest;
  if (!take(call, &params, &rest) || params.count > 256 ||
      rest.size() != params.count * sizeof(CUstreamBatchMemOpParams))
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUstreamBatchMemOpParams> ops(params.count);
  if (!rest.empty()) std::memcpy(ops.data(), rest.data(), rest.size());
  if (CUresult error = check_mem_ops(session, params, ops); error != CUDA_SUCCESS) return error;
  Step step;
  if (target.op != GraphEdit::kAdd && step_of(session, target.node, &step))
    return CUDA_ERROR_INVALID_VALUE;  // a host node to the client
  CUgraphNodeParams p{};
  p.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  p.memOp = {target.shared, params.count, ops.data(), params.flags};
  return add_or_change(session, call, target, &p, reply);
}

CUresult alloc_node(Session& session, const Call& call, NodeTarget& target, Answer& reply) {
  wire::GraphAllocParams params;
  std::span<const std::byte> rest;
  if (!take(call, &params, &rest) || params.access_count > 64 ||
      rest.size() != params.access_count * sizeof(CUmemAccessDesc))
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUmemAccessDesc> access(params.access_count);
  if (!rest.empty()) std::memcpy(access.data(), rest.data(), rest.size());
  if (target.op != GraphEdit::kAdd) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams p{};
  p.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  p.alloc.poolProps.allocType = static_cast<CUmemAllocationType>(params.alloc_type);
  p.alloc.poolProps.handleTypes = static_cast<CUmemAllocationHandleType>(params.handle_types);
  p.alloc.poolProps.location = {static_cast<CUmemLocationType>(params.location_type),
                                params.location_id};
  p.alloc.poolProps.maxSize = params.max_size;
  p.alloc.poolProps.usage = static_cast<unsigned short>(params.usage);
  p.alloc.accessDescs = access.empty() ? nullptr : access.data();
  p.alloc.accessDescCount = access.size();
  p.alloc.bytesize = params.bytes;
  MemoryCharge charge;
  // What the driver refuses for its location is charged to nobody.
  const bool on_gpu = params.location_type == CU_MEM_LOCATION_TYPE_DEVICE &&
                      static_cast<uint32_t>(params.location_id) < session.shared().gpus.count();
  const auto charge_it = [&] {
    return session.account().charge(params.location_id, params.bytes, &charge);
  };
  if (on_gpu) {
    if (CUresult error = session.take_memory(static_cast<uint32_t>(params.location_id), charge_it);
        error != CUDA_SUCCESS)
      return error;
  }
  if (CUresult error = add_or_change(session, call, target, &p, reply); error != CUDA_SUCCESS)
    return error;
  reply->dptr = p.alloc.dptr;
  return session.graph_memory().made(session, p.alloc.dptr, params.bytes,
                                     {wire::Kind::kGraph, call->graph}, std::move(charge));
}

CUresult free_node(Session& session, const Call& call, NodeTarget& target, Answer& reply) {
  wire::GraphFreeParams params;
  if (!take(call, &params) || target.op != GraphEdit::kAdd ||
      !session.graph_memory().knows(params.dptr))
    return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams p{};
  p.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  p.free.dptr = params.dptr;
  CUresult error = add_or_change(session, call, target, &p, reply);
  if (error == CUDA_SUCCESS)
    session.graph_memory().freed_by_graph(params.dptr, {wire::Kind::kGraph, call->graph});
  return error;
}

CUresult conditional_node(Session& session, const Call& call, NodeTarget& target, Answer& reply) {
  constexpr uint32_t kMaxBodies = 1024;  // what a reply holds
  wire::GraphConditionalParams params;
  if (!take(call, &params) || target.op != GraphEdit::kAdd || params.size > kMaxBodies)
    return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams p{};
  p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  p.conditional.handle = params.handle;
  p.conditional.type = static_cast<CUgraphConditionalNodeType>(params.type);
  p.conditional.size = params.size;
  p.conditional.ctx = target.shared;
  if (CUresult error = add_or_change(session, call, target, &p, reply); error != CUDA_SUCCESS)
    return error;
  session.objects().weigh(wire::Kind::kGraphNode, reply->node, 1);  // it has graphs inside
  std::vector<uint64_t> bodies;
  for (uint32_t i = 0; i < params.size; ++i) {
    const uint64_t id =
        adopt_inner(session, p.conditional.phGraph_out[i], call->graph, reply->node);
    if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    bodies.push_back(id);
  }
  return reply.put_array(&wire::tubeGraphNode_reply::graphs, std::span<const uint64_t>(bodies))
             ? CUDA_SUCCESS
             : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUresult handle(Session& session, const Call& call, Answer& reply) {
  NodeTarget target;
  if (CUresult error = resolve_target(session, call, target); error != CUDA_SUCCESS) return error;
  CUgraphNodeParams p{};
  switch (call->type) {
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_MEMCPY: return step_node(session, call, target, reply);
    case CU_GRAPH_NODE_TYPE_GRAPH: return child_node(session, call, target, reply);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return event_node(session, call, target, reply);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return mem_op_node(session, call, target, reply);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return alloc_node(session, call, target, reply);
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return free_node(session, call, target, reply);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return conditional_node(session, call, target, reply);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      p.type = CU_GRAPH_NODE_TYPE_EMPTY;
      return add_or_change(session, call, target, &p, reply);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace tube::proxy
