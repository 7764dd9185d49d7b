// Graph nodes other than kernels, copies and memsets. One message carries them all (tubeGraphNode).
//
// An event that a graph records is asked of the proxy from then on (Event::asked): a graph's record
// writes no progress word.
#include <cstring>
#include <vector>

#include "hook/graphs/graph_target.h"
#include "hook/graphs/update_proofs.h"
#include "hook/memory/allocator.h"
#include "hook/memory/memory_map.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

CUresult send(NodeTarget& t, CUgraphNodeType type, const void* params, size_t params_bytes,
              const void* rest, size_t rest_bytes, wire::tubeGraphNode_reply* reply,
              ReplyBlobs* blobs = nullptr) {
  const auto bytes = static_cast<uint32_t>(params_bytes + rest_bytes);
  Request<wire::tubeGraphNode> r(target_room(t) + blob_room(bytes));
  fill(r, t);
  r->type = static_cast<uint32_t>(type);
  auto* room =
      bytes == 0 ? nullptr : static_cast<std::byte*>(r.room(&wire::tubeGraphNode::params, bytes));
  if (room != nullptr) {
    std::memcpy(room, params, params_bytes);
    if (rest_bytes != 0) std::memcpy(room + params_bytes, rest, rest_bytes);
  }
  return r.call(reply, blobs);
}

template <class P>
CUresult simple(NodeTarget& t, CUgraphNodeType type, const P& params, CUgraphNode* out) {
  wire::tubeGraphNode_reply reply{};
  const CUresult result = send(t, type, &params, sizeof params, nullptr, 0, &reply);
  return finish(t, result, reply.node, out);
}

// The graphs of a conditional node, in memory that lives as long as the node's handle.
CUresult keep_bodies(CUgraphNode node, std::span<const std::byte> ids,
                     CUDA_CONDITIONAL_NODE_PARAMS* p) {
  const size_t count = ids.size() / 8;
  auto* graphs = static_cast<CUgraph*>(node_storage(node, count * sizeof(CUgraph)));
  if (graphs == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < count; ++i)
    graphs[i] = static_cast<CUgraph>(adopt(Kind::kGraph, wire::blob_u64(ids, i)));
  p->phGraph_out = graphs;
  return CUDA_SUCCESS;
}

CUresult wire_location(CUmemLocation* location) {
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_SUCCESS;
  return device_number(location->id, &location->id) == CUDA_SUCCESS ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

// In an instance the answer may ask for more staging: a larger copy than before. What is under way
// keeps the old one, and the word with it.
CUresult step_node(NodeTarget& t, CUgraphNodeType type, const wire::GraphStepParams& given,
                   CUgraphNode* out) {
  wire::GraphStepParams step = given;
  wire::tubeGraphNode_reply reply{};
  if (t.op != GraphEdit::kSetInExec) {
    if (t.op == GraphEdit::kSet)
      forget_all_updates();  // a copy may become another node under the same handle
    const CUresult result = send(t, type, &step, sizeof step, nullptr, 0, &reply);
    return finish(t, result, reply.node, out);
  }
  if (t.instance == nullptr || t.instance->steps == nullptr) return CUDA_ERROR_INVALID_VALUE;
  StepSet* set = t.instance->steps;
  CUresult result = send(t, type, &step, sizeof step, nullptr, 0, &reply);
  if (result != CUDA_SUCCESS || reply.dptr == 0) return result;
  const auto word = static_cast<uint32_t>(reply.node);
  wire::GraphStepPlace place{};
  if (const CUresult r = larger_place(set, word, reply.dptr, &place); r != CUDA_SUCCESS) return r;
  step.staging = place.staging;
  step.word = place.word;
  result = send(t, type, &step, sizeof step, nullptr, 0, &reply);
  if (result == CUDA_SUCCESS) take_place(set, word, place);
  else give_up_place(word, place);
  return result;
}

CUresult host_node(NodeTarget& t, CUhostFn function, void* data, CUgraphNode* out) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::GraphStepParams step{};
  step.tag = tag_of(function, data);
  return step_node(t, CU_GRAPH_NODE_TYPE_HOST, step, out);
}

