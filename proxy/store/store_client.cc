#include "proxy/store/store_client.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "proxy/common/client_limits.h"
#include "proxy/store/store_verifier.h"
#include "sharedmem/store_accessors.h"

namespace tube::proxy {

StoreClient::StoreClient(Store& store, Ranges& ranges, uint64_t session, uint32_t window,
                         std::string function)
    : store_(store),
      ranges_(ranges),
      session_(session),
      window_(window),
      function_(std::move(function)) {}
StoreClient::~StoreClient() = default;

Status StoreClient::open() {
  Result<std::shared_ptr<StoreMember>> member = store_.join(session_, function_);
  if (!member.ok()) return member.error();
  member_ = member.take();
  return {};
}

bool StoreClient::add_range(uint64_t address, uint64_t bytes, int device) {
  Range range;
  range.base = address;
  range.bytes = bytes;
  range.kind = device < 0 ? RangeKind::kStoredHost : RangeKind::kStored;
  range.device = device < 0 ? 0 : device;
  return ranges_.insert(range);
}

bool StoreClient::enter(uint32_t slot, uint64_t generation, const StorePlaceOf& place) {
  if (!add_range(place.address, place.bytes, place.device)) return false;
  held_[slot] = Held{generation, place.address, {}, 1, 0, false, false};
  for (uint32_t i = 0; i < place.copies_count; ++i) {
    if (!show_copy(slot, place.copies[i].address, place.bytes, place.copies[i].device))
      return false;
  }
  if (StoreVerifier* verifier = store_.verifier()) verifier->taken(slot, generation, function_);
  return true;
}

bool StoreClient::show_copy(uint32_t slot, uint64_t address, uint64_t bytes, int device) {
  Held& held = held_.at(slot);
  if (std::find(held.copies.begin(), held.copies.end(), address) != held.copies.end()) return true;
  if (!add_range(address, bytes, device)) return false;
  held.copies.push_back(address);
  return true;
}

void StoreClient::hide_copy(uint32_t slot, uint64_t address) {
  if (std::erase(held_.at(slot).copies, address) != 0) ranges_.erase(address);
}

void StoreClient::made(uint32_t slot, uint64_t generation, int device, CUevent written) {
  const auto found = std::find_if(making_.begin(), making_.end(), [&](const Making& making) {
    return making.slot == slot && making.generation == generation && making.piece.device == device;
  });
  if (found == making_.end()) return;
  const StorePiece piece = found->piece;
  making_.erase(found);
  if (written == nullptr) store_.not_copied(slot, generation, piece);
  else (void)store_.copied(slot, generation, piece, written);
}

StoreGrant StoreClient::reserve(StoreRequest request) {
  request.window = window_;
  StoreGrant grant = store_.reserve(*member_, request);
  if (grant.answer != wire::StoreAnswer::kOk) return grant;
  const StorePlaceOf place{grant.piece.address, request.bytes, grant.piece.device, window_, {}, 0};
  if (!enter(grant.slot, grant.generation, place)) {
    store_.release(*member_, grant.slot, grant.generation, 1, 0);
    grant.answer = wire::StoreAnswer::kNoMemory;
    return grant;
  }
  held_.at(grant.slot).makes = true;
  return grant;
}

void StoreClient::drop(std::map<uint32_t, Held>::iterator held) {
  if (StoreVerifier* verifier = store_.verifier())
    verifier->released(held->first, held->second.generation, function_);
  ranges_.erase(held->second.address);
  for (const uint64_t copy : held->second.copies) ranges_.erase(copy);
  held_.erase(held);
}

bool StoreClient::seal(uint32_t slot, uint64_t generation, CUevent written, const StoreStream& on) {
  const auto found = held_.find(slot);
  if (!makes(slot, generation) || !store_.seal(*member_, slot, generation, written, on))
    return false;
  found->second.makes = false;
  if (--found->second.claims == 0) drop(found);
  store_.release(*member_, slot, generation, 1, 0);
  return true;
}

void StoreClient::give_up(uint32_t slot, uint64_t generation) {
  const auto found = held_.find(slot);
  found->second.makes = false;
  if (--found->second.claims == 0) drop(found);
  store_.release(*member_, slot, generation, 1, 0);
}

bool StoreClient::claim(uint32_t slot, uint64_t generation) {
  if (slot >= abi::kStoreSlots) return false;
  StorePlaceOf place;
  if (!store_.claim(*member_, slot, generation, &place)) return false;
  if (holds(slot, generation)) {
    ++held_.at(slot).claims;
    return true;
  }
  // In another window the address means nothing to the client, which does not claim there.
  if (place.window == window_ && enter(slot, generation, place)) return true;
  store_.release(*member_, slot, generation, 1, 0);
  return false;
}

StoreGrant StoreClient::import(const std::string& full_name) {
  StorePlaceOf place;
  StoreGrant grant = store_.import(*member_, window_, full_name, &place);
  if (grant.answer != wire::StoreAnswer::kOk) return grant;
  if (enter(grant.slot, grant.generation, place)) {
    held_.at(grant.slot).imports = 1;
    return grant;
  }
  store_.release(*member_, grant.slot, grant.generation, 1, 0);
  grant.answer = wire::StoreAnswer::kNoMemory;
  return grant;
}

bool StoreClient::drop_import(uint32_t slot, uint64_t generation) {
  const auto found = held_.find(slot);
  if (!holds(slot, generation) || found->second.imports == 0) return false;
  --found->second.imports;
  if (--found->second.claims == 0) drop(found);
  store_.release(*member_, slot, generation, 1, 0);
  return true;
}

bool StoreClient::release(uint32_t slot, uint64_t generation, bool last) {
  const auto found = held_.find(slot);
  if (!holds(slot, generation)) return false;
  Held& held = found->second;
  if (held.claims == held.imports) return false;
  const bool unsealed = held.makes && last && held.claims == 1;  // given up
  const bool goes = last && !held.kept;
  if (goes && --held.claims == 0) drop(found);
  store_.release(*member_, slot, generation, goes ? 1 : 0, unsealed ? 0 : 1);
  // The maker's claim came without a pin.
  if (goes && !unsealed) shared::proxy_unpins(member_->pin(slot));
  if (goes && !unsealed) store_.look(slot);
  return true;
}

void StoreClient::set_waiting(bool on) {
  if (!on && waiting_ == 0) return;
  waiting_ += on ? 1 : -1;
  store_.waiting(on ? 1 : -1);
}

void StoreClient::lose_unwritten() {
  if (member_ == nullptr) return;
  const uint64_t deadline = now_ns() + uint64_t{limits::kUnwrittenMs} * 1'000'000;
  while (store_.unwritten(session_, false) != 0 && now_ns() < deadline) poll(nullptr, 0, 1);
  (void)store_.unwritten(session_, true);
}

void StoreClient::leave(bool idle) {
  if (member_ == nullptr) return;
  while (waiting_ != 0) set_waiting(false);
  while (!making_.empty()) {  // they were in a lane, from which they were taken back
    const Making last = making_.back();
    made(last.slot, last.generation, last.piece.device, nullptr);
  }
  while (!held_.empty()) {
    const auto first = held_.begin();
    const auto [slot, held] = *first;
    drop(first);
    if (idle) store_.release(*member_, slot, held.generation, held.claims, 0);
  }
  store_.leave(std::exchange(member_, nullptr));
}

}  // namespace tube::proxy
