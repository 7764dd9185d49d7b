// Kernel, copy and memset nodes: added, changed, and changed in an instance. What they name is
// checked as for streams.
#include <cstring>
#include <functional>
#include <vector>

#include "proxy/calls/copy_region.h"
#include "proxy/calls/graph_lift.h"
#include "proxy/calls/graph_place.h"
#include "proxy/calls/graph_target.h"
#include "proxy/calls/modules.h"
#include "proxy/common/client_limits.h"
#include "proxy/gpu/current_context.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"
#include "proxy/launch/plain_launch.h"

namespace tube::proxy {

namespace {

// A pointer to each parameter, into the bytes, which hold all of the layout. The form for a
// program's own nodes: cooperative launches know no `extra`, and a node may become one later.
class SeparateParameters {
 public:
  SeparateParameters(std::span<const std::byte> parameters,
                     std::span<const KernelParameter> layout) {
    pointers_.reserve(layout.size());
    for (const KernelParameter& parameter : layout)
      pointers_.push_back(const_cast<std::byte*>(parameters.data()) + parameter.offset);
  }
  void** pointers() { return pointers_.data(); }

 private:
  std::vector<void*> pointers_;
};

CUresult set_in_instance(Session& session, const Object& kernel,
                         const std::function<CUresult()>& set) {
  const LaunchGate how = launch_gate(session, kernel);
  const CUresult error = session.shared().gpus.gate().launch(this_caller(), how, set);
  // What the driver does at once for kernels that print or allocate is not known.
  const bool as_launched = static_cast<const KernelState&>(*kernel.state).runtime.possible == 0;
  if (error == CUDA_SUCCESS && how != LaunchGate::kNone && as_launched)
    note_launched(session, kernel);
  return error;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeGraphKernelNode>& call,
                Reply<wire::tubeGraphKernelNode>& reply) {
  NodeTarget target;
  if (CUresult error = resolve_target(session, call, target); error != CUDA_SUCCESS) return error;
  Object* object = session.objects().find(wire::Kind::kKernel, call->kernel);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto& kernel = static_cast<const KernelState&>(*object->state);
  if (load_stays(session, *object)) return CUDA_SUCCESS;
  if (CUresult error = load_here(session, *object); error != CUDA_SUCCESS) return error;
  if (CUresult error = keep_own_limit(session, call->kernel, kernel, call->shared_bytes);
      error != CUDA_SUCCESS)
    return error;
  session.output().graph_gains(kernel.writes);
  const auto parameters = call.blob(call->parameters);
  if (parameters.size() < kernel.parameter_bytes || parameters.size() > limits::kParameterBytes)
    return CUDA_ERROR_INVALID_VALUE;
  const auto& grid = call->grid;
  const auto& block = call->block;
  const PlainLaunch launch{kernel.function,
                           kernel.is_library_kernel,
                           {grid[0], grid[1], grid[2]},
                           {block[0], block[1], block[2]},
                           call->shared_bytes};
  SeparateParameters separate(parameters, kernel.loaded->layout);
  CUDA_KERNEL_NODE_PARAMS_v2 params = kernel_node(launch);
  params.kernelParams = separate.pointers();
  const Driver& driver = session.driver();
  if (call->op == GraphEdit::kSetInExec)
    return set_in_instance(session, *object, [&] {
      const CurrentContext current(driver, instance_context(target.exec_state));
      return driver.cuGraphExecKernelNodeSetParams_v2(target.exec, target.node, &params);
    });
  graph_gains_kernel(session, *object);
  if (call->op == GraphEdit::kSet)
    return driver.cuGraphKernelNodeSetParams_v2(target.node, &params);
  // Annotated edges (programmatic launch, which XLA uses) need the typed call; no edge data means
  // "after".
  CUgraphNode node = nullptr;
  CUresult error = CUDA_SUCCESS;
  if (target.edges.empty()) {
    error = driver.cuGraphAddKernelNode_v2(&node, target.graph, target.dependencies.data(),
                                           target.dependencies.size(), &params);
  } else {
    CUgraphNodeParams typed{};
    typed.type = CU_GRAPH_NODE_TYPE_KERNEL;
    typed.kernel = {params.func,         params.gridDimX,  params.gridDimY,  params.gridDimZ,
                    params.blockDimX,    params.blockDimY, params.blockDimZ, params.sharedMemBytes,
                    params.kernelParams, params.extra,     params.kern,      params.ctx};
    error = add_typed(session, target, &typed, &node);
  }
  return error != CUDA_SUCCESS ? error : name_node(session, call, node, reply);
}

namespace {

// As the program wrote it: what cuGraphMemcpyNodeGetParams answers. Host memory only where it is
// some: the driver may touch it.
bool is_pinned(Session& session, uint64_t address) {
  const Range* range = session.ranges().find(address);
  return range != nullptr && range->kind == RangeKind::kPinned;
}
void name_source(Session& session, CUDA_MEMCPY3D& copy, uint32_t untrusted_type, uint64_t address) {
  if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY) return;
  if (untrusted_type == CU_MEMORYTYPE_DEVICE) copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  if (untrusted_type != CU_MEMORYTYPE_HOST || !is_pinned(session, address)) return;
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = reinterpret_cast<const void*>(address);
  copy.srcDevice = 0;
}
void name_target(Session& session, CUDA_MEMCPY3D& copy, uint32_t untrusted_type, uint64_t address) {
  if (copy.dstMemoryType == CU_MEMORYTYPE_ARRAY) return;
  if (untrusted_type == CU_MEMORYTYPE_DEVICE) copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  if (untrusted_type != CU_MEMORYTYPE_HOST || !is_pinned(session, address)) return;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = reinterpret_cast<void*>(address);
  copy.dstDevice = 0;
}

uint64_t packed(uint64_t untrusted_given, uint64_t origin, uint64_t extent) {
  return untrusted_given != 0 ? untrusted_given : origin + extent;
}

CUresult copy_of(Session& session, const wire::tubeGraphCopyNode& untrusted, CUDA_MEMCPY3D* copy) {
  const auto& x = untrusted;
  const uint64_t extent[3] = {x.extent[0] + !x.extent[0], x.extent[1] + !x.extent[1],
                              x.extent[2] + !x.extent[2]};  // of nothing: the driver judges
  for (int i = 0; i < 3; ++i) {
    if (x.extent[i] >> 60 || x.src_origin[i] >> 60 || x.dst_origin[i] >> 60)
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (x.src_kind == wire::SideKind::kChunk || x.dst_kind == wire::SideKind::kChunk)
    return CUDA_ERROR_INVALID_VALUE;
  const CopySide src{x.src_kind, x.src, packed(x.src_pitch, x.src_origin[0], extent[0]),
                     packed(x.src_height, x.src_origin[1], extent[1]), x.src_origin};
  const CopySide dst{x.dst_kind, x.dst, packed(x.dst_pitch, x.dst_origin[0], extent[0]),
                     packed(x.dst_height, x.dst_origin[1], extent[1]), x.dst_origin};
  CopyRegion region;
  if (CUresult error = build_copy(session, src, dst, extent, &region); error != CUDA_SUCCESS)
    return error;
  *copy = region.copy;
  copy->WidthInBytes = x.extent[0];
  copy->Height = x.extent[1];
  copy->Depth = x.extent[2];
  copy->srcPitch = x.src_pitch;
  copy->srcHeight = x.src_height;
  copy->dstPitch = x.dst_pitch;
  copy->dstHeight = x.dst_height;
  name_source(session, *copy, x.src_type, x.src);
  name_target(session, *copy, x.dst_type, x.dst);
  return CUDA_SUCCESS;
}

CUresult add_copy(Session& session, const NodeTarget& target, const CUDA_MEMCPY3D& copy,
                  CUgraphNode* node) {
  if (target.edges.empty()) {
    return session.driver().cuGraphAddMemcpyNode(node, target.graph, target.dependencies.data(),
                                                 target.dependencies.size(), &copy, target.context);
  }
  CUgraphNodeParams typed{};
  typed.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  typed.memcpy.copyCtx = target.context;
  typed.memcpy.copyParams = copy;
  return add_typed(session, target, &typed, node);
}

CUresult set_copy(Session& session, const NodeTarget& target, const CUDA_MEMCPY3D& copy) {
  const ExecState* state = target.exec_state;
  if (state != nullptr && state->lifted != nullptr) {
    if (LiftedCopy* lifted = state->lifted->find(target.node))
      return change_lifted(session, target.exec, target.context, *lifted, target.node, copy);
  }
  return session.driver().cuGraphExecMemcpyNodeSetParams(target.exec, target.node, &copy,
                                                         target.context);
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeGraphCopyNode>& call,
                Reply<wire::tubeGraphCopyNode>& reply) {
  NodeTarget target;
  if (CUresult error = resolve_target(session, call, target); error != CUDA_SUCCESS) return error;
  CUDA_MEMCPY3D copy;
  if (CUresult error = copy_of(session, call.fixed, &copy); error != CUDA_SUCCESS) return error;
  const Driver& driver = session.driver();
  if (target.op == GraphEdit::kSetInExec) return set_copy(session, target, copy);
  if (target.op == GraphEdit::kSet) {
    Step step;
    if (!step_of(session, target.node, &step) || !wire::is_copy_step(step.tag))
      return driver.cuGraphMemcpyNodeSetParams(target.node, &copy);
    return replace_node(session, call->node, target,
                        [&](const NodeTarget& spot, CUgraphNode* node) {
                          return add_copy(session, spot, copy, node);
                        });
  }
  CUgraphNode node = nullptr;
  const CUresult error = add_copy(session, target, copy, &node);
  return error != CUDA_SUCCESS ? error : name_node(session, call, node, reply);
}

CUresult handle(Session& session, const Decoded<wire::tubeGraphMemsetNode>& call,
                Reply<wire::tubeGraphMemsetNode>& reply) {
  NodeTarget target;
  if (CUresult error = resolve_target(session, call, target); error != CUDA_SUCCESS) return error;
  CUresult error =
      check_memset(session, call->dst, call->pitch, call->element_bytes, call->width, call->height);
  if (error != CUDA_SUCCESS) return error;
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = call->dst;
  params.pitch = call->pitch;
  params.value = call->value;
  params.elementSize = call->element_bytes;
  params.width = call->width;
  params.height = call->height;
  const Driver& driver = session.driver();
  if (call->op == GraphEdit::kSet) return driver.cuGraphMemsetNodeSetParams(target.node, &params);
  if (call->op == GraphEdit::kSetInExec)
    return driver.cuGraphExecMemsetNodeSetParams(target.exec, target.node, &params, target.context);
  CUgraphNode node = nullptr;
  if (target.edges.empty()) {
    error = driver.cuGraphAddMemsetNode(&node, target.graph, target.dependencies.data(),
                                        target.dependencies.size(), &params, target.context);
  } else {
    CUgraphNodeParams typed{};
    typed.type = CU_GRAPH_NODE_TYPE_MEMSET;
    typed.memset = {params.dst,   params.pitch,  params.value,  params.elementSize,
                    params.width, params.height, target.context};
    error = add_typed(session, target, &typed, &node);
  }
  return error != CUDA_SUCCESS ? error : name_node(session, call, node, reply);
}

}  // namespace tube::proxy
