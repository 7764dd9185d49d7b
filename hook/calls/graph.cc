// Kernel, copy and memset nodes: their parameters hold pointers into this process. The other kinds
// are in graph_kinds.cc. Updates of these three in an instance are posted where the driver is
// known to take them (update_proofs.h).
#include <cstring>

#include "hook/code/launch.h"
#include "hook/graphs/graph_target.h"
#include "hook/graphs/update_proofs.h"
#include "hook/memory/copy.h"
#include "hook/memory/memory_map.h"
#include "hook/objects/device_output.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {

void forget_updates_of(uint64_t exec) {
  UpdateProofs::Nodes gone;  // freed behind the lock
  Locked locked(connection().producer);
  gone = update_proofs().drop(exec);
}

void forget_all_updates() {
  UpdateProofs::Execs gone;  // freed behind the lock
  Locked locked(connection().producer);
  gone = update_proofs().drop_all();
}

namespace {

const Context* context_of(const NodeTarget& t) {
  return t.context != nullptr ? t.context : current_context();
}

// Sends what a node shall be. Posted when it updates an instance in a way that the driver is known
// to take; else the answer is waited for, and says what is known from then on. `shape` is null when
// nothing can be.
template <class X, class Reply>
CUresult send_node(Request<X>& r, const NodeTarget& t, const UpdateShape* shape, Reply* reply) {
  if (t.op != GraphEdit::kSetInExec) return r.call(reply);
  // The request holds the producer lock until it is sent.
  if (shape != nullptr && update_proofs().hold(t.exec, t.node, *shape)) return r.post();
  const uint64_t version = update_proofs().version();
  const CUresult result = r.call(reply);
  Locked locked(connection().producer);
  if (shape != nullptr && result == CUDA_SUCCESS)
    update_proofs().add(t.exec, t.node, *shape, version);
  else update_proofs().drop(t.exec, t.node);
  return result;
}

}  // namespace

CUresult kernel_node(NodeTarget& t, const CUDA_KERNEL_NODE_PARAMS* p, CUgraphNode* out) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Kernel* kernel = find_kernel(p->func != nullptr ? static_cast<const void*>(p->func) : p->kern);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult r = runs_in(&t, p->ctx); r != CUDA_SUCCESS) return r;
  const LaunchShape shape{{p->gridDimX, p->gridDimY, p->gridDimZ},
                          {p->blockDimX, p->blockDimY, p->blockDimZ},
                          p->sharedMemBytes};
  uint32_t bytes = 0;
  if (const CUresult r = parameter_bytes(kernel, p->kernelParams, p->extra, &bytes);
      r != CUDA_SUCCESS)
    return r;
  if (p->extra != nullptr && bytes != kernel->parameter_bytes)
    return CUDA_ERROR_INVALID_VALUE;  // a launch takes more than there are
  if (kernel->writes != 0) expect_output(kernel->writes, true, context_of(t));
  UpdateShape update;
  const bool provable =
      shape_of(kernel, shape, bytes, context_of(t), &update) && surely_launchable(kernel, shape);
  wire::tubeGraphKernelNode_reply reply{};
  CUresult result;
  {
    Request<wire::tubeGraphKernelNode> r(target_room(t) + blob_room(bytes));
    fill(r, t);
    r->kernel = kernel->id;
    std::memcpy(r->grid, shape.grid, sizeof shape.grid);
    std::memcpy(r->block, shape.block, sizeof shape.block);
    r->shared_bytes = shape.shared_bytes;
    if (bytes != 0) {
      auto* room = static_cast<std::byte*>(r.room(&wire::tubeGraphKernelNode::parameters, bytes));
      pack_parameters(kernel, p->kernelParams, p->extra, bytes, room);
    }
    result = send_node(r, t, provable ? &update : nullptr, &reply);
  }
  return finish(t, result, reply.node, out);
}

