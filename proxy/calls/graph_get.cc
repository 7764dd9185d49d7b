// A node's parameters, as ids and bytes: for every kind one answer (protocol/graph_params.h).
// Nothing of the driver's own (handles, addresses of its structs) leaves the proxy.
#include <cstring>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/calls/graph_steps.h"
#include "proxy/calls/modules.h"
#include "proxy/common/owner.h"
#include "proxy/gpu/current_context.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/graph_objects.h"
#include "proxy/session/session.h"

namespace tube::proxy {

namespace {

using Got = Reply<wire::tubeGraphNodeGet>;
using Fields = wire::tubeGraphNodeGet_reply;

template <class T>
CUresult put_params(Got& reply, const T& params) {
  return reply.put(&Fields::params, std::as_bytes(std::span(&params, 1)))
             ? CUDA_SUCCESS
             : CUDA_ERROR_NOT_SUPPORTED;
}
CUresult put_data(Got& reply, std::span<const std::byte> data) {
  return data.empty() || reply.put(&Fields::data, data) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

// Where a node is whose context this is: a GPU's shared one, or that of some of its
// multiprocessors.
uint32_t gpu_of(Session& session, CUcontext context) {
  const Gpus& gpus = session.shared().gpus;
  const uint32_t here = session.context()->gpu;
  for (uint32_t gpu = 0; gpu < gpus.count(); ++gpu) {
    if (gpus[gpu].context == context) return gpu;
  }
  if (gpus.count() == 1 || context == nullptr) return here;
  const CurrentContext current(session.driver(), context);
  CUdevice device = 0;
  if (session.driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return here;
  for (uint32_t gpu = 0; gpu < gpus.count(); ++gpu) {
    if (gpus[gpu].device == device) return gpu;
  }
  return here;
}

// What a graph's node may call a kernel: as it was given, or as the function of the context.
bool is_called(const CUDA_KERNEL_NODE_PARAMS_v2& p, const KernelState& kernel,
               CUfunction function) {
  if (function != nullptr && function == p.func) return true;
  return kernel.former != nullptr &&
         (kernel.former == p.func || kernel.former == reinterpret_cast<CUfunction>(p.kern));
}

// A library's kernel in the GPU's shared context; nullptr: nobody has seen it there.
CUfunction function_of(Session& session, const Object& object, uint32_t gpu) {
  const auto& kernel = static_cast<const KernelState&>(*object.state);
  if (!kernel.is_library_kernel) return kernel.function;
  LoadedModule* library = module_of(session, object);
  if (library == nullptr) return nullptr;
  const auto seen = library->seen(*kernel.loaded, gpu);
  return seen.has_value() ? seen->function : nullptr;
}

// Of a node on `gpu`. The driver is asked only for kernels that the client looked up in another
// context than this one; that may wait for everybody's work.
uint64_t kernel_id(Session& session, const CUDA_KERNEL_NODE_PARAMS_v2& p, uint32_t gpu) {
  const uint64_t ids[] = {reinterpret_cast<uint64_t>(p.func), reinterpret_cast<uint64_t>(p.kern)};
  for (uint64_t raw : ids) {
    if (const uint64_t id = find_id(session, wire::Kind::kKernel, raw); id != 0) return id;
  }
  const bool here = gpu == session.context()->gpu;
  const bool green = here && session.context()->green != nullptr;
  std::vector<uint64_t> elsewhere;
  for (uint64_t id : session.objects().ids(wire::Kind::kKernel)) {
    const Object& object = *session.objects().find(wire::Kind::kKernel, id);
    const auto& kernel = static_cast<const KernelState&>(*object.state);
    const CUfunction function = function_of(session, object, gpu);
    if (is_called(p, kernel, function)) return id;
    if (kernel.is_library_kernel && (green || function == nullptr)) elsewhere.push_back(id);
  }
  uint64_t found = 0;
  const auto ask = [&] {
    const CurrentContext current(session.driver(),
                                 here ? nullptr : session.shared().gpus[gpu].context);
    for (uint64_t id : elsewhere) {
      const Object& object = *session.objects().find(wire::Kind::kKernel, id);
      const auto& kernel = static_cast<const KernelState&>(*object.state);
      CUfunction function = nullptr;
      if (LoadedModule* library = module_of(session, object)) library->comes_to(gpu);
      if (session.driver().cuKernelGetFunction(
              &function, reinterpret_cast<CUkernel>(kernel.function)) != CUDA_SUCCESS)
        continue;
      if (found == 0 && is_called(p, kernel, function)) found = id;
    }
    return CUDA_SUCCESS;
  };
  if (!elsewhere.empty())
    (void)session.shared().gpus.gate().context_wide(this_caller(), "cuKernelGetFunction", ask);
  return found;
}

// Parameters as one block laid out like the kernel's: from the array of pointers, or from the block
// that was given.
CUresult packed_parameters(const KernelState& kernel, const CUDA_KERNEL_NODE_PARAMS_v2& p,
                           std::vector<std::byte>* out) {
  out->assign(kernel.parameter_bytes, std::byte{});
  if (p.kernelParams != nullptr) {
    for (size_t i = 0; i < kernel.loaded->layout.size(); ++i) {
      const auto [offset, size] = kernel.loaded->layout[i];
      if (offset + size > out->size()) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(out->data() + offset, p.kernelParams[i], size);
    }
    return CUDA_SUCCESS;
  }
  const void* block = nullptr;
  size_t bytes = 0;
  for (void** e = p.extra; e != nullptr && *e != CU_LAUNCH_PARAM_END; e += 2) {
    if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER) block = e[1];
    if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<const size_t*>(e[1]);
  }
  if (block != nullptr) std::memcpy(out->data(), block, bytes < out->size() ? bytes : out->size());
  return CUDA_SUCCESS;
}

CUresult get_kernel(Session& session, CUgraphNode node, Got& reply) {
  CUDA_KERNEL_NODE_PARAMS_v2 p{};
  if (CUresult error = session.driver().cuGraphKernelNodeGetParams_v2(node, &p);
      error != CUDA_SUCCESS)
    return error;
  wire::GraphKernelParams params{};
  params.gpu = gpu_of(session, p.ctx);
  params.kernel = kernel_id(session, p, params.gpu);
  const Object* object = session.objects().find(wire::Kind::kKernel, params.kernel);
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;  // its module is gone
  const uint32_t shape[] = {p.gridDimX,  p.gridDimY,  p.gridDimZ,
                            p.blockDimX, p.blockDimY, p.blockDimZ};
  std::memcpy(params.grid, shape, sizeof params.grid);
  std::memcpy(params.block, shape + 3, sizeof params.block);
  params.shared_bytes = p.sharedMemBytes;
  params.as_kernel = p.kern != nullptr ? 1 : 0;
  std::vector<std::byte> parameters;
  if (CUresult error =
          packed_parameters(static_cast<const KernelState&>(*object->state), p, &parameters);
      error != CUDA_SUCCESS)
    return error;
  if (CUresult error = put_params(reply, params); error != CUDA_SUCCESS) return error;
  return put_data(reply, parameters);
}

CUresult get_copy(Session& session, CUgraphNode node, Got& reply) {
  CUDA_MEMCPY3D p{};
  if (CUresult error = session.driver().cuGraphMemcpyNodeGetParams(node, &p); error != CUDA_SUCCESS)
    return error;
  const uint64_t src = find_id(session, wire::Kind::kArray, reinterpret_cast<uint64_t>(p.srcArray));
  const uint64_t dst = find_id(session, wire::Kind::kArray, reinterpret_cast<uint64_t>(p.dstArray));
  p.srcArray = reinterpret_cast<CUarray>(src);
  p.dstArray = reinterpret_cast<CUarray>(dst);
  p.reserved0 = p.reserved1 = nullptr;
  return put_params(reply, p);
}

CUresult get_event(Session& session, CUgraphNode node, bool record, Got& reply) {
  const Driver& driver = session.driver();
  CUevent event = nullptr;
  if (CUresult error = record ? driver.cuGraphEventRecordNodeGetEvent(node, &event)
                              : driver.cuGraphEventWaitNodeGetEvent(node, &event);
      error != CUDA_SUCCESS) {
    return error;
  }
  return put_params(reply, wire::GraphEventParams{find_id(session, wire::Kind::kEvent,
                                                          reinterpret_cast<uint64_t>(event))});
}

CUresult get_child(Session& session, uint64_t id, CUgraphNode node, Got& reply) {
  CUgraph graph = nullptr;
  if (CUresult error = session.driver().cuGraphChildGraphNodeGetGraph(node, &graph);
      error != CUDA_SUCCESS)
    return error;
  const uint64_t parent = session.objects().find(wire::Kind::kGraphNode, id)->owner;
  wire::GraphChildParams params{};
  params.graph = adopt_inner(session, graph, parent, id);
  return params.graph == 0 ? CUDA_ERROR_OUT_OF_MEMORY : put_params(reply, params);
}

CUresult get_mem_ops(Session& session, CUgraphNode node, Got& reply) {
  CUDA_BATCH_MEM_OP_NODE_PARAMS p{};
  if (CUresult error = session.driver().cuGraphBatchMemOpNodeGetParams(node, &p);
      error != CUDA_SUCCESS)
    return error;
  std::vector<CUstreamBatchMemOpParams> ops(p.paramArray, p.paramArray + p.count);
  for (CUstreamBatchMemOpParams& op : ops) op.waitValue.alias = 0;  // the driver's own use
  if (CUresult error =
          put_params(reply, wire::GraphMemOpParams{p.flags, p.count, gpu_of(session, p.ctx), 0});
      error != CUDA_SUCCESS)
    return error;
  return put_data(reply, std::as_bytes(std::span<const CUstreamBatchMemOpParams>(ops)));
}

CUresult get_alloc(Session& session, CUgraphNode node, Got& reply) {
  CUDA_MEM_ALLOC_NODE_PARAMS p{};
  if (CUresult error = session.driver().cuGraphMemAllocNodeGetParams(node, &p);
      error != CUDA_SUCCESS)
    return error;
  wire::GraphAllocParams params{};
  params.bytes = p.bytesize;
  params.max_size = p.poolProps.maxSize;
  params.dptr = p.dptr;
  params.alloc_type = p.poolProps.allocType;
  params.handle_types = p.poolProps.handleTypes;
  params.location_type = p.poolProps.location.type;
  params.location_id = p.poolProps.location.id;
  params.usage = p.poolProps.usage;
  params.access_count = static_cast<uint32_t>(p.accessDescs == nullptr ? 0 : p.accessDescCount);
  if (CUresult error = put_params(reply, params); error != CUDA_SUCCESS) return error;
  return put_data(
      reply, std::as_bytes(std::span<const CUmemAccessDesc>(p.accessDescs, params.access_count)));
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeGraphNodeGet>& call,
                Reply<wire::tubeGraphNodeGet>& reply) {
  auto node = session.resolve<CUgraphNode>(wire::Kind::kGraphNode, call->node);
  if (node.error != CUDA_SUCCESS) return node.error;
  const Driver& driver = session.driver();
  CUgraphNodeType type{};
  if (CUresult error = visible_type(session, node.handle, &type); error != CUDA_SUCCESS)
    return error;
  reply->type = type;
  Step step;
  if (step_of(session, node.handle, &step)) {
    reply->tag = step.tag;
    return CUDA_SUCCESS;
  }
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return get_kernel(session, node.handle, reply);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return get_copy(session, node.handle, reply);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      CUDA_MEMSET_NODE_PARAMS p{};
      const CUresult error = driver.cuGraphMemsetNodeGetParams(node.handle, &p);
      return error != CUDA_SUCCESS ? error : put_params(reply, p);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH: return get_child(session, call->node, node.handle, reply);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return get_event(session, node.handle, false, reply);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return get_event(session, node.handle, true, reply);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return get_mem_ops(session, node.handle, reply);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return get_alloc(session, node.handle, reply);
    case CU_GRAPH_NODE_TYPE_MEM_FREE: {
      wire::GraphFreeParams p{};
      CUdeviceptr address = 0;
      const CUresult error = driver.cuGraphMemFreeNodeGetParams(node.handle, &address);
      p.dptr = address;
      return error != CUDA_SUCCESS ? error : put_params(reply, p);
    }
    default: return CUDA_SUCCESS;
  }
}

}  // namespace tube::proxy
