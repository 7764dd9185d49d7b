// Device and pinned memory of the client.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "protocol/host_segment.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/code/module_cache.h"
#include "proxy/session/session.h"

namespace tube::proxy {

CUresult handle(Session& session, const Decoded<wire::tubeMemAlloc>& call,
                Reply<wire::tubeMemAlloc>& reply) {
  ContextShare* share = session.context();
  session.known().allocates(call->bytes);
  CUdeviceptr address = 0;
  bool leased = false;
  const auto take = [&] {
    DeviceMemory& memory = session.memory();
    const auto gpu = static_cast<int>(share->gpu);
    return call->leases != 0
               ? memory.allocate_leasing(gpu, share->number, call->bytes, &address, &reply->offer,
                                         &leased)
               : memory.allocate(gpu, share->number, call->bytes, &address, &reply->offer);
  };
  const auto limited = [&] {
    return session.account().room(share->gpu) < std::max<uint64_t>(call->bytes, kBlockBytes);
  };
  const uint64_t bytes = std::max<uint64_t>(call->bytes, kBlockBytes);
  CUresult error = session.take_memory_at_last(share->gpu, bytes, take);
  if (error == CUDA_ERROR_OUT_OF_MEMORY && !limited() && !session.residency().away() &&
      session.shared().modules.make_room(share->gpu))  // code that was kept for the next function
    error = take();
  if (error == CUDA_ERROR_OUT_OF_MEMORY && session.residency().on())
    error = session.make_room(share->gpu, bytes,
                              [&] { return session.take_memory_once(share->gpu, bytes, take); });
  reply->dptr = address;
  reply->leased = leased ? 1 : 0;
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeMemCut>& call, Reply<wire::tubeMemCut>&) {
  const ContextShare* share = session.context();
  if (!session.memory().cut(static_cast<int>(share->gpu), share->number, call->dptr, call->bytes,
                            session.parked().any()))
    session.poison(abi::PoisonReason::kBadRecord, "it cut memory that is not its own to cut");
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeMemLeaseEnd>& call,
                Reply<wire::tubeMemLeaseEnd>&) {
  if (!session.memory().end_lease(call->slab))
    session.poison(abi::PoisonReason::kBadRecord, "it gave back a lease that it did not have");
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeMemTake>& call,
                Reply<wire::tubeMemTake>&) {
  const ContextShare* share = session.context();
  session.known().allocates(call->bytes);
  if (!session.memory().take(call->offer, static_cast<int>(share->gpu), share->number, call->dptr,
                             call->bytes, session.parked().any()))
    session.poison(abi::PoisonReason::kBadRecord, "it took memory that it was not offered");
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeMemFree>& call,
                Reply<wire::tubeMemFree>&) {
  session.copies().settle_uploads();  // from other contexts than the memory's
  return session.memory().free(call->dptr, call->offer != 0);
}

CUresult handle(Session& session, const Decoded<wire::tubeMemFreeAsync>& call,
                Reply<wire::tubeMemFreeAsync>&) {
  StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  return session.deferred_frees().add(op.stream, call->dptr);
}

CUresult handle(Session& session, const Decoded<wire::tubePinnedAlloc>& call,
                Reply<wire::tubePinnedAlloc>& reply) {
  uint64_t address = 0;
  CUresult error = session.pinned().allocate(session.context()->number, call->bytes, &address);
  reply->address = address;
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubePinnedFree>& call,
                Reply<wire::tubePinnedFree>&) {
  return session.pinned().free(call->address);
}

CUresult handle(Session& session, const Decoded<wire::tubeHostRegister>& call,
                Reply<wire::tubeHostRegister>&) {
  const auto untrusted = call.array<wire::HostSegment>(call->segments);
  if (untrusted.size() > wire::kMaxHostSegments) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<std::pair<uint64_t, UniqueFd>> files;
  std::vector<HostPages::Segment> segments;
  bool missing = false;
  for (const wire::HostSegment& segment : untrusted) {
    auto file = std::find_if(files.begin(), files.end(),
                             [&](const auto& known) { return known.first == segment.token; });
    if (file == files.end()) {
      if (files.size() > wire::kMaxHostFiles) return CUDA_ERROR_OUT_OF_MEMORY;
      files.emplace_back(segment.token, session.take_fd(segment.token));
      file = std::prev(files.end());
    }
    missing = missing || !file->second.valid();
    segments.push_back({segment, file->second.get()});
  }
  if (missing) return CUDA_ERROR_INVALID_VALUE;
  const CUresult error = session.host_pages().add(session.context()->number, call->base,
                                                  call->bytes, call->flags, segments);
  // The end of an earlier registration of these pages may be kept back.
  if (error == CUDA_SUCCESS || session.was_kept() || !session.parked().ends()) return error;
  session.come_again();
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeHostUnregister>& call,
                Reply<wire::tubeHostUnregister>&) {
  return session.host_pages().remove(call->base);
}

namespace {

// What the client has freed in records that are kept back: natively it is free.
uint64_t freed_in_kept_records(Session& session, uint32_t gpu) {
  uint64_t bytes = 0;
  session.parked().each([&](const abi::RecordHeader& header, std::span<const std::byte> payload) {
    wire::tubeMemFree record;
    if (header.call != static_cast<uint32_t>(wire::Call::tubeMemFree) ||
        payload.size() < sizeof(record))
      return;
    std::memcpy(&record, payload.data(), sizeof(record));
    const Range* range = session.ranges().at(record.dptr);
    if (range == nullptr || range->kind != RangeKind::kDevice || range->owner != 0 ||
        range->device != static_cast<int>(gpu) || session.memory().was_taken_again(record.dptr))
      return;
    bytes += (range->bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  });
  return bytes;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeMemGetInfo>& call,
                Reply<wire::tubeMemGetInfo>& reply) {
  session.deferred_frees().collect();
  const uint32_t gpu = session.context()->gpu;
  const PromisedMemory& memory = session.shared().memory.promised();
  const uint64_t freed = freed_in_kept_records(session, gpu);
  CUresult error = CUDA_SUCCESS;
  const auto look = [&] {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    error = session.driver().cuMemGetInfo_v2(&free_bytes, &total_bytes);
    const policies::GpuMemory seen = session.account().visible(
        gpu, call->kept, {memory.unpromised(gpu, free_bytes), total_bytes});
    reply->free = std::min(seen.free_bytes + freed, seen.total_bytes);
    reply->total = seen.total_bytes;
  };
  BlockPool* pool = session.shared().blocks;
  if (pool != nullptr) pool->while_steady(look);
  else look();
  return error;
}

}  // namespace tube::proxy
