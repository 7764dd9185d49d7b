// Graph-owned memory in captures and after launches, and the few graph calls that belong nowhere
// else: the handle of a conditional node, the text of cuGraphDebugDotPrint.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/graph_objects.h"
#include "proxy/session/session.h"
#include "sharedmem/segment.h"

namespace tube::proxy {

namespace {

// The owner of what a capture allocates: the graph under construction, named by the driver's handle
// until it has an id.
GraphMemory::Owner captured_by(CUgraph graph) {
  return {wire::Kind::kCount, reinterpret_cast<uint64_t>(graph)};
}

CUresult capturing_graph(Session& session, CUstream stream, CUgraph* graph) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  *graph = nullptr;
  return session.driver().cuStreamGetCaptureInfo_v3(stream, &status, nullptr, graph, nullptr,
                                                    nullptr, nullptr);
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeGraphAllocAsync>& call,
                Reply<wire::tubeGraphAllocAsync>& reply) {
  if (call->device >= session.shared().gpus.count()) return CUDA_ERROR_INVALID_VALUE;
  StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  CUgraph graph = nullptr;
  if (CUresult error = capturing_graph(session, op.stream, &graph); error != CUDA_SUCCESS)
    return error;
  if (graph == nullptr)
    return CUDA_ERROR_ILLEGAL_STATE;  // outside of captures memory comes from the windows
  CUmemoryPool pool = nullptr;
  const Driver& driver = session.driver();
  CUresult error =
      driver.cuDeviceGetDefaultMemPool(&pool, session.shared().gpus[call->device].device);
  MemoryCharge charge;
  const auto take = [&] {
    return session.account().charge(static_cast<int>(call->device), call->bytes, &charge);
  };
  if (error == CUDA_SUCCESS) error = session.take_memory(call->device, take);
  CUdeviceptr address = 0;
  if (error == CUDA_SUCCESS)
    error = driver.cuMemAllocFromPoolAsync(&address, call->bytes, pool, op.stream);
  if (error != CUDA_SUCCESS) return error;
  reply->dptr = address;
  return session.graph_memory().made(session, address, call->bytes, captured_by(graph),
                                     std::move(charge));
}

CUresult handle(Session& session, const Decoded<wire::tubeGraphFreeAsync>& call,
                Reply<wire::tubeGraphFreeAsync>&) {
  if (!session.graph_memory().knows(call->dptr)) return CUDA_ERROR_INVALID_VALUE;
  StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  CUgraph graph = nullptr;
  if (CUresult error = capturing_graph(session, op.stream, &graph); error != CUDA_SUCCESS)
    return error;
  if (CUresult error = session.driver().cuMemFreeAsync(call->dptr, op.stream);
      error != CUDA_SUCCESS)
    return error;
  if (graph != nullptr) session.graph_memory().freed_by_graph(call->dptr, captured_by(graph));
  else session.graph_memory().freed(session, call->dptr);
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeGraphFree>& call,
                Reply<wire::tubeGraphFree>&) {
  if (!session.graph_memory().knows(call->dptr)) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = session.driver().cuMemFree_v2(call->dptr); error != CUDA_SUCCESS)
    return error;
  session.graph_memory().freed(session, call->dptr);
  return CUDA_SUCCESS;
}

namespace {

// Whether the memory of the client's graphs depends on what is kept back.
bool graph_memory_moves_later(Session& session) {
  bool moves = false;
  session.parked().each([&](const abi::RecordHeader& header, std::span<const std::byte>) {
    switch (wire::Call{header.call}) {
      case wire::Call::cuGraphLaunch:
      case wire::Call::cuGraphExecDestroy:
      case wire::Call::cuGraphUpload:
      case wire::Call::tubeGraphFree:
      case wire::Call::tubeGraphFreeAsync:
      case wire::Call::tubeGraphMemory: moves = true; break;
      default: break;
    }
  });
  return moves;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeGraphMemory>& call,
                Reply<wire::tubeGraphMemory>& reply) {
  if (graph_memory_moves_later(session) && session.stay_behind_all()) return CUDA_SUCCESS;
  if (call->device >= session.shared().gpus.count()) return CUDA_ERROR_INVALID_DEVICE;
  const CUdevice device = session.shared().gpus[call->device].device;
  const auto attribute = static_cast<CUgraphMem_attribute>(call->attr);
  const Driver& driver = session.driver();
  if (call->op == wire::GraphMemoryOp::kTrim) return driver.cuDeviceGraphMemTrim(device);
  cuuint64_t value = call->value;
  const CUresult error = call->op == wire::GraphMemoryOp::kRead
                             ? driver.cuDeviceGetGraphMemAttribute(device, attribute, &value)
                             : driver.cuDeviceSetGraphMemAttribute(device, attribute, &value);
  reply->value = value;
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeGraphConditional>& call,
                Reply<wire::tubeGraphConditional>& reply) {
  auto graph = session.resolve<CUgraph>(wire::Kind::kGraph, call->graph);
  if (graph.error != CUDA_SUCCESS) return graph.error;
  CUgraphConditionalHandle made = 0;
  const CUcontext context = session.shared().gpus[session.context()->gpu].context;
  const CUresult error = session.driver().cuGraphConditionalHandleCreate(
      &made, graph.handle, context, call->value, call->flags);
  reply->handle = made;
  return error;
}

// The driver writes to a path: to a memory file by its name in /proc.
CUresult handle(Session& session, const Decoded<wire::tubeGraphDot>& call,
                Reply<wire::tubeGraphDot>& reply) {
  auto graph = session.resolve<CUgraph>(wire::Kind::kGraph, call->graph);
  if (graph.error != CUDA_SUCCESS) return graph.error;
  const UniqueFd text(memfd_create("tube-graph-dot", MFD_CLOEXEC));
  if (!text.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  const std::string path = "/proc/self/fd/" + std::to_string(text.get());
  if (CUresult error =
          session.driver().cuGraphDebugDotPrint(graph.handle, path.c_str(), call->flags);
      error != CUDA_SUCCESS)
    return error;
  const off_t size = lseek(text.get(), 0, SEEK_END);
  std::vector<char> bytes(size > 0 ? static_cast<size_t>(size) : 0);
  if (pread(text.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return CUDA_ERROR_OPERATING_SYSTEM;
  if (bytes.empty()) return CUDA_SUCCESS;
  Result<UniqueFd> file =
      shared::create_constant_file("tube-graph-dot", bytes.data(), bytes.size());
  if (!file.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  reply->token = session.next_fd_token();
  reply->size = bytes.size();
  return session.give_fd(reply->token, file->get()).ok() ? CUDA_SUCCESS
                                                         : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace tube::proxy
