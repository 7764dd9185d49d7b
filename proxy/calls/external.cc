// Features of a device that are asked for by value, and descriptors of device memory.
#include <vector>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/memory_map.h"
#include "proxy/session/session.h"

namespace tube::proxy {

CUresult handle(Session& session, const Decoded<wire::tubeAtomicCapabilities>& call,
                Reply<wire::tubeAtomicCapabilities>& reply) {
  constexpr size_t kMost = 64;
  const auto untrusted = call.array<uint32_t>(call->operations);
  const Gpus& gpus = session.shared().gpus;
  if (untrusted.empty() || untrusted.size() > kMost) return CUDA_ERROR_INVALID_VALUE;
  if (call->device < 0 || static_cast<uint32_t>(call->device) >= gpus.count() ||
      call->peer >= static_cast<int32_t>(gpus.count()))
    return CUDA_ERROR_INVALID_DEVICE;
  std::vector<CUatomicOperation> operations;
  for (const uint32_t operation : untrusted)
    operations.push_back(static_cast<CUatomicOperation>(operation));
  std::vector<unsigned int> capabilities(untrusted.size());
  const auto count = static_cast<unsigned int>(capabilities.size());
  const CUdevice device = gpus[static_cast<uint32_t>(call->device)].device;
  const Driver& driver = session.driver();
  const CUresult error = call->peer < 0 ? driver.cuDeviceGetHostAtomicCapabilities(
                                              capabilities.data(), operations.data(), count, device)
                                        : driver.cuDeviceGetP2PAtomicCapabilities(
                                              capabilities.data(), operations.data(), count, device,
                                              gpus[static_cast<uint32_t>(call->peer)].device);
  if (error == CUDA_SUCCESS)
    reply.put(&wire::tubeAtomicCapabilities_reply::capabilities,
              std::as_bytes(std::span(capabilities)));
  return error;
}

namespace {

// The client's own allocations in the range, each one piece of the driver's memory afterwards.
CUresult unite_blocks(Session& session, uint64_t untrusted_address, uint64_t untrusted_bytes,
                      std::vector<SharedMemory>* blocks) {
  for (uint64_t done = 0; done < untrusted_bytes;) {
    const Range* found = session.ranges().find(untrusted_address + done);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Range range = *found;
    done = range.base + range.bytes - untrusted_address;
    const BlockId block = session.memory().block_of(range.base);
    if (block == BlockId::kNone) continue;
    if (CUresult error = session.residency().unite(block); error != CUDA_SUCCESS) return error;
    blocks->push_back({block, range.base, range.bytes});
  }
  return CUDA_SUCCESS;
}

// Others reach them by what was handed on: they stay on their GPU until they are freed.
CUresult keep_in_place(Session& session, const std::vector<SharedMemory>& blocks) {
  for (const SharedMemory& block : blocks) {
    MemoryHandle not_given;
    const CUresult error =
        session.shared().memory.shares().share(session.client().id, block, &not_given);
    if (error != CUDA_SUCCESS) return error;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeRangeHandle>& call,
                Reply<wire::tubeRangeHandle>& reply) {
  if (call->bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = session.check_device_range(call->dptr, call->bytes); error != CUDA_SUCCESS)
    return error;
  session.copies().settle_uploads();
  std::vector<SharedMemory> blocks;
  CUresult error = unite_blocks(session, call->dptr, call->bytes, &blocks);
  if (error != CUDA_SUCCESS) return error;
  int raw = -1;
  error = session.driver().cuMemGetHandleForAddressRange(
      &raw, call->dptr, call->bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, call->flags);
  if (error != CUDA_SUCCESS) return error;
  UniqueFd fd(raw);
  if (error = keep_in_place(session, blocks); error != CUDA_SUCCESS) return error;
  reply->token = session.next_fd_token();
  return session.give_fd(reply->token, fd.get()).ok() ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace tube::proxy