CUresult child_node(NodeTarget& t, CUgraph child, CUgraphChildGraphNodeOwnership ownership,
                    CUgraphNode* out) {
  wire::GraphChildParams params{};
  if (const CUresult r = id_of(Kind::kGraph, child, &params.graph); r != CUDA_SUCCESS) return r;
  params.ownership = static_cast<uint32_t>(ownership);
  if (t.op == GraphEdit::kSetInExec) forget_updates_of(t.exec);
  return simple(t, CU_GRAPH_NODE_TYPE_GRAPH, params, out);
}

CUresult empty_node(NodeTarget& t, CUgraphNode* out) {
  wire::tubeGraphNode_reply reply{};
  const CUresult result = send(t, CU_GRAPH_NODE_TYPE_EMPTY, nullptr, 0, nullptr, 0, &reply);
  return finish(t, result, reply.node, out);
}

CUresult event_node(NodeTarget& t, CUgraphNodeType type, CUevent handle, CUgraphNode* out) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Event* event = find_event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
    Locked locked(connection().producer);
    event->asked = true;
  }
  return simple(t, type, wire::GraphEventParams{event->id}, out);
}

CUresult mem_op_node(NodeTarget& t, unsigned count, const CUstreamBatchMemOpParams* ops,
                     unsigned flags, CUgraphNode* out) {
  if (count > 256 || (ops == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
  const wire::GraphMemOpParams params{flags, count, 0, 0};
  wire::tubeGraphNode_reply reply{};
  const CUresult result = send(t, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &params, sizeof params, ops,
                               count * sizeof *ops, &reply);
  return finish(t, result, reply.node, out);
}

CUresult alloc_node(NodeTarget& t, CUDA_MEM_ALLOC_NODE_PARAMS* p, CUgraphNode* out) {
  if (p == nullptr || p->bytesize == 0 || p->accessDescCount > 64 ||
      (p->accessDescs == nullptr && p->accessDescCount != 0))
    return CUDA_ERROR_INVALID_VALUE;
  CUmemLocation location = p->poolProps.location;
  if (const CUresult r = wire_location(&location); r != CUDA_SUCCESS) return r;
  CUmemAccessDesc access[64];
  for (size_t i = 0; i < p->accessDescCount; ++i) {
    access[i] = p->accessDescs[i];
    if (const CUresult r = wire_location(&access[i].location); r != CUDA_SUCCESS) return r;
  }
  wire::GraphAllocParams params{};
  params.bytes = p->bytesize;
  params.max_size = p->poolProps.maxSize;
  params.alloc_type = static_cast<uint32_t>(p->poolProps.allocType);
  params.handle_types = static_cast<uint32_t>(p->poolProps.handleTypes);
  params.location_type = static_cast<int32_t>(location.type);
  params.location_id = location.id;
  params.usage = p->poolProps.usage;
  params.access_count = static_cast<uint32_t>(p->accessDescCount);
  wire::tubeGraphNode_reply reply{};
  const CUresult result = ask_for_gpu_memory([&] {
    return send(t, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &params, sizeof params, access,
                p->accessDescCount * sizeof access[0], &reply);
  });
  if (result != CUDA_SUCCESS) return result;
  memory_nodes_exist();
  graph_memory_made(reply.dptr, p->bytesize);
  p->dptr = reply.dptr;
  return finish(t, result, reply.node, out);
}

CUresult free_node(NodeTarget& t, CUdeviceptr dptr, CUgraphNode* out) {
  memory_nodes_exist();
  return simple(t, CU_GRAPH_NODE_TYPE_MEM_FREE, wire::GraphFreeParams{dptr}, out);
}

CUresult conditional_node(NodeTarget& t, CUDA_CONDITIONAL_NODE_PARAMS* p, CUgraphNode* out) {
  if (t.op != GraphEdit::kAdd) return CUDA_ERROR_INVALID_VALUE;
  const wire::GraphConditionalParams params{p->handle, static_cast<uint32_t>(p->type), p->size};
  wire::tubeGraphNode_reply reply{};
  ReplyBlobs blobs;
  const CUresult result =
      send(t, CU_GRAPH_NODE_TYPE_CONDITIONAL, &params, sizeof params, nullptr, 0, &reply, &blobs);
  if (result != CUDA_SUCCESS) return result;
  finish(t, result, reply.node, out);
  return keep_bodies(*out, blobs.get(reply.graphs), p);
}

// ---- the calls ----

#define TUBE_ADD_ARGS \
  CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies
#define TUBE_ADDING                                                                      \
  NodeTarget t;                                                                          \
  if (const CUresult r = adding(&t, phGraphNode, hGraph, dependencies, numDependencies); \
      r != CUDA_SUCCESS)                                                                 \
  return r
#define TUBE_SETTING \
  NodeTarget t;      \
  if (const CUresult r = setting(&t, hNode); r != CUDA_SUCCESS) return r
#define TUBE_SETTING_EXEC \
  NodeTarget t;           \
  if (const CUresult r = setting(&t, hGraphExec, hNode); r != CUDA_SUCCESS) return r

CUresult cuGraphAddEmptyNode(TUBE_ADD_ARGS) {
  TUBE_ADDING;
  return empty_node(t, phGraphNode);
}
CUresult cuGraphAddChildGraphNode(TUBE_ADD_ARGS, CUgraph childGraph) {
  TUBE_ADDING;
  return child_node(t, childGraph, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, phGraphNode);
}
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUgraph childGraph) {
  TUBE_SETTING_EXEC;
  return child_node(t, childGraph, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, nullptr);
}

CUresult cuGraphAddHostNode(TUBE_ADD_ARGS, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TUBE_ADDING;
  return host_node(t, nodeParams->fn, nodeParams->userData, phGraphNode);
}
CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TUBE_SETTING;
  return host_node(t, nodeParams->fn, nodeParams->userData, nullptr);
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TUBE_SETTING_EXEC;
  return host_node(t, nodeParams->fn, nodeParams->userData, nullptr);
}

