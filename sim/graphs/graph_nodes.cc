// The typed calls of graph nodes: add, get, set, and set in an executable graph. All go through
// generic_work().
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "sim/graphs/graph.h"
#include "sim/machine/hold.h"

namespace tube::sim {
namespace {

CUresult add(CUgraphNode* out, CUgraph hGraph, const CUgraphNode* dependencies,
             const CUgraphEdgeData* data, size_t count, CUgraphNodeParams* params) {
  if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  Graph* graph = live_graph(s, hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The driver crashes (H200, 13.0).
  if (params->type == CU_GRAPH_NODE_TYPE_GRAPH && params->graph.graph == hGraph) std::abort();
  Work work;
  Context* owner = nullptr;
  if (CUresult r = generic_work(lock, current_context(), params, &work, &owner)) return r;
  Node* node = nullptr;
  auto* child = std::get_if<ChildWork>(&work);
  Graph* copy = child == nullptr ? nullptr : child->graph;
  auto* conditional = std::get_if<ConditionalWork>(&work);
  const std::vector<Graph*> bodies =
      conditional == nullptr ? std::vector<Graph*>{} : conditional->bodies;
  if (CUresult r = add_node(s, graph, owner, std::move(work), dependencies, data, count, &node)) {
    bool moved = copy != nullptr && params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    if (moved) copy->child = false;  // still the caller's
    else if (copy != nullptr) destroy_graph(s, copy);
    for (Graph* body : bodies) destroy_graph(s, body);
    return r;
  }
  *out = reinterpret_cast<CUgraphNode>(node);
  return CUDA_SUCCESS;
}

// Replaces a node's parameters; its type stays. It comes into the part of its GPU that is current
// or named; an instance's node does not, and is refused that (H100, H200, 13.0).
CUresult set(Lock& lock, Node* node, CUgraphNodeParams* params, bool in_instance) {
  if (node->type() != params->type) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  Context* owner = nullptr;
  Context* where = current_context();
  const bool beside = where != nullptr && node->context != nullptr &&
                      base_context(where) == base_context(node->context);
  if (!beside) where = node->context;
  if (CUresult r = generic_work(lock, where, params, &work, &owner)) return r;
  if (in_instance && owner != node->context && owner != nullptr && node->context != nullptr &&
      base_context(owner) == base_context(node->context)) {
    if (params->type != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_ERROR_INVALID_VALUE;
    owner = node->context;
  }
  if (auto* old = std::get_if<ChildWork>(&node->work)) destroy_graph(state(), old->graph);
  if (auto* kernel = std::get_if<KernelWork>(&work))
    kernel->attributes = std::get<KernelWork>(node->work).attributes;
  node->work = std::move(work);
  node->context = owner;
  return CUDA_SUCCESS;
}

// An instance's copy stays with the kind of memory it was made with: a context's and the host's on
// one hand, pools' and mapped on the other. Of what is not known, nothing is said.
bool other_backing(const State& s, const CUDA_MEMCPY3D& old, const CUDA_MEMCPY3D& now) {
  const auto mapped = [&](CUmemorytype type, const void* host,
                          CUdeviceptr device) -> std::optional<bool> {
    if (type == CU_MEMORYTYPE_ARRAY) return std::nullopt;
    const std::optional<Range> range =
        s.map.find(type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device);
    if (!range) return std::nullopt;
    switch (range->kind) {
      case RangeKind::kPool:
      case RangeKind::kMapped: return true;
      case RangeKind::kDevice:
      case RangeKind::kHost:
      case RangeKind::kManaged: return false;
      default: return std::nullopt;
    }
  };
  const auto differ = [](std::optional<bool> a, std::optional<bool> b) {
    return a && b && *a != *b;
  };
  return differ(mapped(old.srcMemoryType, old.srcHost, old.srcDevice),
                mapped(now.srcMemoryType, now.srcHost, now.srcDevice)) ||
         differ(mapped(old.dstMemoryType, old.dstHost, old.dstDevice),
                mapped(now.dstMemoryType, now.dstHost, now.dstDevice));
}

CUresult set_node(CUgraphNode hNode, CUgraphNodeParams* params) {
  State& s = state();
  Lock lock(s.mutex);
  Node* node = live_node(s, hNode);
  return node == nullptr ? CUDA_ERROR_INVALID_VALUE : set(lock, node, params, false);
}

CUresult set_exec(CUgraphExec hExec, CUgraphNode hNode, CUgraphNodeParams* params) {
  State& s = state();
  Lock lock(s.mutex);
  GraphExec* exec = live_exec(s, hExec);
  Node* original = live_node(s, hNode);
  if (exec == nullptr || original == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Node* node = find_in_exec(exec, *original);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto* copy = std::get_if<CopyWork>(&node->work);
  if (copy != nullptr && params->type == CU_GRAPH_NODE_TYPE_MEMCPY &&
      other_backing(s, copy->copy, params->memcpy.copyParams))
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = set(lock, node, params, true)) return r;
  if (auto* kernel = std::get_if<KernelWork>(&node->work))
    provide_local(lock, node->context, kernel->function->kernel->local_bytes);
  return CUDA_SUCCESS;
}

// The node's work of the asked type, or null.
template <typename W>
W* work_of(State& s, CUgraphNode handle) {
  Node* node = live_node(s, handle);
  return node == nullptr ? nullptr : std::get_if<W>(&node->work);
}

CUgraphNodeParams of_type(CUgraphNodeType type) {
  CUgraphNodeParams p{};
  p.type = type;
  return p;
}

// v1 kernel parameters are the first part of the later ones.
template <typename K>
CUgraphNodeParams wrap_kernel(const K& k) {
  CUgraphNodeParams p = of_type(CU_GRAPH_NODE_TYPE_KERNEL);
  std::memcpy(&p.kernel, &k, sizeof k);
  return p;
}
CUgraphNodeParams wrap_copy(const CUDA_MEMCPY3D& c, CUcontext context) {
  CUgraphNodeParams p = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
  p.memcpy.copyCtx = context;
  p.memcpy.copyParams = c;
  return p;
}
CUgraphNodeParams wrap_memset(const CUDA_MEMSET_NODE_PARAMS& m, CUcontext context) {
  CUgraphNodeParams p = of_type(CU_GRAPH_NODE_TYPE_MEMSET);
  p.memset = {m.dst, m.pitch, m.value, m.elementSize, m.width, m.height, context};
  return p;
}
CUgraphNodeParams wrap_host(const CUDA_HOST_NODE_PARAMS& h) {
  CUgraphNodeParams p = of_type(CU_GRAPH_NODE_TYPE_HOST);
  p.host = {h.fn, h.userData};
  return p;
}
CUgraphNodeParams wrap_child(CUgraph graph) {
  CUgraphNodeParams p = of_type(CU_GRAPH_NODE_TYPE_GRAPH);
  p.graph.graph = graph;
  return p;
}
CUgraphNodeParams wrap_event(CUgraphNodeType type, CUevent event) {
  CUgraphNodeParams p = of_type(type);
  if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) p.eventRecord.event = event;
  else p.eventWait.event = event;
  return p;
}
CUgraphNodeParams wrap_mem_ops(const CUDA_BATCH_MEM_OP_NODE_PARAMS& m) {
  CUgraphNodeParams p = of_type(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  p.memOp = {m.ctx, m.count, m.paramArray, m.flags};
  return p;
}

template <typename K>
CUresult get_kernel(CUgraphNode hNode, K* out) {
  State& s = state();
  Lock lock(s.mutex);
  auto* work = work_of<KernelWork>(s, hNode);
  if (work == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Node* node = live_node(s, hNode);
  node->param_pointers.clear();
  for (const auto& p : work->function->kernel->params)
    node->param_pointers.push_back(work->params.data() + p.offset);
  CUDA_KERNEL_NODE_PARAMS_v2 full{};
  full.func = reinterpret_cast<CUfunction>(work->function);
  full.kern = work->kernel;
  full.gridDimX = work->grid[0];
  full.gridDimY = work->grid[1];
  full.gridDimZ = work->grid[2];
  full.blockDimX = work->block[0];
  full.blockDimY = work->block[1];
  full.blockDimZ = work->block[2];
  full.sharedMemBytes = work->shared_bytes;
  full.kernelParams = node->param_pointers.data();
  full.ctx = reinterpret_cast<CUcontext>(node->context);
  std::memcpy(out, &full, sizeof *out);
  return CUDA_SUCCESS;
}

CUresult get_event(CUgraphNode hNode, bool record, CUevent* out) {
  State& s = state();
  Lock lock(s.mutex);
  auto* r = work_of<EventRecordWork>(s, hNode);
  auto* w = work_of<EventWaitWork>(s, hNode);
  if (out == nullptr || (record ? r == nullptr : w == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUevent>(record ? r->event : w->event);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

// `entry` is the parameter list common to all Add calls; `build` makes a CUgraphNodeParams named p
// from the rest.
#define SIM_ADD(build)         \
  SIM_ENTER(kInit);            \
  CUgraphNodeParams p = build; \
  return add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, &p)
#define SIM_ADD_ARGS \
  CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies
#define SIM_REQUIRE(pointer) \
  if ((pointer) == nullptr) return CUDA_ERROR_INVALID_VALUE

SIM_API CUresult cuGraphAddKernelNode(SIM_ADD_ARGS, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_ADD(wrap_kernel(*nodeParams));
}
SIM_API CUresult cuGraphAddKernelNode_v2(SIM_ADD_ARGS, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_ADD(wrap_kernel(*nodeParams));
}
SIM_API CUresult cuGraphAddMemcpyNode(SIM_ADD_ARGS, const CUDA_MEMCPY3D* copyParams,
                                      CUcontext ctx) {
  SIM_REQUIRE(copyParams);
  SIM_ADD(wrap_copy(*copyParams, ctx));
}
SIM_API CUresult cuGraphAddMemsetNode(SIM_ADD_ARGS, const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                                      CUcontext ctx) {
  SIM_REQUIRE(memsetParams);
  SIM_ADD(wrap_memset(*memsetParams, ctx));
}
SIM_API CUresult cuGraphAddHostNode(SIM_ADD_ARGS, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_ADD(wrap_host(*nodeParams));
}
SIM_API CUresult cuGraphAddChildGraphNode(SIM_ADD_ARGS, CUgraph childGraph) {
  SIM_ADD(wrap_child(childGraph));
}
SIM_API CUresult cuGraphAddEmptyNode(SIM_ADD_ARGS) { SIM_ADD(of_type(CU_GRAPH_NODE_TYPE_EMPTY)); }
SIM_API CUresult cuGraphAddEventRecordNode(SIM_ADD_ARGS, CUevent event) {
  SIM_ADD(wrap_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
}
SIM_API CUresult cuGraphAddEventWaitNode(SIM_ADD_ARGS, CUevent event) {
  SIM_ADD(wrap_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
}
SIM_API CUresult cuGraphAddBatchMemOpNode(SIM_ADD_ARGS,
                                          const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_ADD(wrap_mem_ops(*nodeParams));
}
SIM_API CUresult cuGraphAddMemFreeNode(SIM_ADD_ARGS, CUdeviceptr dptr) {
  SIM_ENTER(kInit);
  CUgraphNodeParams p = of_type(CU_GRAPH_NODE_TYPE_MEM_FREE);
  p.free.dptr = dptr;
  return add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, &p);
}
SIM_API CUresult cuGraphAddMemAllocNode(SIM_ADD_ARGS, CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  SIM_ENTER(kInit);
  SIM_REQUIRE(nodeParams);
  CUgraphNodeParams p = of_type(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  std::memcpy(&p.alloc, nodeParams, sizeof *nodeParams);
  CUresult r = add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, &p);
  if (r == CUDA_SUCCESS) nodeParams->dptr = p.alloc.dptr;
  return r;
}
SIM_API CUresult cuGraphAddNode(SIM_ADD_ARGS, CUgraphNodeParams* nodeParams) {
  SIM_ENTER(kInit);
  return add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}
SIM_API CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                   const CUgraphNode* dependencies,
                                   const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                   CUgraphNodeParams* nodeParams) {
  SIM_ENTER(kInit);
  return add(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

#define SIM_SET(build)         \
  SIM_ENTER(kInit);            \
  CUgraphNodeParams p = build; \
  return set_node(hNode, &p)
#define SIM_SET_EXEC(build)    \
  SIM_ENTER(kInit);            \
  CUgraphNodeParams p = build; \
  return set_exec(hGraphExec, hNode, &p)

SIM_API CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  SIM_ENTER(kInit);
  SIM_REQUIRE(nodeParams);
  return set_node(hNode, nodeParams);
}
SIM_API CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                          CUgraphNodeParams* nodeParams) {
  SIM_ENTER(kInit);
  SIM_REQUIRE(nodeParams);
  return set_exec(hGraphExec, hNode, nodeParams);
}
SIM_API CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                            const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_SET(wrap_kernel(*nodeParams));
}
SIM_API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                               const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_SET(wrap_kernel(*nodeParams));
}
SIM_API CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_SET_EXEC(wrap_kernel(*nodeParams));
}
SIM_API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                   const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_SET_EXEC(wrap_kernel(*nodeParams));
}
SIM_API CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_SET(wrap_copy(*nodeParams, nullptr));
}
SIM_API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  SIM_REQUIRE(copyParams);
  SIM_SET_EXEC(wrap_copy(*copyParams, ctx));
}
SIM_API CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode,
                                            const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_SET(wrap_memset(*nodeParams, nullptr));
}
SIM_API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                                                CUcontext ctx) {
  SIM_REQUIRE(memsetParams);
  SIM_SET_EXEC(wrap_memset(*memsetParams, ctx));
}
SIM_API CUresult cuGraphHostNodeSetParams(CUgraphNode hNode,
                                          const CUDA_HOST_NODE_PARAMS* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_SET(wrap_host(*nodeParams));
}
SIM_API CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                              const CUDA_HOST_NODE_PARAMS* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_SET_EXEC(wrap_host(*nodeParams));
}
SIM_API CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                    CUgraph childGraph) {
  SIM_SET_EXEC(wrap_child(childGraph));
}
SIM_API CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
  SIM_SET(wrap_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
}
SIM_API CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                    CUevent event) {
  SIM_SET_EXEC(wrap_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
}
SIM_API CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
  SIM_SET(wrap_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
}
SIM_API CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                  CUevent event) {
  SIM_SET_EXEC(wrap_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
}
SIM_API CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                                const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_SET(wrap_mem_ops(*nodeParams));
}
SIM_API CUresult cuGraphExecBatchMemOpNodeSetParams(
    CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  SIM_REQUIRE(nodeParams);
  SIM_SET_EXEC(wrap_mem_ops(*nodeParams));
}

