// Graph nodes whose parameters hold pointers into this process, and the calls that answer more than one thing when they
// fail. Everything else about graphs is generated. All of it waits for an answer: graphs are built before the steady state.
#include <cstring>

#include "hook/copy.h"
#include "hook/graph_node.h"
#include "hook/id_list.h"
#include "hook/launch.h"
#include "hook/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

enum class Op : uint32_t { kAdd = 0, kSet = 1, kExecSet = 2 };

// What a node call is about, as ids.
struct Target {
  Op op{};
  uint64_t graph = 0, exec = 0, node = 0;
  IdList dependencies;
  uint32_t dependency_bytes = 0;
  const CUgraphEdgeData* edges = nullptr;  // one per dependency, or none
};

CUresult adding(Target* t, CUgraph graph, const CUgraphNode* dependencies, size_t count) {
  t->op = Op::kAdd;
  if (count != 0 && dependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (count > 4096) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult r = id_of(Kind::kGraph, graph, &t->graph); r != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  t->dependency_bytes = static_cast<uint32_t>(count * 8);
  return t->dependencies.fill(Kind::kGraphNode, dependencies, count);
}

template <class X>
void fill_target(Request<X>& r, Target& t) {
  r->op = static_cast<uint32_t>(t.op);
  r->graph = t.graph;
  r->exec = t.exec;
  r->node = t.node;
  r.put(&X::dependencies, t.dependencies.data(), t.dependency_bytes);
}

CUresult finish_add(CUresult result, uint64_t node, CUgraphNode* out) {
  if (result == CUDA_SUCCESS && out != nullptr) *out = static_cast<CUgraphNode>(adopt(Kind::kGraphNode, node));
  return result;
}

CUresult kernel_node(Target& t, const CUDA_KERNEL_NODE_PARAMS* p, CUgraphNode* out) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Kernel* kernel = find_kernel(p->func != nullptr ? static_cast<const void*>(p->func) : p->kern);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const LaunchShape shape{{p->gridDimX, p->gridDimY, p->gridDimZ}, {p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes};
  uint32_t bytes = 0;
  if (const CUresult r = parameter_bytes(kernel, p->kernelParams, p->extra, &bytes); r != CUDA_SUCCESS) return r;
  wire::tubeGraphKernelNode_reply reply{};
  CUresult result;
  {
    Request<wire::tubeGraphKernelNode> r(blob_room(2 * t.dependency_bytes) + blob_room(bytes) + blob_room(0));
    fill_target(r, t);
    static_assert(sizeof(CUgraphEdgeData) == 8);
    if (t.edges != nullptr) r.put(&wire::tubeGraphKernelNode::edges, t.edges, t.dependency_bytes);
    r->kernel = kernel->id;
    std::memcpy(r->grid, shape.grid, sizeof shape.grid);
    std::memcpy(r->block, shape.block, sizeof shape.block);
    r->shared_bytes = shape.shared_bytes;
    if (bytes != 0) {
      auto* room = static_cast<std::byte*>(r.room(&wire::tubeGraphKernelNode::parameters, bytes));
      pack_parameters(kernel, p->kernelParams, p->extra, bytes, room);
    }
    result = r.call(&reply);
  }
  return t.op == Op::kAdd ? finish_add(result, reply.node, out) : result;
}

CUDA_KERNEL_NODE_PARAMS from_v1(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  CUDA_KERNEL_NODE_PARAMS q{};
  q.func = p.func;
  q.gridDimX = p.gridDimX, q.gridDimY = p.gridDimY, q.gridDimZ = p.gridDimZ;
  q.blockDimX = p.blockDimX, q.blockDimY = p.blockDimY, q.blockDimZ = p.blockDimZ;
  q.sharedMemBytes = p.sharedMemBytes;
  q.kernelParams = p.kernelParams;
  q.extra = p.extra;
  return q;
}

// One side of a copy node as it travels: a GPU-visible address or an array's id.
CUresult node_side(CUmemorytype type, const void* host, CUdeviceptr device, CUarray handle, uint32_t* kind, uint64_t* place) {
  constexpr uint32_t kAddressSide = 0, kArraySide = 2;
  *kind = type == CU_MEMORYTYPE_ARRAY ? kArraySide : kAddressSide;
  if (type == CU_MEMORYTYPE_ARRAY) return id_of(Kind::kArray, handle, place) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEMORYTYPE_HOST) *place = reinterpret_cast<uint64_t>(host);
  else if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) *place = device;
  if (*place == 0) return CUDA_ERROR_INVALID_VALUE;
  if (gpu_visible(side_of(*place, Says::kNothing))) return CUDA_SUCCESS;
  return unsupported("a graph copy from or to pageable memory", "the proxy cannot read this process's memory; use pinned memory");
}

