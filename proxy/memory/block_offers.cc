#include "proxy/memory/block_offers.h"

#include <utility>

#include "base/clock.h"
#include "proxy/memory/block_pool.h"
#include "proxy/memory/memory_map.h"
#include "sharedmem/accessors.h"

namespace tube::proxy {

using abi::OfferState;

namespace {
// Some offers are left to blocks that are idle, however many the client holds.
constexpr uint32_t kMostHeld = abi::kOffers - 32;

// The generation in a word: the block's, and below that how often the client has taken it.
constexpr uint64_t next_block(uint64_t generation) { return (generation | 0xffffffffu) + 1; }
}  // namespace

BlockOffers::BlockOffers(BlockPool& pool, MemoryMap& map, Client client,
                         const shared::Segment& segment)
    : pool_(pool), map_(map), client_(std::move(client)), segment_(segment) {}

// ---- mutex_ held -------------------------------------------------------------------------------

void BlockOffers::set_idle(Entry& entry, bool idle) {
  entry.state = idle ? State::kIdle : State::kHeld;
  entry.idle_since_ns = idle ? now_ns() : 0;
  map_.set_idle(entry.block, idle);
}

// The number of the offer; 0: none is free.
uint32_t BlockOffers::enter(BlockId block, State state, uint32_t most) {
  const std::optional<BlockPlace> place = map_.find(block);
  if (closed_ || !place || place->device < 0 || place->address == 0) return 0;
  uint32_t index = 0;
  while (index < used_ && entries_[index].state != State::kFree) ++index;
  if (index >= most) return 0;
  Entry& entry = entries_[index];
  entry = {state,
           static_cast<uint32_t>(place->device),
           next_block(entry.generation),
           block,
           place->address,
           place->bytes,
           now_ns()};
  abi::MemoryOffer& offer = segment_.offer(index);
  shared::atomic(offer.address).store(entry.address, std::memory_order_relaxed);
  shared::atomic(offer.bytes).store(entry.bytes, std::memory_order_relaxed);
  shared::atomic(offer.device).store(entry.gpu, std::memory_order_relaxed);
  if (state == State::kIdle) map_.set_idle(block, true);
  shared::proxy_stores_offer(offer, entry.generation,
                             state == State::kIdle ? OfferState::kReady : OfferState::kTaken);
  if (index == used_) shared::proxy_stores_offers_used(segment_.header(), ++used_);
  return index + 1;
}

void BlockOffers::clear(uint32_t index) {
  Entry& entry = entries_[index];
  entry.state = State::kFree;
  entry.block = BlockId::kNone;
  entry.generation = next_block(entry.generation);
  shared::proxy_stores_offer(segment_.offer(index), entry.generation, OfferState::kEmpty);
}

// False: the client has taken it, and a record that says so is on its way, whether or not it has
// made the offer ready again since; or it is about to make it ready.
bool BlockOffers::withdraw(uint32_t index, std::vector<BlockId>* gone) {
  Entry& entry = entries_[index];
  if (!shared::proxy_changes_offer(segment_.offer(index), entry.generation, OfferState::kReady,
                                   OfferState::kEmpty))
    return false;
  gone->push_back(entry.block);
  clear(index);
  counts_.given_back.fetch_add(1, std::memory_order_relaxed);
  return true;
}

uint32_t BlockOffers::idle_count(uint32_t gpu, uint64_t bytes) const {
  uint32_t count = 0;
  for (uint32_t i = 0; i < used_; ++i) {
    const Entry& entry = entries_[i];
    count += entry.state == State::kIdle && entry.gpu == gpu && entry.bytes == bytes;
  }
  return count;
}

bool BlockOffers::wants_more(uint32_t gpu, uint64_t bytes, uint64_t now_ns) const {
  const uint32_t ahead = demand_.ahead(gpu, bytes, now_ns);
  return ahead != 0 && idle_count(gpu, bytes) < ahead;
}

// ---- the session's thread ----------------------------------------------------------------------

uint32_t BlockOffers::bind(BlockId block) {
  bool more = false;
  uint32_t number = 0;
  {
    std::lock_guard lock(mutex_);
    counts_.made.fetch_add(1, std::memory_order_relaxed);
    number = enter(block, State::kHeld, kMostHeld);
    if (const std::optional<BlockPlace> place = map_.find(block)) {
      const uint64_t now = now_ns();
      demand_.missed(static_cast<uint32_t>(place->device), place->bytes, now);
      more = wants_more(static_cast<uint32_t>(place->device), place->bytes, now);
    }
  }
  if (more) pool_.look();
  return number;
}

std::optional<BlockOffers::Held> BlockOffers::reuse(uint32_t gpu, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < used_; ++i) {
    Entry& entry = entries_[i];
    if (entry.state != State::kIdle || entry.gpu != gpu || !abi::offer_serves(entry.bytes, bytes))
      continue;
    if (!shared::proxy_changes_offer(segment_.offer(i), entry.generation, OfferState::kReady,
                                     OfferState::kTaken))
      continue;  // another thread of the client's was faster
    set_idle(entry, false);
    demand_.found(gpu, entry.bytes, now_ns());
    counts_.reused.fetch_add(1, std::memory_order_relaxed);
    return Held{i + 1, entry.block, entry.address};
  }
  return std::nullopt;
}

