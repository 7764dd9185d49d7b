// The store beside others: objects that it has from other workflows and lends to them
// (store_exchange.h), and memory of its objects for programs that use no store.
#include <sys/stat.h>
#include <unistd.h>

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/runtime_dir.h"
#include "base/scope_guard.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/current_context.h"
#include "proxy/memory/memory_map.h"
#include "proxy/store/store.h"
#include "proxy/store/store_exchange.h"
#include "proxy/store/store_verifier.h"

namespace tube::proxy {
namespace {

constexpr uint32_t kOnGpu = static_cast<uint32_t>(wire::StorePlace::kGpu);

// The bytes of a file of another process: it may be shorter than it says, or no file at all.
bool read_all(int untrusted_fd, uint64_t offset, void* to, uint64_t bytes) {
  struct stat info;
  if (fstat(untrusted_fd, &info) != 0 || !S_ISREG(info.st_mode)) return false;
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got = pread(untrusted_fd, static_cast<char*>(to) + done, bytes - done,
                              static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<uint64_t>(got);
  }
  return true;
}

wire::StoreAnswer answer_of(CUresult error) {
  return error == CUDA_SUCCESS                ? wire::StoreAnswer::kOk
         : error == CUDA_ERROR_INVALID_DEVICE ? wire::StoreAnswer::kInvalid
                                              : wire::StoreAnswer::kNoMemory;
}

}  // namespace

void Store::enter_thread() { map_.enter_context(0); }

// ---- the importer ------------------------------------------------------------------------------

// GPU memory is mapped where it is: the piece is a part of a block of the memory map that the
// driver has from the fd.
CUresult Store::map_offer(uint32_t window, const OfferedObject& object, StorePiece* piece) {
  const StoreOffer& offer = object.offer;
  uint32_t gpu = 0;
  while (gpu < map_.gpus() && std::memcmp(map_.uuid(gpu).bytes, offer.uuid, 16) != 0) ++gpu;
  if (gpu == map_.gpus()) return CUDA_ERROR_INVALID_DEVICE;
  const CurrentContext current(driver_, map_.context(gpu));
  Placed placed;
  const CUresult error = map_.import_placed(window, 0, static_cast<int>(gpu), object.memory.get(),
                                            offer.block_bytes, &placed);
  if (error != CUDA_SUCCESS) return error;
  piece->address = placed.address + offer.offset;
  piece->bytes = offer.body.bytes;
  piece->device = static_cast<int>(gpu);
  piece->window = window;
  piece->block = placed.block;
  return CUDA_SUCCESS;
}

// Host memory of another workflow is one file with all its objects, so this workflow's functions
// get a copy: to have the file would be to have them all, for writing too.
CUresult Store::copy_offer(uint32_t window, const OfferedObject& object, StorePiece* piece) {
  const uint64_t bytes = object.offer.body.bytes;
  const uint64_t lease = piece->lease;
  const CurrentContext current(driver_, map_.context(0));
  if (CUresult error = take(window, -1, bytes, piece); error != CUDA_SUCCESS) return error;
  piece->lease = lease;
  if (read_all(object.memory.get(), object.offer.offset, reinterpret_cast<void*>(piece->address),
               bytes))
    return CUDA_SUCCESS;
  memory_.give(std::exchange(*piece, StorePiece{}));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// The piece is the object's when this returns kOk.
wire::StoreAnswer Store::enter_import(StoreMember& member, const StoreRequest& request,
                                      StoreGrant* grant) {
  std::lock_guard lock(mutex_);
  const wire::StoreAnswer admitted = admit(member, request);
  if (admitted == wire::StoreAnswer::kExists) return wire::StoreAnswer::kBusy;
  if (admitted != wire::StoreAnswer::kOk) return admitted;
  enter(member, request, grant);
  Object& object = objects_[grant->slot];
  object.state = abi::StoreState::kSealed;
  object.ready = true;
  index_.seal(grant->slot, grant->generation, true);
  ++counts_.imported;
  tell();
  if (verifier_ != nullptr)
    verifier_->sealed(grant->slot, grant->generation,
                      std::string(object.body.name, object.body.name_bytes), "another workflow");
  return wire::StoreAnswer::kOk;
}

StoreGrant Store::import(StoreMember& member, uint32_t window, const std::string& full_name,
                         StorePlaceOf* place) {
  StoreGrant grant;
  std::string workflow, name;
  grant.answer = wire::StoreAnswer::kInvalid;
  if (full_name.size() >= abi::kStoreNameBytes || exchange_ == nullptr ||
      !split_foreign_name(full_name, &workflow, &name))
    return grant;
  reap();
  {
    std::lock_guard lock(mutex_);
    grant.answer = wire::StoreAnswer::kBusy;
    if (by_name_.contains(full_name)) return grant;
  }
  Result<OfferedObject> asked = ask_for_object(store_socket_path(options_.folder, workflow), name);
  grant.answer = wire::StoreAnswer::kNotFound;
  if (!asked.ok()) {
    log_info("'%s' cannot be had: %s", full_name.c_str(), asked.error().message.c_str());
    return grant;
  }
  OfferedObject object = asked.take();
  if (object.offer.answer != 0) return grant;
  StoreRequest request;
  const abi::StoreBody& offered = object.offer.body;
  request.place = object.offer.place == kOnGpu ? wire::StorePlace::kGpu : wire::StorePlace::kHost;
  request.window = window;
  request.bytes = offered.bytes;
  std::memcpy(request.body.name, full_name.data(), full_name.size());
  request.body.name_bytes = static_cast<uint32_t>(full_name.size());
  request.body.dtype = offered.dtype;
  request.body.ndim = offered.ndim;
  request.body.expires_ns = offered.expires_ns;
  std::memcpy(request.body.shape, offered.shape, sizeof offered.shape);
  std::memcpy(request.body.strides, offered.strides, sizeof offered.strides);
  grant.answer = wire::StoreAnswer::kNoMemory;
  grant.piece.lease = exchange_->keep(std::move(object.lease));
  if (grant.piece.lease == 0) return grant;
  const uint64_t lease = grant.piece.lease;
  ScopeGuard lease_ends([&] { exchange_->end(lease, false); });
  const CUresult error = request.place == wire::StorePlace::kGpu
                             ? map_offer(window, object, &grant.piece)
                             : copy_offer(window, object, &grant.piece);
  grant.answer = answer_of(error);
  if (error != CUDA_SUCCESS) return grant;
  ScopeGuard piece_ends([&] { memory_.give(grant.piece); });
  grant.answer = enter_import(member, request, &grant);
  if (grant.answer != wire::StoreAnswer::kOk) return grant;
  piece_ends.dismiss();
  lease_ends.dismiss();
  exchange_->name(lease, grant.slot, grant.generation);
  *place = {grant.piece.address, request.bytes, grant.piece.device, window, {}, 0};
  return grant;
}

void Store::end_import(uint32_t slot, uint64_t generation) {
  {
    std::lock_guard lock(mutex_);
    Object* object = live(slot, generation);
    if (object == nullptr || object->state != abi::StoreState::kSealed) return;
    doom(slot);
  }
  reap();
}

// ---- the owner ---------------------------------------------------------------------------------

bool Store::may_be_shared(const std::string& name) const {
  return std::any_of(options_.shared.begin(), options_.shared.end(),
                     [&](const std::string& prefix) { return name.starts_with(prefix); });
}

wire::StoreAnswer Store::lend(const std::string& name, uint32_t* slot, uint64_t* generation) {
  if (!may_be_shared(name)) return wire::StoreAnswer::kNotFound;
  std::lock_guard lock(mutex_);
  find_expired(now_ns());
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return wire::StoreAnswer::kNotFound;
  Object& object = objects_[found->second];
  // What this workflow has from another one is that one's to lend.
  if (object.state != abi::StoreState::kSealed || object.hidden || object.piece.lease != 0)
    return wire::StoreAnswer::kNotFound;
  *slot = found->second;
  *generation = object.generation;
  ++object.claims;
  ++object.loans;
  ++object.touched;
  ++counts_.lent;
  object.used_ns = now_ns();
  return wire::StoreAnswer::kOk;
}

wire::StoreAnswer Store::describe_loan(uint32_t slot, uint64_t generation, StoreOffer* offer,
                                       UniqueFd* memory) {
  if (const CUevent event = written(slot, generation); event != nullptr) {
    const CUresult state = driver_.cuEventQuery(event);
    if (state == CUDA_ERROR_NOT_READY) return wire::StoreAnswer::kBusy;
    if (state != CUDA_SUCCESS) return wire::StoreAnswer::kNotFound;
    set_ready(slot, generation);
  }
  {
    std::lock_guard lock(mutex_);
    const Object& object = objects_[slot];  // claimed: it stays, and stays where it is
    offer->body = object.body;
    offer->place =
        object.piece.device < 0 ? static_cast<uint32_t>(wire::StorePlace::kHost) : kOnGpu;
    if (object.piece.device >= 0)
      std::memcpy(offer->uuid, map_.uuid(static_cast<uint32_t>(object.piece.device)).bytes, 16);
  }
  const CUresult error =
      export_memory(slot, generation, 0, memory, &offer->block_bytes, &offer->offset);
  if (error != CUDA_SUCCESS) log_warn("memory of the store cannot be exported: error %d", error);
  return error == CUDA_SUCCESS ? wire::StoreAnswer::kOk : wire::StoreAnswer::kNoMemory;
}

bool Store::is_sealed(uint32_t slot, uint64_t generation) {
  std::lock_guard lock(mutex_);
  const Object* object = live(slot, generation);
  return object != nullptr && object->state == abi::StoreState::kSealed;
}

void Store::end_loan(uint32_t slot, uint64_t generation, bool consumed) {
  {
    std::lock_guard lock(mutex_);
    if (Object* object = live(slot, generation)) --object->loans;
  }
  release(lender_, slot, generation, 1, consumed ? 1 : 0);
}

// ---- programs without the store ----------------------------------------------------------------

CUresult Store::export_memory(uint32_t slot, uint64_t generation, uint64_t untrusted_address,
                              UniqueFd* fd, uint64_t* bytes, uint64_t* offset) {
  StorePiece piece;
  {
    std::lock_guard lock(mutex_);
    const Object* object = live(slot, generation);
    if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
    piece = object->piece;
    for (const Held& copy : object->copies) {
      if (!copy.making && copy.piece.address == untrusted_address && untrusted_address != 0)
        piece = copy.piece;
    }
    if (untrusted_address != 0 && piece.address != untrusted_address)
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (piece.device < 0) {
    *bytes = windows::kPinnedSlotBytes;
    *offset = piece.address - windows::pinned_base(piece.window, windows::kStoreSlot);
    *fd = UniqueFd(fcntl(memory_.host_fd(piece.window), F_DUPFD_CLOEXEC, 0));
    return fd->valid() ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
  }
  const BlockId block = memory_.block_of(piece);
  const std::optional<BlockPlace> place = map_.find(block);
  if (!place.has_value()) return CUDA_ERROR_INVALID_VALUE;
  const CurrentContext current(driver_, map_.context(static_cast<uint32_t>(piece.device)));
  *bytes = place->bytes;
  *offset = piece.address - place->address;
  return map_.export_fd(block, fd);
}

}  // namespace tube::proxy
