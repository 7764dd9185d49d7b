// IPC: offering and opening memory (memory_shares.h, imports.h) and events (event_shares.h).
#include <cstring>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/memory/memory_map.h"
#include "proxy/session/session.h"

namespace tube::proxy {

CUresult handle(Session& session, const Decoded<wire::tubeIpcGetMem>& call,
                Reply<wire::tubeIpcGetMem>& reply) {
  const BlockId block = session.memory().block_of(call->dptr);
  const Range* range = session.ranges().at(call->dptr);
  if (block == BlockId::kNone || range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  session.copies().settle_uploads();
  CUresult error = session.residency().unite(block);
  if (error != CUDA_SUCCESS) return error;
  MemoryHandle made;
  error = session.shared().memory.shares().share(
      session.client().id, SharedMemory{block, range->base, range->bytes}, &made);
  if (error != CUDA_SUCCESS) return error;
  session.contexts().placement().exchanges("it offers memory to other processes");
  static_assert(sizeof(made) == sizeof(reply->handle));
  std::memcpy(reply->handle, &made, sizeof(made));
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeIpcOpenMem>& call,
                Reply<wire::tubeIpcOpenMem>& reply) {
  const ContextShare* share = session.context();
  CUipcMemHandle untrusted_handle;
  static_assert(sizeof(untrusted_handle) == sizeof(call->handle));
  std::memcpy(&untrusted_handle, call->handle, sizeof(untrusted_handle));
  session.contexts().placement().exchanges("it opens memory of another process");
  Opened opened;
  const CUresult error =
      session.imports().open(untrusted_handle, call->flags, share->number, share->gpu, &opened);
  reply->dptr = opened.address;
  reply->bytes = opened.bytes;
  reply->device = static_cast<uint32_t>(opened.device);
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeIpcCloseMem>& call,
                Reply<wire::tubeIpcCloseMem>& reply) {
  uint32_t left = 0;
  const CUresult error = session.imports().close(call->dptr, &left);
  reply->left = left;
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeIpcGetEvent>& call,
                Reply<wire::tubeIpcGetEvent>& reply) {
  auto event = session.resolve<CUevent>(wire::Kind::kEvent, call->event);
  if (event.error != CUDA_SUCCESS) return event.error;
  EventShares::Handle made{};
  session.contexts().placement().exchanges("it offers an event to other processes");
  const CUresult error =
      session.shared().events.share(session.driver(), session.client().id, event.handle, &made);
  std::memcpy(reply->handle, made.data(), sizeof(reply->handle));
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeIpcOpenEvent>& call,
                Reply<wire::tubeIpcOpenEvent>&) {
  if (CUresult error = session.objects().admit(wire::Kind::kEvent, call->event);
      error != CUDA_SUCCESS)
    return error;
  EventShares::Handle untrusted_handle;
  std::memcpy(untrusted_handle.data(), call->handle, sizeof(call->handle));
  session.contexts().placement().exchanges("it opens an event of another process");
  CUevent event = nullptr;
  CUresult error = session.shared().events.open(untrusted_handle, session.client().id, &event);
  if (error == CUDA_ERROR_NOT_FOUND) {
    CUipcEventHandle raw;
    std::memcpy(&raw, untrusted_handle.data(), sizeof(raw));
    error = session.driver().cuIpcOpenEventHandle(&event, raw);
  }
  if (error != CUDA_SUCCESS) return error;
  return session.objects().insert(wire::Kind::kEvent, call->event, event,
                                  session.context()->number);
}

// Not ready is an answer, not an error of the context.
CUresult handle(Session& session, const Decoded<wire::tubeEventQuery>& call,
                Reply<wire::tubeEventQuery>&) {
  auto event = session.resolve<CUevent>(wire::Kind::kEvent, call->event);
  return event.error != CUDA_SUCCESS ? event.error : session.driver().cuEventQuery(event.handle);
}

}  // namespace tube::proxy