std::optional<BlockOffers::Held> BlockOffers::take(uint32_t untrusted_offer, uint32_t gpu,
                                                   uint64_t untrusted_address,
                                                   uint64_t untrusted_bytes) {
  bool more = false;
  Held held;
  {
    std::lock_guard lock(mutex_);
    if (untrusted_offer == 0 || untrusted_offer > used_) return std::nullopt;
    Entry& entry = entries_[untrusted_offer - 1];
    if (entry.state == State::kFree || entry.gpu != gpu || entry.address != untrusted_address ||
        !abi::offer_serves(entry.bytes, untrusted_bytes))
      return std::nullopt;
    held = {untrusted_offer, entry.block, entry.address, entry.state == State::kIdle};
    ++entry.generation;
    if (held.was_idle) set_idle(entry, false);
    const uint64_t now = now_ns();
    demand_.found(gpu, entry.bytes, now);
    more = wants_more(gpu, entry.bytes, now);
    counts_.posted.fetch_add(1, std::memory_order_relaxed);
  }
  if (more) pool_.look();
  return held;
}

bool BlockOffers::give_back(uint32_t offer, bool client_returns) {
  uint32_t gpu = 0;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || offer == 0 || offer > used_) return false;
    Entry& entry = entries_[offer - 1];
    if (entry.state != State::kHeld) return false;
    set_idle(entry, true);
    gpu = entry.gpu;
    demand_.freed(gpu, entry.bytes);
    if (!client_returns && !shared::proxy_changes_offer(segment_.offer(offer - 1), entry.generation,
                                                        OfferState::kTaken, OfferState::kReady)) {
      set_idle(entry, false);
      clear(offer - 1);
      return false;
    }
  }
  pool_.has_grown(gpu);
  return true;
}

bool BlockOffers::keep(BlockId block) {
  const std::optional<BlockPlace> place = map_.find(block);
  {
    std::lock_guard lock(mutex_);
    if (!place) return false;
    demand_.freed(static_cast<uint32_t>(place->device), place->bytes);
    if (enter(block, State::kIdle) == 0) return false;
  }
  pool_.has_grown(static_cast<uint32_t>(place->device));
  return true;
}

void BlockOffers::unbind(uint32_t offer) {
  std::lock_guard lock(mutex_);
  if (offer == 0 || offer > used_ || entries_[offer - 1].state != State::kHeld) return;
  demand_.freed(entries_[offer - 1].gpu, entries_[offer - 1].bytes);
  clear(offer - 1);
}

void BlockOffers::withdraw_without_memory(std::vector<BlockId>* gone) {
  std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < used_; ++i) {
    if (entries_[i].state == State::kIdle && !map_.has_memory(entries_[i].block))
      (void)withdraw(i, gone);
  }
}