// `exec`: a node of that instance changes, nullptr: of its graph.
CUresult setting(Target* t, const CUgraphExec* exec, CUgraphNode node) {
  t->op = exec == nullptr ? Op::kSet : Op::kExecSet;
  if (exec != nullptr) {
    if (const CUresult r = id_of(Kind::kGraphExec, *exec, &t->exec); r != CUDA_SUCCESS) return r;
  }
  return id_of(Kind::kGraphNode, node, &t->node);
}

CUresult copy_node(Target& t, const CUDA_MEMCPY3D* p, CUgraphNode* out) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint32_t src_kind = 0, dst_kind = 0;
  uint64_t src = 0, dst = 0;
  if (const CUresult r = node_side(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, &src_kind, &src); r != CUDA_SUCCESS) return r;
  if (const CUresult r = node_side(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, &dst_kind, &dst); r != CUDA_SUCCESS) return r;
  wire::tubeGraphCopyNode_reply reply{};
  CUresult result;
  {
    Request<wire::tubeGraphCopyNode> r(blob_room(t.dependency_bytes));
    fill_target(r, t);
    r->src_kind = src_kind;
    r->dst_kind = dst_kind;
    r->src = src;
    r->dst = dst;
    r->src_pitch = p->srcPitch != 0 ? p->srcPitch : p->srcXInBytes + p->WidthInBytes;
    r->dst_pitch = p->dstPitch != 0 ? p->dstPitch : p->dstXInBytes + p->WidthInBytes;
    r->src_height = p->srcHeight != 0 ? p->srcHeight : p->srcY + p->Height;
    r->dst_height = p->dstHeight != 0 ? p->dstHeight : p->dstY + p->Height;
    r->src_origin[0] = p->srcXInBytes, r->src_origin[1] = p->srcY, r->src_origin[2] = p->srcZ;
    r->dst_origin[0] = p->dstXInBytes, r->dst_origin[1] = p->dstY, r->dst_origin[2] = p->dstZ;
    r->extent[0] = p->WidthInBytes, r->extent[1] = p->Height, r->extent[2] = p->Depth;
    result = r.call(&reply);
  }
  return t.op == Op::kAdd ? finish_add(result, reply.node, out) : result;
}

CUresult memset_node(Target& t, const CUDA_MEMSET_NODE_PARAMS* p, CUgraphNode* out) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::tubeGraphMemsetNode_reply reply{};
  CUresult result;
  {
    Request<wire::tubeGraphMemsetNode> r(blob_room(t.dependency_bytes));
    fill_target(r, t);
    r->dst = p->dst;
    r->pitch = p->pitch;
    r->value = p->value;
    r->element_bytes = p->elementSize;
    r->width = p->width;
    r->height = p->height;
    result = r.call(&reply);
  }
  return t.op == Op::kAdd ? finish_add(result, reply.node, out) : result;
}

}  // namespace

