// The client's own virtual memory management: reservations come from the window, so that the
// addresses are free in both processes; handles are the client's ids for blocks of the memory map;
// a mapping becomes a range that copies may name.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/memory_map.h"
#include "proxy/session/session.h"

namespace tube::proxy {

namespace {

// Device locations name the proxy's ordinals, which are the driver's.
bool valid_location(Session& session, const CUmemLocation& untrusted) {
  // Compared as a number: the client's bytes may be no value of the enumeration.
  uint32_t untrusted_type;
  static_assert(sizeof(untrusted.type) == sizeof(untrusted_type));
  std::memcpy(&untrusted_type, &untrusted.type, sizeof(untrusted_type));
  return untrusted_type == CU_MEM_LOCATION_TYPE_DEVICE && untrusted.id >= 0 &&
         static_cast<uint32_t>(untrusted.id) < session.shared().gpus.count();
}

// Work that is kept back finds what it found before, at least.
bool only_grants(std::span<const CUmemAccessDesc> access) {
  return std::all_of(access.begin(), access.end(), [](const CUmemAccessDesc& one) {
    return one.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  });
}

// The client's mappings that lie in [address, address + bytes).
std::vector<uint64_t> mappings_in(Session& session, uint64_t address, uint64_t bytes,
                                  uint64_t* covered) {
  std::vector<uint64_t> bases;
  *covered = 0;
  const auto& all = session.ranges().all();
  for (auto it = all.lower_bound(address); it != all.end() && it->first - address < bytes; ++it) {
    if (it->second.kind != RangeKind::kMapped) continue;
    bases.push_back(it->first);
    *covered += it->second.bytes;
  }
  return bases;
}

// The client's name for a block, which holds the reference of its maker.
CUresult keep_block(Session& session, uint64_t untrusted_id, BlockId block) {
  const CUresult error = session.objects().insert(wire::Kind::kMemHandle, untrusted_id,
                                                  static_cast<uint64_t>(block), 0);
  if (error != CUDA_SUCCESS) session.shared().memory.release(block);
  return error;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::cuMemAddressReserve>& call,
                Reply<wire::cuMemAddressReserve>& reply) {
  if (call->size == 0 || call->size % kBlockBytes != 0 || call->flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((call->alignment & (call->alignment - 1)) != 0 || call->alignment > windows::kDeviceBytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (!session.reservations().may_add(call->size)) return CUDA_ERROR_OUT_OF_MEMORY;
  reply->ptr = session.shared().memory.reserve(session.client().window, session.client().id,
                                               call->size, call->alignment, call->addr);
  if (reply->ptr == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  session.reservations().add(reply->ptr, call->size);
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::cuMemAddressFree>& call,
                Reply<wire::cuMemAddressFree>&) {
  if (!session.reservations().is_one(call->ptr, call->size)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t mapped = 0;
  if (!mappings_in(session, call->ptr, call->size, &mapped).empty())
    return CUDA_ERROR_INVALID_VALUE;
  session.shared().memory.unreserve(session.client().window, call->ptr, call->size);
  session.reservations().remove(call->ptr);
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::cuMemCreate>& call,
                Reply<wire::cuMemCreate>&) {
  if (CUresult error = session.objects().admit(wire::Kind::kMemHandle, call->handle);
      error != CUDA_SUCCESS)
    return error;
  CUmemAllocationProp prop;
  static_assert(sizeof(prop) == sizeof(call->prop));
  std::memcpy(&prop, call->prop, sizeof(prop));
  if (!valid_location(session, prop.location)) {
    // Invalid to the driver; host memory exists but would have to be mapped in the client too.
    return prop.location.type == CU_MEM_LOCATION_TYPE_INVALID ? CUDA_ERROR_INVALID_VALUE
                                                              : CUDA_ERROR_NOT_SUPPORTED;
  }
  // As a driver answers whose user has no IMEX channel; NCCL then asks again without.
  constexpr unsigned kWithFabric =
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
  unsigned untrusted_types;
  static_assert(sizeof(untrusted_types) == sizeof(prop.requestedHandleTypes));
  std::memcpy(&untrusted_types, &prop.requestedHandleTypes, sizeof(untrusted_types));
  if ((untrusted_types & ~kWithFabric) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((untrusted_types & CU_MEM_HANDLE_TYPE_FABRIC) != 0) return CUDA_ERROR_NOT_PERMITTED;
  prop.win32HandleMetaData = nullptr;
  BlockId block = BlockId::kNone;
  const CUresult error =
      session.take_memory(static_cast<uint32_t>(prop.location.id), call->size, [&] {
        return session.shared().memory.create(prop, call->size, call->flags, session.account(),
                                              &block);
      });
  if (error != CUDA_SUCCESS) return error;
  return keep_block(session, call->handle, block);
}

CUresult handle(Session& session, const Decoded<wire::cuMemRelease>& call,
                Reply<wire::cuMemRelease>&) {
  return session.destroy_object(wire::Kind::kMemHandle, call->handle) == CUDA_ERROR_INVALID_HANDLE
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::cuMemMap>& call, Reply<wire::cuMemMap>&) {
  auto block = session.resolve<BlockId>(wire::Kind::kMemHandle, call->handle);
  if (block.error != CUDA_SUCCESS || !session.reservations().holds(call->ptr, call->size))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult error =
      session.shared().memory.map(block.handle, call->ptr, call->size, call->offset, call->flags);
  if (error != CUDA_SUCCESS) return error;
  Range range;
  range.base = call->ptr;
  range.bytes = call->size;
  range.kind = RangeKind::kMapped;
  if (const auto place = session.shared().memory.find(block.handle); place && place->device >= 0)
    range.device = place->device;
  session.ranges().insert(range);
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::cuMemUnmap>& call, Reply<wire::cuMemUnmap>&) {
  // Holes are fine, a part of a mapping is not.
  if (!session.reservations().holds(call->ptr, call->size)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t covered = 0;
  const std::vector<uint64_t> bases = mappings_in(session, call->ptr, call->size, &covered);
  const Range* first = session.ranges().find(call->ptr);
  if (first != nullptr && first->base != call->ptr) return CUDA_ERROR_INVALID_VALUE;
  if (!bases.empty()) {
    const Range* last = session.ranges().at(bases.back());
    if (last->bytes > call->size - (last->base - call->ptr)) return CUDA_ERROR_INVALID_VALUE;
  }
  if (!bases.empty()) session.copies().settle_uploads();
  for (uint64_t base : bases) {
    const CUresult error = session.shared().memory.unmap(base);
    if (error != CUDA_SUCCESS) return error;
    session.ranges().erase(base);
  }
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::cuMemSetAccess>& call,
                Reply<wire::cuMemSetAccess>&) {
  const auto untrusted = call.blob(call->desc);
  if (call->count == 0 || call->count > 64 ||
      untrusted.size() != call->count * sizeof(CUmemAccessDesc))
    return CUDA_ERROR_INVALID_VALUE;
  CUmemAccessDesc descs[64];
  std::memcpy(descs, untrusted.data(), untrusted.size());
  for (uint64_t i = 0; i < call->count; ++i) {
    if (!valid_location(session, descs[i].location)) return CUDA_ERROR_NOT_SUPPORTED;
  }
  uint64_t covered = 0;
  if (mappings_in(session, call->ptr, call->size, &covered).empty() || covered != call->size)
    return CUDA_ERROR_INVALID_VALUE;
  const bool takes = !only_grants({descs, call->count});
  if (takes && session.stay_behind_all()) return CUDA_SUCCESS;
  if (takes) session.copies().settle_uploads();
  return session.shared().memory.set_access(call->ptr, call->size, {descs, call->count});
}

CUresult handle(Session& session, const Decoded<wire::cuMemGetAccess>& call,
                Reply<wire::cuMemGetAccess>& reply) {
  CUmemLocation location;
  static_assert(sizeof(location) == sizeof(call->location));
  std::memcpy(&location, call->location, sizeof(location));
  if (!valid_location(session, location)) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = session.check_device_range(call->ptr, 1); error != CUDA_SUCCESS)
    return error;
  unsigned long long flags = 0;
  CUresult error = session.driver().cuMemGetAccess(&flags, &location, call->ptr);
  reply->flags = flags;
  return error;
}

CUresult handle(Session& session, const Decoded<wire::cuMemGetAllocationPropertiesFromHandle>& call,
                Reply<wire::cuMemGetAllocationPropertiesFromHandle>& reply) {
  auto block = session.resolve<BlockId>(wire::Kind::kMemHandle, call->handle);
  if (block.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp prop{};
  CUresult error = session.shared().memory.properties(block.handle, &prop);
  std::memcpy(reply->prop, &prop, sizeof(prop));
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeExportHandle>& call,
                Reply<wire::tubeExportHandle>& reply) {
  auto block = session.resolve<BlockId>(wire::Kind::kMemHandle, call->handle);
  if (block.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  session.copies().settle_uploads();
  session.contexts().placement().exchanges("it offers memory to other processes");
  UniqueFd fd;
  CUresult error = session.shared().memory.export_fd(block.handle, &fd);
  if (error != CUDA_SUCCESS) return error;
  reply->token = session.next_fd_token();
  return session.give_fd(reply->token, fd.get()).ok() ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult handle(Session& session, const Decoded<wire::tubeImportHandle>& call,
                Reply<wire::tubeImportHandle>& reply) {
  UniqueFd fd = session.take_fd(call->token);
  if (!fd.valid()) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = session.objects().admit(wire::Kind::kMemHandle, call->handle);
      error != CUDA_SUCCESS)
    return error;
  session.contexts().placement().exchanges("it opens memory of another process");
  BlockId block = BlockId::kNone;
  CUresult error = session.shared().memory.import_fd(fd.get(), &block);
  if (error != CUDA_SUCCESS) return error;
  struct stat info {};
  // The real driver's fd says nothing about the size: 0 is "unknown".
  if (fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode))
    reply->size = static_cast<uint64_t>(info.st_size);
  return keep_block(session, call->handle, block);
}

}  // namespace tube::proxy