policies::PoolDemand BlockOffers::demand() const {
  std::lock_guard lock(mutex_);
  return demand_;
}

void BlockOffers::restore(const policies::PoolDemand& earlier) {
  std::lock_guard lock(mutex_);
  for (const policies::PoolDemand::Size& size : earlier.sizes())
    (void)demand_.restore(size.gpu, size.bytes, size.profile);
}

void BlockOffers::close(bool release) {
  std::vector<BlockId> gone;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    gone.reserve(used_);
    closed_ = true;
    for (uint32_t i = 0; i < used_; ++i) {
      if (entries_[i].state == State::kIdle) gone.push_back(entries_[i].block);
      clear(i);
    }
    used_ = 0;
  }
  pool_.leave(*this);
  if (!release) return;
  for (const BlockId block : gone) map_.release(block);
}

// ---- any thread --------------------------------------------------------------------------------

uint64_t BlockOffers::idle_bytes(uint32_t gpu) const {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < used_; ++i) {
    if (entries_[i].state == State::kIdle && entries_[i].gpu == gpu) bytes += entries_[i].bytes;
  }
  return bytes;
}

void BlockOffers::withdraw_all(uint32_t gpu, std::vector<BlockId>* gone) {
  std::lock_guard lock(mutex_);
  demand_.forget();
  for (uint32_t i = 0; i < used_; ++i) {
    if (entries_[i].state == State::kIdle && entries_[i].gpu == gpu) (void)withdraw(i, gone);
  }
}

bool BlockOffers::withdraw_oldest(uint32_t gpu, std::vector<BlockId>* gone) {
  std::lock_guard lock(mutex_);
  for (uint64_t after_ns = 0; true;) {
    const Entry* oldest = nullptr;
    for (uint32_t i = 0; i < used_; ++i) {
      const Entry& entry = entries_[i];
      if (entry.state != State::kIdle || entry.gpu != gpu || entry.idle_since_ns <= after_ns)
        continue;
      if (oldest == nullptr || entry.idle_since_ns < oldest->idle_since_ns) oldest = &entry;
    }
    if (oldest == nullptr) return false;
    after_ns = oldest->idle_since_ns;
    if (withdraw(static_cast<uint32_t>(oldest - entries_.data()), gone)) return true;
  }
}

void BlockOffers::withdraw_beyond_worth(uint64_t now_ns, std::vector<BlockId>* gone) {
  std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < used_; ++i) {
    const Entry& entry = entries_[i];
    if (entry.state == State::kIdle &&
        idle_count(entry.gpu, entry.bytes) > demand_.worth(entry.gpu, entry.bytes, now_ns))
      (void)withdraw(i, gone);
  }
}

void BlockOffers::withdraw_expired(uint64_t now_ns, std::vector<BlockId>* gone) {
  switch (pool_.policy()) {
    case policies::PoolPolicy::kStatic: return;
    case policies::PoolPolicy::kDemand: return withdraw_beyond_worth(now_ns, gone);
    case policies::PoolPolicy::kKeep: break;
  }
  std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < used_; ++i) {
    const Entry& entry = entries_[i];
    if (entry.state == State::kIdle && policies::pool_expired(entry.idle_since_ns, now_ns) &&
        demand_.ahead(entry.gpu, entry.bytes, now_ns) == 0)
      (void)withdraw(i, gone);
  }
}

// ---- the pool's thread -------------------------------------------------------------------------

std::optional<BlockOffers::Wish> BlockOffers::next_ahead(uint64_t now_ns) const {
  std::lock_guard lock(mutex_);
  if (closed_) return std::nullopt;
  for (const policies::PoolDemand::Size& size : demand_.sizes()) {
    if (size.bytes != 0 && wants_more(size.gpu, size.bytes, now_ns) &&
        pool_.has_room(size.gpu, size.bytes))
      return Wish{size.gpu, size.bytes};
  }
  return std::nullopt;
}

bool BlockOffers::add_ahead(BlockId block) {
  std::lock_guard lock(mutex_);
  if (enter(block, State::kIdle) == 0) return false;
  counts_.ahead.fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace tube::proxy