namespace {

struct CopyEnd {
  wire::SideKind kind = wire::SideKind::kAddress;
  uint64_t address = 0;
};
CUresult end_of(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array,
                CopyEnd* end) {
  if (type == CU_MEMORYTYPE_ARRAY) {
    end->kind = wire::SideKind::kArray;
    return id_of(Kind::kArray, array, &end->address) == CUDA_SUCCESS ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
  }
  if (type == CU_MEMORYTYPE_HOST) end->address = reinterpret_cast<uint64_t>(host);
  else if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) end->address = device;
  return end->address == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// What the driver compares when an instance's copy is given other memory (recorded in the chapter
// mapped_copies): a context's and the host's on one hand, pools' and mapped memory on the other.
// The proxy's driver cannot tell, all memory of the GPU is mapped there.
enum class Backing { kUnknown, kOfContext, kMapped };
Backing backing_of(CUmemorytype type, const void* host, CUdeviceptr device) {
  Allocation a;
  if (type == CU_MEMORYTYPE_ARRAY ||
      !memory_map().find(type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device,
                         &a))
    return Backing::kUnknown;
  switch (a.kind) {
    case MemoryKind::kMapped: return Backing::kMapped;
    case MemoryKind::kDevice:
      return (a.flags & kFromPool) != 0 ? Backing::kMapped : Backing::kOfContext;
    case MemoryKind::kPinned:
    case MemoryKind::kManaged: return Backing::kOfContext;
    default: return Backing::kUnknown;
  }
}
bool differ(Backing a, Backing b) {
  return a != Backing::kUnknown && b != Backing::kUnknown && a != b;
}

// Asks once what the node of the instance copies.
bool other_backing(const NodeTarget& t, const CUDA_MEMCPY3D& now) {
  CUDA_MEMCPY3D old{};
  if (hook::cuGraphMemcpyNodeGetParams(t.handle, &old) != CUDA_SUCCESS) return false;
  return differ(backing_of(old.srcMemoryType, old.srcHost, old.srcDevice),
                backing_of(now.srcMemoryType, now.srcHost, now.srcDevice)) ||
         differ(backing_of(old.dstMemoryType, old.dstHost, old.dstDevice),
                backing_of(now.dstMemoryType, now.dstHost, now.dstDevice));
}

bool is_proven(const NodeTarget& t, const UpdateShape& shape) {
  Locked locked(connection().producer);
  return update_proofs().hold(t.exec, t.node, shape);
}

}  // namespace

CUresult copy_node(NodeTarget& t, const CUDA_MEMCPY3D* p, CUgraphNode* out) {
  if (p == nullptr || p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0)
    return CUDA_ERROR_INVALID_VALUE;
  CopyEnd src, dst;
  if (const CUresult r = end_of(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, &src);
      r != CUDA_SUCCESS)
    return r;
  if (const CUresult r = end_of(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, &dst);
      r != CUDA_SUCCESS)
    return r;
  if (needs_step(*p)) {
    wire::GraphStepParams step;
    if (const CUresult r = tag_of(*p, &step); r != CUDA_SUCCESS) return r;
    return step_node(t, CU_GRAPH_NODE_TYPE_MEMCPY, step, out);
  }
  if (t.op == GraphEdit::kSet)
    forget_all_updates();  // what was a step may become another node under the same handle
  UpdateShape update;
  const bool provable = shape_of(*p, context_of(t), &update);
  if (t.op == GraphEdit::kSetInExec && !(provable && is_proven(t, update)) && other_backing(t, *p))
    return CUDA_ERROR_INVALID_VALUE;
  wire::tubeGraphCopyNode_reply reply{};
  CUresult result;
  {
    Request<wire::tubeGraphCopyNode> r(target_room(t));
    fill(r, t);
    r->src_kind = src.kind, r->dst_kind = dst.kind;
    r->src_type = p->srcMemoryType, r->dst_type = p->dstMemoryType;
    r->src = src.address, r->dst = dst.address;
    r->src_pitch = p->srcPitch, r->dst_pitch = p->dstPitch;
    r->src_height = p->srcHeight, r->dst_height = p->dstHeight;
    r->src_origin[0] = p->srcXInBytes, r->src_origin[1] = p->srcY, r->src_origin[2] = p->srcZ;
    r->dst_origin[0] = p->dstXInBytes, r->dst_origin[1] = p->dstY, r->dst_origin[2] = p->dstZ;
    r->extent[0] = p->WidthInBytes, r->extent[1] = p->Height, r->extent[2] = p->Depth;
    result = send_node(r, t, provable ? &update : nullptr, &reply);
  }
  return finish(t, result, reply.node, out);
}

