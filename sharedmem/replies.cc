#include "sharedmem/replies.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/futex.h"
#include "sharedmem/accessors.h"
#include "sharedmem/other_process.h"

namespace tube::shared {

void ReplySlots::attach(const Segment& segment, Waiter& waiter, const Peer& peer) {
  segment_ = &segment;
  waiter_ = &waiter;
  peer_ = peer;
}

bool ReplySlots::try_claim(uint32_t* slot) {
  for (uint32_t i = 0; i < abi::kReplySlots / 64; ++i) {
    uint64_t taken = taken_[i].load(std::memory_order_relaxed);
    while (~taken != 0) {
      const uint32_t bit = static_cast<uint32_t>(__builtin_ctzll(~taken));
      // Acquire: the last owner's reads of the slot are over.
      if (taken_[i].compare_exchange_weak(taken, taken | uint64_t{1} << bit,
                                          std::memory_order_acquire)) {
        *slot = i * 64 + bit;
        return true;
      }
    }
  }
  return false;
}

uint32_t ReplySlots::claim() {
  uint32_t slot = 0;
  while (!try_claim(&slot)) {
    queued_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = atomic(released_).load(std::memory_order_seq_cst);
    // A release between the failed try and here either is seen by this try or has changed
    // `released_`.
    if (try_claim(&slot)) {
      queued_.fetch_sub(1, std::memory_order_relaxed);
      break;
    }
    futex_wait(&released_, seen, kNoTimeout);
    queued_.fetch_sub(1, std::memory_order_relaxed);
  }
  client_opens_reply(segment_->reply(slot));
  return slot;
}

WaitResult ReplySlots::wait(uint32_t slot) {
  const WaitResult over = over_.load(std::memory_order_acquire);
  if (over != WaitResult::kDone) return over;
  abi::ReplyHeader& reply = segment_->reply(slot);
  Sleep sleep;
  sleep.word = &reply.state;
  sleep.asleep_value = static_cast<uint32_t>(abi::ReplyState::kAsleep);
  sleep.announce = [](void* r) {
    return client_sleeps_for_reply(*static_cast<abi::ReplyHeader*>(r));
  };
  sleep.context = &reply;
  const WaitResult result = waiter_->until(WaitReason::kReply, peer_, sleep,
                                           [&reply] { return client_sees_reply(reply); });
  seen_of_other_process();
  if (result != WaitResult::kDone) over_.store(result, std::memory_order_release);
  return result;
}

uint32_t ReplySlots::result(uint32_t slot) const { return segment_->reply(slot).result; }
uint64_t ReplySlots::sequence(uint32_t slot) const { return segment_->reply(slot).sequence; }

std::span<const std::byte> ReplySlots::payload(uint32_t slot) const {
  return {segment_->reply_payload(slot),
          std::min(segment_->reply(slot).payload_bytes, abi::kMaxReplyBytes)};
}

void ReplySlots::release(uint32_t slot) {
  client_frees_reply(segment_->reply(slot));
  taken_[slot / 64].fetch_and(~(uint64_t{1} << (slot % 64)), std::memory_order_seq_cst);
  if (queued_.load(std::memory_order_seq_cst) == 0) return;
  atomic(released_).fetch_add(1, std::memory_order_seq_cst);
  futex_wake(&released_, 1);
}

void complete_reply(const Segment& segment, uint32_t slot, uint64_t sequence, uint32_t result,
                    std::span<const std::byte> payload) {
  TUBE_CHECK(slot < abi::kReplySlots && payload.size() <= abi::kMaxReplyBytes);
  abi::ReplyHeader& reply = segment.reply(slot);
  if (!payload.empty()) std::memcpy(segment.reply_payload(slot), payload.data(), payload.size());
  reply.result = result;
  reply.sequence = sequence;
  reply.payload_bytes = static_cast<uint32_t>(payload.size());
  if (proxy_closes_reply(reply)) futex_wake(&reply.state, 1);
}

}  // namespace tube::shared