CUresult add_kernel_node(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* edges, size_t count,
                         const CUDA_KERNEL_NODE_PARAMS* params) {
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Target t;
  if (const CUresult r = adding(&t, graph, dependencies, count); r != CUDA_SUCCESS) return r;
  t.edges = edges;
  return kernel_node(t, params, node);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return add_kernel_node(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}

CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS converted = from_v1(*nodeParams);
  return hook::cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &converted);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  Target t;
  if (const CUresult r = setting(&t, nullptr, hNode); r != CUDA_SUCCESS) return r;
  return kernel_node(t, nodeParams, nullptr);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS converted = from_v1(*nodeParams);
  return hook::cuGraphKernelNodeSetParams_v2(hNode, &converted);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  Target t;
  if (const CUresult r = setting(&t, &hGraphExec, hNode); r != CUDA_SUCCESS) return r;
  return kernel_node(t, nodeParams, nullptr);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS converted = from_v1(*nodeParams);
  return hook::cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &converted);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D* p, CUcontext) {
  if (phGraphNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Target t;
  if (const CUresult r = adding(&t, hGraph, dependencies, numDependencies); r != CUDA_SUCCESS) return r;
  return copy_node(t, p, phGraphNode);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* p) {
  Target t;
  if (const CUresult r = setting(&t, nullptr, hNode); r != CUDA_SUCCESS) return r;
  return copy_node(t, p, nullptr);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D* p, CUcontext) {
  Target t;
  if (const CUresult r = setting(&t, &hGraphExec, hNode); r != CUDA_SUCCESS) return r;
  return copy_node(t, p, nullptr);
}

CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS* p, CUcontext) {
  if (phGraphNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Target t;
  if (const CUresult r = adding(&t, hGraph, dependencies, numDependencies); r != CUDA_SUCCESS) return r;
  return memset_node(t, p, phGraphNode);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* p) {
  Target t;
  if (const CUresult r = setting(&t, nullptr, hNode); r != CUDA_SUCCESS) return r;
  return memset_node(t, p, nullptr);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* p, CUcontext) {
  Target t;
  if (const CUresult r = setting(&t, &hGraphExec, hNode); r != CUDA_SUCCESS) return r;
  return memset_node(t, p, nullptr);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (phGraphExec == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t graph = 0, stream = 0;
  if (const CUresult r = id_of(Kind::kGraph, hGraph, &graph); r != CUDA_SUCCESS) return r;
  if (params->hUploadStream != nullptr) {
    if (const CUresult r = id_of(Kind::kStream, params->hUploadStream, &stream); r != CUDA_SUCCESS) return r;
  }
  void* handle = nullptr;
  const uint64_t exec = new_id(Kind::kGraphExec, &handle);
  if (exec == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::tubeGraphInstantiate_reply reply{};
  CUresult result;
  {
    Request<wire::tubeGraphInstantiate> r;
    r->exec = exec;
    r->graph = graph;
    r->flags = params->flags;
    r->stream = stream;
    result = r.call(&reply);
  }
  if (result == CUDA_SUCCESS) {
    params->result_out = static_cast<CUgraphInstantiateResult>(reply.status);
    params->hErrNode_out = static_cast<CUgraphNode>(adopt(Kind::kGraphNode, reply.error_node));
    result = static_cast<CUresult>(reply.result);
  }
  if (result != CUDA_SUCCESS) {
    drop(Kind::kGraphExec, exec);
    return result;
  }
  *phGraphExec = static_cast<CUgraphExec>(handle);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo* resultInfo) {
  if (resultInfo == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t exec = 0, graph = 0;
  if (const CUresult r = id_of(Kind::kGraphExec, hGraphExec, &exec); r != CUDA_SUCCESS) return r;
  if (const CUresult r = id_of(Kind::kGraph, hGraph, &graph); r != CUDA_SUCCESS) return r;
  wire::tubeGraphExecUpdate_reply reply{};
  CUresult result;
  {
    Request<wire::tubeGraphExecUpdate> r;
    r->exec = exec;
    r->graph = graph;
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return result;
  resultInfo->result = static_cast<CUgraphExecUpdateResult>(reply.status);
  resultInfo->errorNode = static_cast<CUgraphNode>(adopt(Kind::kGraphNode, reply.error_node));
  resultInfo->errorFromNode = static_cast<CUgraphNode>(adopt(Kind::kGraphNode, reply.error_from_node));
  return static_cast<CUresult>(reply.result);
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out, CUgraphExecUpdateResult* updateResult_out) {
  if (updateResult_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = hook::cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  *updateResult_out = info.result;
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  return result;
}

}  // namespace tube::hook
