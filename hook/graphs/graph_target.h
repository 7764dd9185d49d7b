// What a call about a graph node names (a graph to add to, a node to change, a node to change in an
// instance), and the functions that carry each kind of parameters. The typed calls
// (calls/graph_node.cc) and the old ones end in these.
//
// Graphs are built before the steady state, so all of it waits for an answer, but for updates of an
// instance which the driver is known to take (update_proofs.h). Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hook/graphs/graph_steps.h"
#include "hook/objects/id_list.h"
#include "hook/objects/support.h"
#include "protocol/graph_params.h"

namespace tube::hook {

using wire::GraphEdit;

struct NodeTarget {
  GraphEdit op{};
  uint64_t graph = 0, exec = 0, node = 0;
  CUgraphNode handle = nullptr;  // of `node`
  Exec* instance = nullptr;      // of `exec`, when it is more than its handle
  IdList dependencies;
  uint32_t dependency_bytes = 0;
  const CUgraphEdgeData* edges = nullptr;  // one per dependency, or none
  Context* context = nullptr;              // that the node runs in; nullptr: the current one
};

constexpr size_t kMaxDependencies = 4096;

// What every version of the kernel node's parameters has.
template <class Params>
CUDA_KERNEL_NODE_PARAMS common_kernel_params(const Params& p) {
  CUDA_KERNEL_NODE_PARAMS q{};
  q.func = p.func;
  q.gridDimX = p.gridDimX, q.gridDimY = p.gridDimY, q.gridDimZ = p.gridDimZ;
  q.blockDimX = p.blockDimX, q.blockDimY = p.blockDimY, q.blockDimZ = p.blockDimZ;
  q.sharedMemBytes = p.sharedMemBytes;
  q.kernelParams = p.kernelParams;
  q.extra = p.extra;
  return q;
}

inline CUresult adding(NodeTarget* t, CUgraphNode* out, CUgraph graph,
                       const CUgraphNode* dependencies, size_t count,
                       const CUgraphEdgeData* edges = nullptr) {
  t->op = GraphEdit::kAdd;
  t->edges = edges;
  if (out == nullptr || (count != 0 && dependencies == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (count > kMaxDependencies) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult r = id_of(Kind::kGraph, graph, &t->graph); r != CUDA_SUCCESS) return r;
  t->dependency_bytes = static_cast<uint32_t>(count * 8);
  return t->dependencies.fill(Kind::kGraphNode, dependencies, count);
}

inline CUresult setting(NodeTarget* t, CUgraphNode node) {
  t->op = GraphEdit::kSet;
  return id_of(Kind::kGraphNode, node, &t->node);
}

inline CUresult setting(NodeTarget* t, CUgraphExec exec, CUgraphNode node) {
  t->op = GraphEdit::kSetInExec;
  const Slot* slot = objects().find(Kind::kGraphExec, exec);
  if (slot == nullptr) return CUDA_ERROR_INVALID_VALUE;
  t->exec = slot->id;
  t->instance = static_cast<Exec*>(slot->object);
  t->handle = node;
  return id_of(Kind::kGraphNode, node, &t->node);
}

// The context of a node's parameters; none means the current one.
inline CUresult runs_in(NodeTarget* t, CUcontext context) {
  if (context == nullptr) return CUDA_SUCCESS;
  t->context = find_context(context);
  return t->context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

// Room for what fill() puts.
inline uint32_t target_room(const NodeTarget& t) { return 2 * blob_room(t.dependency_bytes); }

template <class X>
void fill(Request<X>& r, NodeTarget& t) {
  if (t.context != nullptr) r.in_context(t.context);
  r->op = t.op;
  r->graph = t.graph;
  r->exec = t.exec;
  r->node = t.node;
  if (t.dependency_bytes == 0) return;
  r.put(&X::dependencies, t.dependencies.data(), t.dependency_bytes);
  if (t.edges != nullptr) r.put(&X::edges, t.edges, t.dependency_bytes);
}

inline CUresult finish(const NodeTarget& t, CUresult result, uint64_t node, CUgraphNode* out) {
  if (result == CUDA_SUCCESS && t.op == GraphEdit::kAdd && out != nullptr)
    *out = static_cast<CUgraphNode>(adopt(Kind::kGraphNode, node));
  return result;
}

// calls/graph.cc. `out` is used when the target adds.
CUresult kernel_node(NodeTarget& t, const CUDA_KERNEL_NODE_PARAMS* p, CUgraphNode* out);
CUresult copy_node(NodeTarget& t, const CUDA_MEMCPY3D* p, CUgraphNode* out);
CUresult memset_node(NodeTarget& t, const CUDA_MEMSET_NODE_PARAMS* p, CUgraphNode* out);
// calls/graph_kinds.cc
CUresult step_node(NodeTarget& t, CUgraphNodeType type, const wire::GraphStepParams& step,
                   CUgraphNode* out);
CUresult host_node(NodeTarget& t, CUhostFn function, void* data, CUgraphNode* out);
CUresult child_node(NodeTarget& t, CUgraph child, CUgraphChildGraphNodeOwnership ownership,
                    CUgraphNode* out);
CUresult empty_node(NodeTarget& t, CUgraphNode* out);
CUresult event_node(NodeTarget& t, CUgraphNodeType type, CUevent event, CUgraphNode* out);
CUresult mem_op_node(NodeTarget& t, unsigned count, const CUstreamBatchMemOpParams* ops,
                     unsigned flags, CUgraphNode* out);
CUresult alloc_node(NodeTarget& t, CUDA_MEM_ALLOC_NODE_PARAMS* p, CUgraphNode* out);
CUresult free_node(NodeTarget& t, CUdeviceptr dptr, CUgraphNode* out);
CUresult conditional_node(NodeTarget& t, CUDA_CONDITIONAL_NODE_PARAMS* p, CUgraphNode* out);

// Memory that belongs to a node's handle and lives as long: what cuGraph*GetParams points to
// (calls/graph_get.cc). At least `bytes`; what it held before is gone when they differ. nullptr: no
// such node, or out of memory.
void* node_storage(CUgraphNode node, size_t bytes);

// The memory of an allocation node as this process knows it.
void graph_memory_made(CUdeviceptr address, uint64_t bytes);
// Free of graph-owned memory, in or behind a stream, or at once. False: the address is none.
bool is_graph_memory(CUdeviceptr address);

}  // namespace tube::hook
