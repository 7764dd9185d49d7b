// Graph-owned memory, the device's graph memory attributes, and the graph calls that belong nowhere
// else: destroying, the handle of a conditional node, cuGraphDebugDotPrint.
#include "hook/memory/graph_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/mapping.h"
#include "hook/graphs/graph_steps.h"
#include "hook/graphs/update_proofs.h"
#include "hook/memory/allocator.h"
#include "hook/memory/memory_map.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {

void graph_memory_made(CUdeviceptr address, uint64_t bytes) {
  memory_map().insert({address, bytes, next_unique(), current_context(), MemoryKind::kGraph, 0});
}

bool is_graph_memory(CUdeviceptr address) {
  Allocation a;
  return memory_map().find(address, &a) && a.kind == MemoryKind::kGraph && a.base == address;
}

CUresult capture_allocation(Stream* stream, uint32_t device, uint64_t bytes, CUdeviceptr* address) {
  wire::tubeGraphAllocAsync_reply reply{};
  const CUresult result = ask_for_gpu_memory([&] {
    Request<wire::tubeGraphAllocAsync> r(stream);
    r->stream = stream->id;
    r->bytes = bytes;
    r->device = device;
    return r.call(&reply);
  });
  if (result != CUDA_SUCCESS) return result;
  memory_nodes_exist();
  graph_memory_made(reply.dptr, bytes);
  *address = reply.dptr;
  return CUDA_SUCCESS;
}

CUresult free_graph_memory(Stream* stream, CUdeviceptr address) {
  Request<wire::tubeGraphFreeAsync> r(stream);
  r->stream = stream->id;
  r->dptr = address;
  return r.call();
}

CUresult free_graph_memory(CUdeviceptr address) {
  Request<wire::tubeGraphFree> r;
  r->dptr = address;
  return r.call();
}

namespace {

CUresult graph_memory(CUdevice device, wire::GraphMemoryOp op, CUgraphMem_attribute attr,
                      void* value) {
  int32_t number = 0;
  if (const CUresult r = device_number(device, &number); r != CUDA_SUCCESS) return r;
  if (op != wire::GraphMemoryOp::kTrim &&
      (value == nullptr || static_cast<unsigned>(attr) > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
    return CUDA_ERROR_INVALID_VALUE;
  wire::tubeGraphMemory_reply reply{};
  {
    Request<wire::tubeGraphMemory> r;
    r->device = static_cast<uint32_t>(number);
    r->op = op;
    r->attr = static_cast<int32_t>(attr);
    if (op == wire::GraphMemoryOp::kSet) std::memcpy(&r->value, value, sizeof r->value);
    if (const CUresult result = r.call(&reply); result != CUDA_SUCCESS) return result;
  }
  if (op == wire::GraphMemoryOp::kRead) std::memcpy(value, &reply.value, sizeof reply.value);
  return CUDA_SUCCESS;
}

bool write_all(int fd, const std::byte* data, size_t size) {
  while (size != 0) {
    const ssize_t n = write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return graph_memory(device, wire::GraphMemoryOp::kRead, attr, value);
}
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return graph_memory(device, wire::GraphMemoryOp::kSet, attr, value);
}
CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return graph_memory(device, wire::GraphMemoryOp::kTrim, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
                      nullptr);
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph,
                                        CUcontext ctx, unsigned int defaultLaunchValue,
                                        unsigned int flags) {
  if (pHandle_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t graph = 0;
  if (const CUresult r = id_of(Kind::kGraph, hGraph, &graph); r != CUDA_SUCCESS) return r;
  Context* context = find_context(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  wire::tubeGraphConditional_reply reply{};
  Request<wire::tubeGraphConditional> r;
  r.in_context(context);
  r->graph = graph;
  r->value = defaultLaunchValue;
  r->flags = flags;
  const CUresult result = r.call(&reply);
  if (result == CUDA_SUCCESS) *pHandle_out = reply.handle;
  return result;
}

// A graph inside of a node is not the program's to destroy: the proxy says so, and its word is
// awaited.
CUresult cuGraphDestroy(CUgraph hGraph) {
  uint64_t id = 0;
  if (const CUresult r = id_of(Kind::kGraph, hGraph, &id); r != CUDA_SUCCESS) return r;
  forget_all_updates();  // nodes go with it
  CUresult result;
  {
    Request<wire::cuGraphDestroy> r;
    r.in_context(lasting_context());
    r->hGraph = id;
    result = r.call();
  }
  if (result != CUDA_SUCCESS) return result;
  drop(Kind::kGraph, id);
  wake_callbacks();  // a user object may go with it
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  uint64_t id = 0;
  if (const CUresult r = id_of(Kind::kGraphNode, hNode, &id); r != CUDA_SUCCESS) return r;
  forget_all_updates();  // with a child graph's node go those inside
  CUresult result;
  {
    Request<wire::cuGraphDestroyNode> r;
    r->hNode = id;
    result = r.call();
  }
  if (result == CUDA_SUCCESS) drop(Kind::kGraphNode, id);
  return result;
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  uint64_t graph = 0;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = id_of(Kind::kGraph, hGraph, &graph); r != CUDA_SUCCESS) return r;
  wire::tubeGraphDot_reply reply{};
  {
    Request<wire::tubeGraphDot> r;
    r->graph = graph;
    r->flags = flags;
    if (const CUresult result = r.call(&reply); result != CUDA_SUCCESS) return result;
  }
  const UniqueFd file(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  Mapping text;
  if (reply.size != 0) {
    Result<UniqueFd> sent = take_file(reply.token);
    if (!sent) return CUDA_ERROR_OPERATING_SYSTEM;
    Result<Mapping> mapped = Mapping::map(sent->get(), 0, reply.size, PROT_READ);
    if (!mapped) return CUDA_ERROR_OUT_OF_MEMORY;
    text = mapped.take();
  }
  if (!file.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  return write_all(file.get(), static_cast<const std::byte*>(static_cast<const void*>(text.data())),
                   reply.size)
             ? CUDA_SUCCESS
             : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace tube::hook
