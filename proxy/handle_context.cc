// Contexts: names for a share of the one shared context per GPU. Nothing here touches what other clients see.
#include <malloc.h>

#include <cstdlib>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/session.h"

namespace tube::proxy {

CUresult handle(Session& session, const Decoded<wire::tubeContextCreate>& call, Reply<wire::tubeContextCreate>&) {
  return session.create_context(call->number, call->device, call->flags);
}

CUresult handle(Session& session, const Decoded<wire::tubeContextDestroy>& call, Reply<wire::tubeContextDestroy>&) {
  if (call->number < wire::kFirstCreatedContext || session.context(call->number) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  session.sweep_context(call->number, true);
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubePrimaryReset>& call, Reply<wire::tubePrimaryReset>&) {
  if (call->device >= wire::kFirstCreatedContext || session.context(call->device + 1) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  session.sweep_context(call->device + 1, false);
  return CUDA_SUCCESS;
}

// Limits belong to the whole context (cuda-shim facts, 4.8): what a client sets is remembered for it and not applied.
CUresult handle(Session& session, const Decoded<wire::tubeContextLimit>& call, Reply<wire::tubeContextLimit>& reply) {
  ContextShare* share = session.context();
  size_t value = 0;
  CUresult error = session.driver().cuCtxGetLimit(&value, static_cast<CUlimit>(call->limit));
  if (error != CUDA_SUCCESS) return error;
  if (call->set != 0) share->limits[call->limit] = call->value;
  auto remembered = share->limits.find(call->limit);
  reply->value = remembered != share->limits.end() ? remembered->second : value;
  return CUDA_SUCCESS;
}

// Export table 1734DC26 (cuda-shim facts, 4b): two buffers, one byte per TPC, which the driver hands out only with a
// context current.
CUresult handle(Session& session, const Decoded<wire::tubeGpcTable>&, Reply<wire::tubeGpcTable>& reply) {
  (void)session;
  (void)reply;
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace tube::proxy
