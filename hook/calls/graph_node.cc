// The typed graph-node calls of CUDA 12 (cuGraphAddNode and its Set forms): one union of parameters
// for every kind of node. Each is taken apart here and handed to the function for its kind; XLA
// builds its graphs this way.
#include "hook/graphs/graph_target.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

CUDA_KERNEL_NODE_PARAMS kernel_params(const CUDA_KERNEL_NODE_PARAMS_v3& p) {
  CUDA_KERNEL_NODE_PARAMS q = common_kernel_params(p);
  q.kern = p.kern;
  q.ctx = p.ctx;
  return q;
}

CUDA_MEMSET_NODE_PARAMS memset_params(const CUDA_MEMSET_NODE_PARAMS_v2& p) {
  CUDA_MEMSET_NODE_PARAMS q{};
  q.dst = p.dst;
  q.pitch = p.pitch;
  q.value = p.value;
  q.elementSize = p.elementSize;
  q.width = p.width;
  q.height = p.height;
  return q;
}

CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(const CUDA_MEM_ALLOC_NODE_PARAMS_v2& p) {
  CUDA_MEM_ALLOC_NODE_PARAMS q{};
  q.poolProps = p.poolProps;
  q.accessDescs = p.accessDescs;
  q.accessDescCount = p.accessDescCount;
  q.bytesize = p.bytesize;
  return q;
}

CUcontext context_of(const CUgraphNodeParams& p) {
  switch (p.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return p.kernel.ctx;
    case CU_GRAPH_NODE_TYPE_MEMCPY: return p.memcpy.copyCtx;
    case CU_GRAPH_NODE_TYPE_MEMSET: return p.memset.ctx;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return p.memOp.ctx;
    default: return nullptr;
  }
}

// The old calls' parameters out of the union; `out` is used when the target adds.
CUresult typed_node(NodeTarget& t, CUgraphNodeParams* p, CUgraphNode* out) {
  if (const CUresult r = runs_in(&t, context_of(*p)); r != CUDA_SUCCESS) return r;
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS q = kernel_params(p->kernel);
      return kernel_node(t, &q, out);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: return copy_node(t, &p->memcpy.copyParams, out);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS q = memset_params(p->memset);
      return memset_node(t, &q, out);
    }
    case CU_GRAPH_NODE_TYPE_HOST: return host_node(t, p->host.fn, p->host.userData, out);
    case CU_GRAPH_NODE_TYPE_GRAPH: return child_node(t, p->graph.graph, p->graph.ownership, out);
    case CU_GRAPH_NODE_TYPE_EMPTY: return empty_node(t, out);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return event_node(t, p->type, p->eventWait.event, out);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return event_node(t, p->type, p->eventRecord.event, out);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return mem_op_node(t, p->memOp.count, p->memOp.paramArray, p->memOp.flags, out);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS q = alloc_params(p->alloc);
      const CUresult result = alloc_node(t, &q, out);
      p->alloc.dptr = q.dptr;
      return result;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return free_node(t, p->free.dptr, out);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return conditional_node(t, &p->conditional, out);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return unsupported("an external semaphore node",
                         "external semaphores cannot cross processes here");
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeTarget t;
  if (const CUresult r =
          adding(&t, phGraphNode, hGraph, dependencies, numDependencies, dependencyData);
      r != CUDA_SUCCESS)
    return r;
  return typed_node(t, nodeParams, phGraphNode);
}

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return hook::cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, nullptr, numDependencies,
                                 nodeParams);
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeTarget t;
  if (const CUresult r = setting(&t, hNode); r != CUDA_SUCCESS) return r;
  return typed_node(t, nodeParams, nullptr);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeTarget t;
  if (const CUresult r = setting(&t, hGraphExec, hNode); r != CUDA_SUCCESS) return r;
  return typed_node(t, nodeParams, nullptr);
}

}  // namespace tube::hook
