// Contexts: names for a share of the one shared context per GPU. Nothing here touches what other
// clients see.
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"

namespace tube::proxy {

CUresult handle(Session& session, const Decoded<wire::tubeContextCreate>& call,
                Reply<wire::tubeContextCreate>&) {
  return session.contexts().create(call->number, call->device, call->flags);
}

CUresult handle(Session& session, const Decoded<wire::tubeContextDestroy>& call,
                Reply<wire::tubeContextDestroy>&) {
  if (call->number < wire::kFirstCreatedContext || session.context(call->number) == nullptr)
    return CUDA_ERROR_INVALID_CONTEXT;
  session.sweep_context(call->number, true);
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubePrimaryReset>& call,
                Reply<wire::tubePrimaryReset>&) {
  if (call->device >= wire::kFirstCreatedContext || session.context(call->device + 1) == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  session.sweep_context(call->device + 1, false);
  return CUDA_SUCCESS;
}

// Limits belong to the whole context (docs/facts.md): what a client sets is remembered for
// it, and the context gets what all of them need (shared_limits.h).
namespace {

// What the driver makes of a value (H200, 13.0): rounded, raised to a least one, or refused.
CUresult settle_limit(int32_t limit, uint64_t* value) {
  constexpr uint64_t kStackMax = 512u << 10, kFifoMin = 512u << 10, kHeapMin = 4u << 20;
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      if (*value > kStackMax) return CUDA_ERROR_INVALID_VALUE;
      *value = (*value + 15) & ~uint64_t{15};
      return CUDA_SUCCESS;
    case CU_LIMIT_PRINTF_FIFO_SIZE: *value = std::max(*value, kFifoMin); return CUDA_SUCCESS;
    case CU_LIMIT_MALLOC_HEAP_SIZE: *value = std::max(*value, kHeapMin); return CUDA_SUCCESS;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      return *value > 128 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_LIMIT_SHMEM_SIZE:
    case CU_LIMIT_CIG_ENABLED: return CUDA_ERROR_NOT_PERMITTED;
    default: return CUDA_SUCCESS;
  }
}

// The heap of malloc in kernels is GPU memory: what the context is to have beyond what it has
// without asking. The driver never makes it smaller, so neither does the charge become.
CUresult charge_heap(Session& session, const ContextShare& share, uint64_t wanted,
                     MemoryCharge* more) {
  constexpr uint64_t kDefaultHeap = 8u << 20;
  const uint64_t has = kDefaultHeap + share.heap.bytes();
  if (wanted <= has) return CUDA_SUCCESS;
  return session.take_memory(share.gpu, [&] {
    return session.account().charge(static_cast<int>(share.gpu), wanted - has, more);
  });
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeContextLimit>& call,
                Reply<wire::tubeContextLimit>& reply) {
  const bool waits = call->set != 0 && call->limit == CU_LIMIT_STACK_SIZE;
  if (waits && session.waits_for_own()) return CUDA_SUCCESS;
  ContextShare* share = session.context();
  size_t value = 0;
  CUresult error = session.driver().cuCtxGetLimit(&value, static_cast<CUlimit>(call->limit));
  if (error != CUDA_SUCCESS) return error;
  if (call->set != 0) {
    uint64_t wanted = call->value;
    if (CUresult refused = settle_limit(call->limit, &wanted); refused != CUDA_SUCCESS)
      return refused;
    MemoryCharge heap;
    if (call->limit == CU_LIMIT_MALLOC_HEAP_SIZE)
      error = charge_heap(session, *share, wanted, &heap);
    if (error != CUDA_SUCCESS) return error;
    SharedLimits& shared = session.shared().gpus[share->gpu].limits;
    error = shared.want(session.driver(), session.shared().gpus.gate(), session.client().id,
                        share->number, call->limit, wanted);
    if (error != CUDA_SUCCESS) return error;
    share->limits[call->limit] = wanted;
    share->heap.join(std::move(heap));
  }
  auto remembered = share->limits.find(call->limit);
  reply->value = remembered != share->limits.end() ? remembered->second : value;
  return CUDA_SUCCESS;
}

// Export table 1734DC26 (docs/facts.md): slot 4 hands out two malloc'ed buffers, one byte per
// TPC, and does so only with a context current; slot 13 frees them. cuBLASLt needs their bytes in
// the function process.
CUresult handle(Session& session, const Decoded<wire::tubeGpcTable>& call,
                Reply<wire::tubeGpcTable>& reply) {
  CUuuid id;
  std::memcpy(&id, call->table, sizeof(id));
  constexpr unsigned char kName[4] = {0x17, 0x34, 0xdc, 0x26};
  if (std::memcmp(id.bytes, kName, sizeof(kName)) != 0)
    return CUDA_ERROR_INVALID_VALUE;  // slot 4 of others is another function
  const void* table = nullptr;
  if (CUresult error = session.driver().cuGetExportTable(&table, &id); error != CUDA_SUCCESS)
    return error;
  size_t bytes = 0;
  if (table != nullptr) std::memcpy(&bytes, table, sizeof(bytes));  // slot 0 is the table's size
  if (bytes < 14 * sizeof(void*)) return CUDA_ERROR_NOT_FOUND;
  const auto* slots = static_cast<void* const*>(table);
  const auto get = reinterpret_cast<CUresult (*)(void**, void**)>(slots[4]);
  const auto release = reinterpret_cast<CUresult (*)(void*, void*)>(slots[13]);
  void* first = nullptr;
  void* second = nullptr;
  if (CUresult error = get(&first, &second); error != CUDA_SUCCESS) return error;
  auto view = [](const void* buffer) {
    return std::span(static_cast<const std::byte*>(buffer),
                     buffer != nullptr ? malloc_usable_size(const_cast<void*>(buffer)) : 0);
  };
  const bool fits = reply.put(&wire::tubeGpcTable_reply::first, view(first)) &&
                    reply.put(&wire::tubeGpcTable_reply::second, view(second));
  release(first, second);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace tube::proxy
