// Instances of graphs: made, updated, launched, destroyed. An instance whose graph has steps
// (graph_steps.h) gets words and staging first, and its launches are watched by the callbacks
// thread; all others are one posted record per launch.
#include <new>

#include "hook/graphs/graph_steps.h"
#include "hook/graphs/update_proofs.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

// The places of the instance; the slot keeps the object for its next owner.
bool remember(CUgraphExec handle, const Places& places) {
  Slot* slot = objects().find(Kind::kGraphExec, handle);
  auto* exec = static_cast<Exec*>(slot->object);
  if (exec == nullptr && places.set == nullptr && !places.memory_nodes) return true;
  if (exec == nullptr) exec = new (std::nothrow) Exec;
  if (exec == nullptr) return false;
  *exec = {places.set, places.memory_nodes};
  slot->object = exec;
  return true;
}

// nullptr: it has none.
StepSet* steps_of(CUgraphExec handle) {
  const Slot* slot = objects().find(Kind::kGraphExec, handle);
  const auto* exec = slot == nullptr ? nullptr : static_cast<const Exec*>(slot->object);
  return exec == nullptr ? nullptr : exec->steps;
}

struct Made {
  CUgraphInstantiateResult status = CUDA_GRAPH_INSTANTIATE_ERROR;
  CUgraphNode error_node = nullptr;
};

CUresult send(uint64_t exec, uint64_t graph, uint64_t flags, uint64_t stream, const Places& places,
              Made* made) {
  wire::tubeGraphInstantiate_reply reply{};
  CUresult result;
  {
    Request<wire::tubeGraphInstantiate> r(blob_room(places.bytes));
    r->exec = exec;
    r->graph = graph;
    r->flags = flags;
    r->stream = stream;
    if (places.bytes != 0) r.put(&wire::tubeGraphInstantiate::places, places.places, places.bytes);
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return result;
  made->status = static_cast<CUgraphInstantiateResult>(reply.status);
  made->error_node = static_cast<CUgraphNode>(adopt(Kind::kGraphNode, reply.error_node));
  return static_cast<CUresult>(reply.result);
}

CUresult instantiate(CUgraphExec* out, CUgraph hGraph, uint64_t flags, CUstream upload,
                     Made* made) {
  uint64_t graph = 0, stream = 0;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = id_of(Kind::kGraph, hGraph, &graph); r != CUDA_SUCCESS) return r;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    return unsupported("a graph that is launched by device code",
                       "its handle would have to be the driver's own");
  }
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  Places places;
  if (const CUresult r = take_places(graph, nullptr, &places); r != CUDA_SUCCESS) return r;
  void* handle = nullptr;
  const uint64_t exec = new_id(Kind::kGraphExec, &handle);
  CUresult result = exec == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && upload != nullptr) result = id_of(Kind::kStream, upload, &stream);
  if (result == CUDA_SUCCESS) result = send(exec, graph, flags, stream, places, made);
  if (result == CUDA_SUCCESS && !remember(static_cast<CUgraphExec>(handle), places))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) {
    retire(places.set);
    if (exec != 0) drop(Kind::kGraphExec, exec);
    return result;
  }
  *out = static_cast<CUgraphExec>(handle);
  return CUDA_SUCCESS;
}

CUresult instantiate_v2(CUgraphExec* out, CUgraph hGraph, CUgraphNode* error_node, char* log,
                        size_t log_bytes) {
  Made made;
  if (log != nullptr && log_bytes != 0) log[0] = '\0';
  const CUresult result = instantiate(out, hGraph, 0, nullptr, &made);
  if (error_node != nullptr) *error_node = made.error_node;
  return result;
}

struct LaunchRecord {
  uint64_t exec;
  Stream* stream;
  bool waits;
};

CUresult post_launch(void* argument) {
  const auto* launch = static_cast<const LaunchRecord*>(argument);
  Request<wire::cuGraphLaunch> r(launch->stream);
  r->hGraph = launch->exec;
  r->hStream = launch->stream->id;
  return launch->waits ? r.call() : r.post();
}

}  // namespace

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)
    return CUDA_ERROR_INVALID_VALUE;  // on which stream?
  Made made;
  return instantiate(phGraphExec, hGraph, flags, nullptr, &made);
}
CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) {
  return instantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}
CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  return instantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Made made;
  const CUresult result =
      instantiate(phGraphExec, hGraph, params->flags, params->hUploadStream, &made);
  params->result_out = made.status;
  params->hErrNode_out = made.error_node;
  return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  if (resultInfo == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t exec = 0, graph = 0;
  if (const CUresult r = id_of(Kind::kGraphExec, hGraphExec, &exec); r != CUDA_SUCCESS) return r;
  if (const CUresult r = id_of(Kind::kGraph, hGraph, &graph); r != CUDA_SUCCESS) return r;
  StepSet* const old = steps_of(hGraphExec);
  Places places;
  if (const CUresult r = take_places(graph, old, &places); r != CUDA_SUCCESS) return r;
  forget_updates_of(exec);
  wire::tubeGraphExecUpdate_reply reply{};
  CUresult result;
  {
    Request<wire::tubeGraphExecUpdate> r(blob_room(places.bytes));
    r->exec = exec;
    r->graph = graph;
    if (places.bytes != 0) r.put(&wire::tubeGraphExecUpdate::places, places.places, places.bytes);
    result = r.call(&reply);
  }
  if (result == CUDA_SUCCESS) {
    resultInfo->result = static_cast<CUgraphExecUpdateResult>(reply.status);
    resultInfo->errorNode = static_cast<CUgraphNode>(adopt(Kind::kGraphNode, reply.error_node));
    resultInfo->errorFromNode =
        static_cast<CUgraphNode>(adopt(Kind::kGraphNode, reply.error_from_node));
    result = static_cast<CUresult>(reply.result);
  }
  if (result != CUDA_SUCCESS) {
    retire(places.set);
    return result;
  }
  if (!remember(hGraphExec, places)) return CUDA_ERROR_OUT_OF_MEMORY;
  retire(old);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  uint64_t id = 0;
  if (updateResult_out == nullptr || id_of(Kind::kGraphExec, hGraphExec, &id) != CUDA_SUCCESS ||
      id_of(Kind::kGraph, hGraph, &id) != CUDA_SUCCESS)
    return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResultInfo info{};
  info.result = CU_GRAPH_EXEC_UPDATE_ERROR;
  const CUresult result = hook::cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  *updateResult_out = info.result;
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  return result;
}

// An instance with memory nodes may be refused (its last launch's memory is not freed): the program
// learns it at the call.
CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  Slot* slot = objects().find(Kind::kGraphExec, hGraphExec);
  if (slot == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = forbid_capture(stream); r != CUDA_SUCCESS)
    return r;  // no graph is launched into a capture
  const auto* exec = static_cast<const Exec*>(slot->object);
  LaunchRecord launch{slot->id, stream, exec != nullptr && exec->memory_nodes};
  if (exec == nullptr || exec->steps == nullptr) return post_launch(&launch);
  return launch_watched(exec->steps, stream, post_launch, &launch);
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  const Slot* slot = objects().find(Kind::kGraphExec, hGraphExec);
  if (slot == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = forbid_capture(stream); r != CUDA_SUCCESS) return r;
  Request<wire::cuGraphUpload> r(stream);
  r->hGraph = slot->id;
  r->hStream = stream->id;
  return r.post();
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  Slot* slot = objects().find(Kind::kGraphExec, hGraphExec);
  if (slot == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  const uint64_t id = slot->id;
  auto* exec = static_cast<Exec*>(slot->object);
  StepSet* steps = exec != nullptr ? exec->steps : nullptr;
  if (exec != nullptr) *exec = Exec{};
  Retired gone(objects());
  if (!gone.add(slot)) return CUDA_ERROR_INVALID_VALUE;
  forget_updates_of(id);
  CUresult result;
  {
    Request<wire::cuGraphExecDestroy> r;
    r.in_context(lasting_context());
    r->hGraphExec = id;
    result = r.post();
  }
  retire(steps);
  wake_callbacks();  // a user object may go with it
  return result;
}

}  // namespace tube::hook
