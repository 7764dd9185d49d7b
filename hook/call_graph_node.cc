// The typed graph-node calls of CUDA 12 (cuGraphAddNode and its Set forms): one union of parameters for every kind of node.
// Each is taken apart here and handed to the call for its kind; XLA builds its graphs this way.
//
// Edges that say more than "after" (programmatic launch ports) lead to kernels only.
#include <cstring>

#include "hook/graph_node.h"
#include "hook/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

constexpr const char* kLater = "this kind of node comes with a later version";

CUDA_KERNEL_NODE_PARAMS kernel_params(const CUDA_KERNEL_NODE_PARAMS_v3& p) {
  CUDA_KERNEL_NODE_PARAMS q{};
  q.func = p.func;
  q.gridDimX = p.gridDimX, q.gridDimY = p.gridDimY, q.gridDimZ = p.gridDimZ;
  q.blockDimX = p.blockDimX, q.blockDimY = p.blockDimY, q.blockDimZ = p.blockDimZ;
  q.sharedMemBytes = p.sharedMemBytes;
  q.kernelParams = p.kernelParams;
  q.extra = p.extra;
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

bool plain_edges(const CUgraphEdgeData* edges, size_t count) {
  static constexpr CUgraphEdgeData kPlain{};
  for (size_t i = 0; edges != nullptr && i < count; ++i) {
    if (std::memcmp(&edges[i], &kPlain, sizeof kPlain) != 0) return false;
  }
  return true;
}

}  // namespace

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies, size_t numDependencies,
                        CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS p = kernel_params(nodeParams->kernel);
      return hook::cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &p);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return hook::cuGraphAddMemcpyNode(phGraphNode, hGraph, dependencies, numDependencies, &nodeParams->memcpy.copyParams,
                                        nodeParams->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS p = memset_params(nodeParams->memset);
      return hook::cuGraphAddMemsetNode(phGraphNode, hGraph, dependencies, numDependencies, &p, nodeParams->memset.ctx);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      if (nodeParams->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) return unsupported("a child graph that moves", kLater);
      return hook::cuGraphAddChildGraphNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return hook::cuGraphAddEmptyNode(phGraphNode, hGraph, dependencies, numDependencies);
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return unsupported("cuGraphAddNode of this type", kLater);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* dependencyData, size_t numDependencies, CUgraphNodeParams* nodeParams) {
  if (!plain_edges(dependencyData, numDependencies)) {
    if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (nodeParams->type != CU_GRAPH_NODE_TYPE_KERNEL) return unsupported("a graph edge with ports to anything but a kernel", kLater);
    const CUDA_KERNEL_NODE_PARAMS p = kernel_params(nodeParams->kernel);
    return add_kernel_node(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, &p);
  }
  return hook::cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodeParams->type == CU_GRAPH_NODE_TYPE_MEMCPY) return hook::cuGraphMemcpyNodeSetParams(hNode, &nodeParams->memcpy.copyParams);
  if (nodeParams->type == CU_GRAPH_NODE_TYPE_MEMSET) {
    const CUDA_MEMSET_NODE_PARAMS p = memset_params(nodeParams->memset);
    return hook::cuGraphMemsetNodeSetParams(hNode, &p);
  }
  if (nodeParams->type != CU_GRAPH_NODE_TYPE_KERNEL) return unsupported("cuGraphNodeSetParams of this type", kLater);
  const CUDA_KERNEL_NODE_PARAMS p = kernel_params(nodeParams->kernel);
  return hook::cuGraphKernelNodeSetParams_v2(hNode, &p);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodeParams->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    return hook::cuGraphExecMemcpyNodeSetParams(hGraphExec, hNode, &nodeParams->memcpy.copyParams, nodeParams->memcpy.copyCtx);
  }
  if (nodeParams->type == CU_GRAPH_NODE_TYPE_MEMSET) {
    const CUDA_MEMSET_NODE_PARAMS p = memset_params(nodeParams->memset);
    return hook::cuGraphExecMemsetNodeSetParams(hGraphExec, hNode, &p, nodeParams->memset.ctx);
  }
  if (nodeParams->type != CU_GRAPH_NODE_TYPE_KERNEL) return unsupported("cuGraphExecNodeSetParams of this type", kLater);
  const CUDA_KERNEL_NODE_PARAMS p = kernel_params(nodeParams->kernel);
  return hook::cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &p);
}

}  // namespace tube::hook
