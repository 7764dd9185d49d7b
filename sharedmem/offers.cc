#include "sharedmem/offers.h"

#include <algorithm>

#include "sharedmem/accessors.h"

namespace tube::shared {

bool Offers::try_take(uint32_t index, uint32_t device, uint64_t bytes, OfferedBlock* block) {
  abi::MemoryOffer& offer = segment_->offer(index);
  const uint64_t seen = client_reads_offer(offer);
  if ((seen & 3) != static_cast<uint64_t>(abi::OfferState::kReady)) return false;
  // The proxy may be writing the next block's by now: then the exchange below fails.
  const uint64_t address = atomic(offer.address).load(std::memory_order_relaxed);
  const uint64_t block_bytes = atomic(offer.bytes).load(std::memory_order_relaxed);
  if (atomic(offer.device).load(std::memory_order_relaxed) != device ||
      !abi::offer_serves(block_bytes, bytes) || !client_takes_offer(offer, seen))
    return false;
  *block = {index + 1, address, (seen >> 2) + 1};
  return true;
}

OfferedBlock Offers::take(uint32_t device, uint64_t bytes) {
  OfferedBlock block;
  const uint32_t used =
      std::min(client_loads_offers_used(segment_->header()), uint32_t{abi::kOffers});
  if (used == 0 || try_take(last_.load(std::memory_order_relaxed), device, bytes, &block))
    return block;
  for (uint32_t index = 0; index < used; ++index) {
    if (try_take(index, device, bytes, &block)) break;
  }
  return block;
}

OfferedBlock Offers::granted(uint32_t number, uint64_t address) const {
  if (number == 0 || number > abi::kOffers) return {0, address, 0};
  return {number, address, client_reads_offer(segment_->offer(number - 1)) >> 2};
}

void Offers::give_back(uint32_t number, uint64_t generation) {
  if (number == 0 || number > abi::kOffers) return;
  client_returns_offer(segment_->offer(number - 1), generation);
  last_.store(number - 1, std::memory_order_relaxed);
}

}  // namespace tube::shared
