#include "sharedmem/words.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "sharedmem/accessors.h"
#include "sharedmem/other_process.h"

namespace tube::shared {

void Words::attach(const Segment& segment, Waiter& waiter, const Peer& peer) {
  segment_ = &segment;
  waiter_ = &waiter;
  peer_ = peer;
  taken_[0].fetch_or(1, std::memory_order_relaxed);  // word 0 names nothing
}

uint32_t Words::allocate() {
  const uint32_t start = cursor_.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t i = 0; i < abi::kWordCount; ++i) {
    const uint32_t word = (start + i) % abi::kWordCount;
    std::atomic<uint64_t>& group = taken_[word / 64];
    const uint64_t bit = uint64_t{1} << (word % 64);
    if ((group.load(std::memory_order_relaxed) & bit) != 0) continue;
    // A value of the last owner is still on its way: it would overtake the next owner's.
    if (load(word) < last_value(word)) continue;
    if ((group.fetch_or(bit, std::memory_order_acquire) & bit) != 0) continue;
    if (load(word) >= last_value(word)) return word;
    release(word);  // taken, used and released by another thread between the two looks
  }
  return kNoWord;
}

bool Words::all_owned() const {
  return std::all_of(std::begin(taken_), std::end(taken_), [](const std::atomic<uint64_t>& group) {
    return group.load(std::memory_order_relaxed) == ~uint64_t{0};
  });
}

void Words::release(uint32_t word) {
  if (word == 0 || word >= abi::kWordCount) return;
  taken_[word / 64].fetch_and(~(uint64_t{1} << (word % 64)), std::memory_order_release);
}

uint32_t Words::allocate_mailbox(uint64_t first) {
  const uint32_t word = allocate();
  if (word == kNoWord) return kNoWord;
  mailboxes_[word / 64].fetch_or(uint64_t{1} << (word % 64), std::memory_order_release);
  store(word, first);
  return word;
}

void Words::release_mailbox(uint32_t word) {
  if (word == 0 || word >= abi::kWordCount) return;
  store(word, last_value(word));  // the next owner counts up from here
  mailboxes_[word / 64].fetch_and(~(uint64_t{1} << (word % 64)), std::memory_order_release);
  release(word);
}

uint64_t Words::next_value(uint32_t word) {
  return issued_[word].fetch_add(1, std::memory_order_relaxed) + 1;
}

uint64_t Words::last_value(uint32_t word) const {
  return issued_[word].load(std::memory_order_relaxed);
}

uint64_t Words::load(uint32_t word) const {
  const uint64_t value = load_word(segment_->word(word));
  seen_of_other_process();
  return value;
}

void Words::store(uint32_t word, uint64_t value) {
  passed_to_other_process();
  store_word(segment_->word(word), value);
}

WaitResult Words::wait(uint32_t word, uint64_t value, const Probe& probe) {
  return waiter_->until_polled(WaitReason::kWord, peer_, probe,
                               [this, word, value] { return reached(word, value); });
}

}  // namespace tube::shared
