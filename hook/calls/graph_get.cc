// What a node is: cuGraph*GetParams. Pointers in the answers lead to memory of the node's handle in
// this process.
#include <cstring>
#include <new>
#include <vector>

#include "hook/graphs/graph_target.h"
#include "hook/objects/array.h"
#include "hook/objects/kernels.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

struct Storage {
  void* bytes = nullptr;
  size_t size = 0;
};
Lock g_storage_lock;  // rank 2: the slots' Storage

struct Answer {
  wire::tubeGraphNodeGet_reply reply{};
  ReplyBlobs blobs;

  template <class P>
  bool params(P* p) const {
    const auto bytes = blobs.get(reply.params);
    if (bytes.size() < sizeof *p) return false;
    std::memcpy(static_cast<void*>(p), bytes.data(), sizeof *p);
    return true;
  }
};

CUresult ask(CUgraphNode node, CUgraphNodeType type, const void* out, Answer* answer) {
  uint64_t id = 0;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = id_of(Kind::kGraphNode, node, &id); r != CUDA_SUCCESS) return r;
  {
    Request<wire::tubeGraphNodeGet> r;
    r->node = id;
    if (const CUresult result = r.call(&answer->reply, &answer->blobs); result != CUDA_SUCCESS)
      return result;
  }
  return answer->reply.type == static_cast<uint32_t>(type) ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_VALUE;
}

template <class T>
T* by_id(Kind kind, uint64_t id) {
  Slot* slot = objects().at(kind, wire::id_index(id));
  return slot != nullptr && slot->id == id ? static_cast<T*>(slot->object) : nullptr;
}

// The array of pointers, then the packed parameters that they point into.
CUresult keep_parameters(CUgraphNode node, const Kernel* kernel, std::span<const std::byte> packed,
                         void*** pointers) {
  const size_t array_bytes = kernel->layout.size() * sizeof(void*);
  if (kernel->layout.empty()) return CUDA_SUCCESS;
  auto* storage = static_cast<std::byte*>(node_storage(node, array_bytes + packed.size()));
  if (storage == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointers = reinterpret_cast<void**>(storage);
  std::memcpy(storage + array_bytes, packed.data(), packed.size());
  for (size_t i = 0; i < kernel->layout.size(); ++i)
    (*pointers)[i] = storage + array_bytes + kernel->layout[i].offset;
  return CUDA_SUCCESS;
}

// Of a node on this GPU. Which of the program's contexts there it was made in, nobody keeps.
CUcontext node_context(uint32_t gpu) {
  const Context* context = current_context();
  if (context != nullptr && context->device == gpu) return context->handle();
  const Process& p = process();
  for (uint32_t i = 0; i < p.device_count; ++i) {
    if (p.devices[i] == gpu && p.primaries[i] != nullptr) return p.primaries[i]->handle();
  }
  return context != nullptr ? context->handle() : nullptr;
}

CUresult kernel_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* p) {
  Answer answer;
  wire::GraphKernelParams k;
  if (const CUresult r = ask(node, CU_GRAPH_NODE_TYPE_KERNEL, p, &answer); r != CUDA_SUCCESS)
    return r;
  if (!answer.params(&k)) return CUDA_ERROR_UNKNOWN;
  const auto* kernel = by_id<Kernel>(Kind::kKernel, k.kernel);
  const auto packed = answer.blobs.get(answer.reply.data);
  if (kernel == nullptr || packed.size() < kernel->parameter_bytes) return CUDA_ERROR_INVALID_VALUE;
  void** pointers = nullptr;
  if (const CUresult r = keep_parameters(node, kernel, packed, &pointers); r != CUDA_SUCCESS)
    return r;
  *p = {};
  p->func = static_cast<CUfunction>(kernel_handle(kernel));
  if (k.as_kernel != 0) p->kern = library_kernel_handle(kernel);
  p->gridDimX = k.grid[0], p->gridDimY = k.grid[1], p->gridDimZ = k.grid[2];
  p->blockDimX = k.block[0], p->blockDimY = k.block[1], p->blockDimZ = k.block[2];
  p->sharedMemBytes = k.shared_bytes;
  p->kernelParams = pointers;
  p->ctx = node_context(k.gpu);
  return CUDA_SUCCESS;
}

CUresult event_of(CUgraphNode node, CUgraphNodeType type, CUevent* out) {
  Answer answer;
  wire::GraphEventParams p;
  if (const CUresult r = ask(node, type, out, &answer); r != CUDA_SUCCESS) return r;
  if (!answer.params(&p)) return CUDA_ERROR_UNKNOWN;
  const auto* event = by_id<Event>(Kind::kEvent, p.event);
  *out = event != nullptr ? static_cast<CUevent>(objects().handle_of(event->slot)) : nullptr;
  return CUDA_SUCCESS;
}

CUdevice visible_device(int32_t number) {
  const Process& p = process();
  for (uint32_t i = 0; i < p.device_count; ++i) {
    if (p.devices[i] == static_cast<uint32_t>(number)) return static_cast<CUdevice>(i);
  }
  return number;
}

CUarray array_of(CUarray id) {
  return id == nullptr
             ? nullptr
             : static_cast<CUarray>(array_handle(Kind::kArray, reinterpret_cast<uint64_t>(id)));
}

}  // namespace