CUresult cuGraphAddEventWaitNode(TUBE_ADD_ARGS, CUevent event) {
  TUBE_ADDING;
  return event_node(t, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, phGraphNode);
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
  TUBE_SETTING;
  return event_node(t, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, nullptr);
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                          CUevent event) {
  TUBE_SETTING_EXEC;
  return event_node(t, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, nullptr);
}
CUresult cuGraphAddEventRecordNode(TUBE_ADD_ARGS, CUevent event) {
  TUBE_ADDING;
  return event_node(t, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, phGraphNode);
}
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
  TUBE_SETTING;
  return event_node(t, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, nullptr);
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUevent event) {
  TUBE_SETTING_EXEC;
  return event_node(t, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, nullptr);
}

CUresult cuGraphAddBatchMemOpNode(TUBE_ADD_ARGS, const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TUBE_ADDING;
  if (const CUresult r = runs_in(&t, nodeParams->ctx); r != CUDA_SUCCESS) return r;
  return mem_op_node(t, nodeParams->count, nodeParams->paramArray, nodeParams->flags, phGraphNode);
}
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TUBE_SETTING;
  if (const CUresult r = runs_in(&t, nodeParams->ctx); r != CUDA_SUCCESS) return r;
  return mem_op_node(t, nodeParams->count, nodeParams->paramArray, nodeParams->flags, nullptr);
}
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TUBE_SETTING_EXEC;
  if (const CUresult r = runs_in(&t, nodeParams->ctx); r != CUDA_SUCCESS) return r;
  return mem_op_node(t, nodeParams->count, nodeParams->paramArray, nodeParams->flags, nullptr);
}

CUresult cuGraphAddMemAllocNode(TUBE_ADD_ARGS, CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  TUBE_ADDING;
  return alloc_node(t, nodeParams, phGraphNode);
}
CUresult cuGraphAddMemFreeNode(TUBE_ADD_ARGS, CUdeviceptr dptr) {
  TUBE_ADDING;
  return free_node(t, dptr, phGraphNode);
}

}  // namespace tube::hook