#define SIM_GET(type, out)              \
  SIM_ENTER(kInit);                     \
  State& s = state();                   \
  Lock lock(s.mutex);                   \
  auto* work = work_of<type>(s, hNode); \
  if (work == nullptr || (out) == nullptr) return CUDA_ERROR_INVALID_VALUE

SIM_API CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode,
                                            CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIM_ENTER(kInit);
  return get_kernel(hNode, nodeParams);
}
SIM_API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode,
                                               CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SIM_ENTER(kInit);
  return get_kernel(hNode, nodeParams);
}
SIM_API CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  SIM_GET(CopyWork, nodeParams);
  *nodeParams = work->copy;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode,
                                            CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  SIM_GET(MemsetWork, nodeParams);
  *nodeParams = work->params;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  SIM_GET(HostWork, nodeParams);
  *nodeParams = {work->function, work->data};
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  SIM_GET(ChildWork, phGraph);
  *phGraph = reinterpret_cast<CUgraph>(work->graph);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  SIM_ENTER(kInit);
  return get_event(hNode, true, event_out);
}
SIM_API CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  SIM_ENTER(kInit);
  return get_event(hNode, false, event_out);
}
SIM_API CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                                CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  SIM_GET(MemOpWork, nodeParams_out);
  *nodeParams_out = {reinterpret_cast<CUcontext>(live_node(s, hNode)->context),
                     static_cast<unsigned>(work->ops.size()), work->ops.data(), work->flags};
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode,
                                              CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  SIM_GET(AllocWork, params_out);
  *params_out = work->params;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  SIM_GET(FreeWork, dptr_out);
  *dptr_out = work->address;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  auto *to = work_of<KernelWork>(s, dst), *from = work_of<KernelWork>(s, src);
  if (to == nullptr || from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  to->attributes = from->attributes;
  to->cooperative = from->cooperative;
  to->cluster = from->cluster;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                               CUkernelNodeAttrValue* value_out) {
  SIM_GET(KernelWork, value_out);
  std::memset(value_out, 0, sizeof *value_out);
  for (const CUlaunchAttribute& a : work->attributes)
    if (a.id == attr) *value_out = a.value;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                               const CUkernelNodeAttrValue* value) {
  SIM_GET(KernelWork, value);
  if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) work->cooperative = value->cooperative != 0;
  if (attr == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
    work->cluster = {value->clusterDim.x, value->clusterDim.y, value->clusterDim.z};
  std::erase_if(work->attributes, [attr](const CUlaunchAttribute& a) { return a.id == attr; });
  CUlaunchAttribute a{};
  a.id = attr;
  a.value = *value;
  work->attributes.push_back(a);
  return CUDA_SUCCESS;
}