void* node_storage(CUgraphNode node, size_t bytes) {
  Slot* slot = objects().find(Kind::kGraphNode, node);
  if (slot == nullptr) return nullptr;
  Locked locked(g_storage_lock);
  auto* storage = static_cast<Storage*>(slot->object);
  if (storage == nullptr) storage = new (std::nothrow) Storage;
  if (storage == nullptr) return nullptr;
  slot->object = storage;  // the slot's next node uses it too
  if (storage->size != bytes || storage->bytes == nullptr) {
    std::free(storage->bytes);
    storage->bytes = std::malloc(bytes + 1);
    storage->size = bytes;
  }
  return storage->bytes;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return kernel_params(hNode, nodeParams);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  CUDA_KERNEL_NODE_PARAMS p{};
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = kernel_params(hNode, &p); r != CUDA_SUCCESS) return r;
  *nodeParams = {p.func,      p.gridDimX,  p.gridDimY,       p.gridDimZ,     p.blockDimX,
                 p.blockDimY, p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra};
  return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  Answer answer;
  if (const CUresult r = ask(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams, &answer);
      r != CUDA_SUCCESS)
    return r;
  if (answer.reply.tag != 0)
    return copy_of(answer.reply.tag, nodeParams) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (!answer.params(nodeParams)) return CUDA_ERROR_UNKNOWN;
  nodeParams->srcArray = array_of(nodeParams->srcArray);
  nodeParams->dstArray = array_of(nodeParams->dstArray);
  return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  Answer answer;
  if (const CUresult r = ask(hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams, &answer);
      r != CUDA_SUCCESS)
    return r;
  return answer.params(nodeParams) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  Answer answer;
  if (const CUresult r = ask(hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams, &answer);
      r != CUDA_SUCCESS)
    return r;
  return function_of(answer.reply.tag, nodeParams) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  Answer answer;
  wire::GraphChildParams p;
  if (const CUresult r = ask(hNode, CU_GRAPH_NODE_TYPE_GRAPH, phGraph, &answer); r != CUDA_SUCCESS)
    return r;
  if (!answer.params(&p)) return CUDA_ERROR_UNKNOWN;
  *phGraph = static_cast<CUgraph>(adopt(Kind::kGraph, p.graph));
  return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return event_of(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return event_of(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  Answer answer;
  wire::GraphMemOpParams p;
  if (const CUresult r = ask(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams_out, &answer);
      r != CUDA_SUCCESS)
    return r;
  const auto ops = answer.blobs.get(answer.reply.data);
  if (!answer.params(&p) || ops.size() != p.count * sizeof(CUstreamBatchMemOpParams))
    return CUDA_ERROR_UNKNOWN;
  void* storage = node_storage(hNode, ops.size());
  if (storage == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memcpy(storage, ops.data(), ops.size());
  *nodeParams_out = {node_context(p.gpu), p.count, static_cast<CUstreamBatchMemOpParams*>(storage),
                     p.flags};
  return CUDA_SUCCESS;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  Answer answer;
  wire::GraphAllocParams p;
  if (const CUresult r = ask(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params_out, &answer);
      r != CUDA_SUCCESS)
    return r;
  const auto access = answer.blobs.get(answer.reply.data);
  if (!answer.params(&p) || access.size() != p.access_count * sizeof(CUmemAccessDesc))
    return CUDA_ERROR_UNKNOWN;
  *params_out = {};
  params_out->poolProps.allocType = static_cast<CUmemAllocationType>(p.alloc_type);
  params_out->poolProps.handleTypes = static_cast<CUmemAllocationHandleType>(p.handle_types);
  params_out->poolProps.location = {static_cast<CUmemLocationType>(p.location_type),
                                    visible_device(p.location_id)};
  params_out->poolProps.maxSize = p.max_size;
  params_out->poolProps.usage = static_cast<unsigned short>(p.usage);
  params_out->bytesize = p.bytes;
  params_out->dptr = p.dptr;
  if (p.access_count == 0) return CUDA_SUCCESS;
  auto* storage = static_cast<CUmemAccessDesc*>(node_storage(hNode, access.size()));
  if (storage == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memcpy(storage, access.data(), access.size());
  for (uint32_t i = 0; i < p.access_count; ++i)
    storage[i].location.id = visible_device(storage[i].location.id);
  params_out->accessDescs = storage;
  params_out->accessDescCount = p.access_count;
  return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  Answer answer;
  wire::GraphFreeParams p;
  if (const CUresult r = ask(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, dptr_out, &answer);
      r != CUDA_SUCCESS)
    return r;
  if (!answer.params(&p)) return CUDA_ERROR_UNKNOWN;
  *dptr_out = p.dptr;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph) {
  if (phNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t original = 0, clone = 0;
  if (const CUresult r = id_of(Kind::kGraphNode, hOriginalNode, &original); r != CUDA_SUCCESS)
    return r;
  if (const CUresult r = id_of(Kind::kGraph, hClonedGraph, &clone); r != CUDA_SUCCESS) return r;
  *phNode = nullptr;  // when it is not found, too
  wire::cuGraphNodeFindInClone_reply reply{};
  {
    Request<wire::cuGraphNodeFindInClone> r;
    r->hOriginalNode = original;
    r->hClonedGraph = clone;
    if (const CUresult result = r.call(&reply); result != CUDA_SUCCESS) return result;
  }
  *phNode = static_cast<CUgraphNode>(adopt(Kind::kGraphNode, reply.phNode));
  return CUDA_SUCCESS;
}

}  // namespace tube::hook
