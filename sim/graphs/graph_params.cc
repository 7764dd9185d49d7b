// From node parameters to Work, with the checks the driver makes when a node is added or changed;
// and back.
#include <algorithm>
#include <cstring>

#include "sim/graphs/conditional.h"
#include "sim/graphs/graph.h"
#include "sim/machine/pool_memory.h"

namespace tube::sim {
namespace {

// A context argument that may be null (then the current one) but not garbage.
CUresult choose_context(Context* current, CUcontext handle, Context** context) {
  *context = current;
  if (handle == nullptr) return current == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  *context = live<Context>(state(), handle, Kind::kContext);
  return *context == nullptr || (*context)->destroyed ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult event_of(CUevent handle, Event** event) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *event = live<Event>(state(), handle, Kind::kEvent);
  return *event == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult child_work(const CUDA_CHILD_GRAPH_NODE_PARAMS& p, Work* work) {
  State& s = state();
  Graph* graph = live_graph(s, p.graph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (p.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
    if (graph->child) return CUDA_ERROR_INVALID_VALUE;
    *work = ChildWork{graph};
  } else {
    if (has_memory_nodes(*graph) || has_conditional_nodes(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
    *work = ChildWork{copy_graph(s, *graph)};
  }
  std::get<ChildWork>(*work).graph->child = true;
  return CUDA_SUCCESS;
}

CUresult alloc_work(CUDA_MEM_ALLOC_NODE_PARAMS* p, Work* work) {
  State& s = state();
  const CUmemLocation& where = p->poolProps.location;
  if (p->bytesize == 0 || p->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (where.type != CU_MEM_LOCATION_TYPE_DEVICE || device_at(where.id) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = pool_allocate(s, device_at(where.id)->default_pool, p->bytesize, &p->dptr))
    return r;
  AllocWork alloc;
  alloc.params = *p;
  alloc.params.accessDescs = nullptr;
  alloc.params.accessDescCount = 0;
  alloc.memory = graph_memory(p->dptr);
  *work = alloc;
  return CUDA_SUCCESS;
}

CUresult free_work(CUdeviceptr address, Work* work) {
  GraphAllocation* memory = graph_allocation(address);
  if (memory == nullptr || memory->graph_frees) return CUDA_ERROR_INVALID_VALUE;
  memory->graph_frees = true;
  *work = FreeWork{address, false};
  return CUDA_SUCCESS;
}

}  // namespace

CUresult kernel_work(Lock& lock, Context* current, const CUDA_KERNEL_NODE_PARAMS_v2& p, Work* work,
                     Context** owner) {
  if (CUresult r = choose_context(current, p.ctx, owner)) return r;
  // A function runs in the part of the GPU that is current, whatever is named (H100, H200, 13.0).
  const bool beside = current != nullptr && base_context(current) == base_context(*owner);
  if (p.func != nullptr && beside) *owner = current;
  CUfunction handle = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  KernelWork k;
  k.function = resolve_function(lock, *owner, handle);
  if (k.function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (p.func == nullptr) k.kernel = p.kern;
  k.grid = {p.gridDimX, p.gridDimY, p.gridDimZ};
  k.block = {p.blockDimX, p.blockDimY, p.blockDimZ};
  k.shared_bytes = p.sharedMemBytes;
  if (CUresult r = check_kernel(lock, *owner, k)) return r;
  if (CUresult r = pack_params(k, p.kernelParams, p.extra)) return r;
  // A launch takes more bytes than there are parameters, a node does not.
  if (p.extra != nullptr && packed_bytes(p.extra) > k.function->kernel->param_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  *work = std::move(k);
  return CUDA_SUCCESS;
}

CUresult copy_work(Context* context, const CUDA_MEMCPY3D& p, Work* work) {
  if (p.WidthInBytes == 0 || p.Height == 0 || p.Depth == 0)
    return CUDA_ERROR_INVALID_VALUE;  // a call with it copies nothing, a node may not
  CopyWork c;
  c.copy = p;
  if (CUresult r = check_copy(context, c.copy)) return r;
  *work = std::move(c);
  return CUDA_SUCCESS;
}

CUresult memset_work(Context* context, const CUDA_MEMSET_NODE_PARAMS& p, Work* work) {
  if (CUresult r = check_memset(context, p)) return r;
  *work = MemsetWork{p};
  return CUDA_SUCCESS;
}

CUresult mem_op_work(Context* context, const CUDA_BATCH_MEM_OP_NODE_PARAMS& p, Work* work) {
  if (CUresult r = check_mem_ops(context, p.paramArray, p.count)) return r;
  MemOpWork m;
  m.ops.assign(p.paramArray, p.paramArray + p.count);
  m.flags = p.flags;
  *work = std::move(m);
  return CUDA_SUCCESS;
}

CUresult generic_work(Lock& lock, Context* current, CUgraphNodeParams* p, Work* work,
                      Context** owner) {
  *owner = current;
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS_v2 v2;
      static_assert(sizeof v2 == sizeof p->kernel);
      std::memcpy(&v2, &p->kernel, sizeof v2);
      return kernel_work(lock, current, v2, work, owner);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (CUresult r = choose_context(current, p->memcpy.copyCtx, owner)) return r;
      return copy_work(*owner, p->memcpy.copyParams, work);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      if (CUresult r = choose_context(current, p->memset.ctx, owner)) return r;
      const auto& m = p->memset;
      return memset_work(*owner, {m.dst, m.pitch, m.value, m.elementSize, m.width, m.height}, work);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      HostWork h;
      h.function = p->host.fn;
      h.data = p->host.userData;
      *work = h;
      return h.function == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH: return child_work(p->graph, work);
    case CU_GRAPH_NODE_TYPE_EMPTY: *work = EmptyWork{}; return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: {
      EventWaitWork w;
      *work = w;
      return event_of(p->eventWait.event, &std::get<EventWaitWork>(*work).event);
    }
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
      *work = EventRecordWork{};
      return event_of(p->eventRecord.event, &std::get<EventRecordWork>(*work).event);
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      if (CUresult r = choose_context(current, p->memOp.ctx, owner)) return r;
      return mem_op_work(*owner,
                         {p->memOp.ctx, p->memOp.count, p->memOp.paramArray, p->memOp.flags}, work);
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS v1;
      static_assert(sizeof v1 == sizeof p->alloc);
      std::memcpy(&v1, &p->alloc, sizeof v1);
      CUresult r = alloc_work(&v1, work);
      p->alloc.dptr = v1.dptr;
      return r;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return free_work(p->free.dptr, work);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: return CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      if (CUresult r = choose_context(current, p->conditional.ctx, owner)) return r;
      return conditional_work(&p->conditional, work);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tube::sim