CUresult memset_node(NodeTarget& t, const CUDA_MEMSET_NODE_PARAMS* p, CUgraphNode* out) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  UpdateShape update;
  const bool provable = shape_of(*p, context_of(t), &update);
  wire::tubeGraphMemsetNode_reply reply{};
  CUresult result;
  {
    Request<wire::tubeGraphMemsetNode> r(target_room(t));
    fill(r, t);
    r->dst = p->dst;
    r->pitch = p->pitch;
    r->value = p->value;
    r->element_bytes = p->elementSize;
    r->width = p->width;
    r->height = p->height;
    result = send_node(r, t, provable ? &update : nullptr, &reply);
  }
  return finish(t, result, reply.node, out);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  NodeTarget t;
  if (const CUresult r = adding(&t, phGraphNode, hGraph, dependencies, numDependencies);
      r != CUDA_SUCCESS)
    return r;
  return kernel_node(t, nodeParams, phGraphNode);
}

CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS converted = common_kernel_params(*nodeParams);
  return hook::cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies,
                                       &converted);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  NodeTarget t;
  if (const CUresult r = setting(&t, hNode); r != CUDA_SUCCESS) return r;
  return kernel_node(t, nodeParams, nullptr);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS converted = common_kernel_params(*nodeParams);
  return hook::cuGraphKernelNodeSetParams_v2(hNode, &converted);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  NodeTarget t;
  if (const CUresult r = setting(&t, hGraphExec, hNode); r != CUDA_SUCCESS) return r;
  return kernel_node(t, nodeParams, nullptr);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS converted = common_kernel_params(*nodeParams);
  return hook::cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &converted);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D* p, CUcontext ctx) {
  NodeTarget t;
  if (const CUresult r = adding(&t, phGraphNode, hGraph, dependencies, numDependencies);
      r != CUDA_SUCCESS)
    return r;
  if (const CUresult r = runs_in(&t, ctx); r != CUDA_SUCCESS) return r;
  return copy_node(t, p, phGraphNode);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* p) {
  NodeTarget t;
  if (const CUresult r = setting(&t, hNode); r != CUDA_SUCCESS) return r;
  return copy_node(t, p, nullptr);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* p, CUcontext ctx) {
  NodeTarget t;
  if (const CUresult r = setting(&t, hGraphExec, hNode); r != CUDA_SUCCESS) return r;
  if (const CUresult r = runs_in(&t, ctx); r != CUDA_SUCCESS) return r;
  return copy_node(t, p, nullptr);
}

CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS* p, CUcontext ctx) {
  NodeTarget t;
  if (const CUresult r = adding(&t, phGraphNode, hGraph, dependencies, numDependencies);
      r != CUDA_SUCCESS)
    return r;
  if (const CUresult r = runs_in(&t, ctx); r != CUDA_SUCCESS) return r;
  return memset_node(t, p, phGraphNode);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* p) {
  NodeTarget t;
  if (const CUresult r = setting(&t, hNode); r != CUDA_SUCCESS) return r;
  return memset_node(t, p, nullptr);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* p, CUcontext ctx) {
  NodeTarget t;
  if (const CUresult r = setting(&t, hGraphExec, hNode); r != CUDA_SUCCESS) return r;
  if (const CUresult r = runs_in(&t, ctx); r != CUDA_SUCCESS) return r;
  return memset_node(t, p, nullptr);
}

}  // namespace tube::hook
