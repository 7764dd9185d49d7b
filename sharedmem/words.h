// Progress words: how far each stream has come, without a message.
//
// The client gives each stream (or host function) a word and counts values up on it; "behind
// everything in stream s write v to word w" is a posted record; whoever waits reads the word. A
// word goes to a new owner only after its last issued value has arrived, so values of one word
// never go back. Client side, any thread.
//
// A mailbox is a word whose owner has other values in it (steps of graphs, user objects). An event
// whose stream is gone may still remember a progress value of the word. It finds that value
// reached: the value had arrived before the word became free.
#pragma once

#include <atomic>
#include <cstdint>

#include "sharedmem/segment.h"
#include "sharedmem/wait.h"

namespace tube::shared {

inline constexpr uint32_t kNoWord = 0xffffffffu;
// What may be told in the bits of one mailbox; abi::kWordReleased has others, too.
inline constexpr uint32_t kMailboxBits = 32;

class Words {
 public:
  void attach(const Segment& segment, Waiter& waiter, const Peer& peer);

  // A free word, or kNoWord when all 8192 are in use. Word 0 is never handed out (a zeroed field
  // names nothing).
  uint32_t allocate();
  // Whether every word has an owner: allocate() then finds one when an owner ends, else when values
  // that are on their way have come.
  bool all_owned() const;
  // The owner is gone; values may still be on their way.
  void release(uint32_t word);
  // A free word for values of the owner's own, `first` in it; kNoWord when all are in use.
  uint32_t allocate_mailbox(uint64_t first);
  // The owner promises that neither GPU nor proxy writes to it any more.
  void release_mailbox(uint32_t word);

  // The next value of `word`. Call it under the lock that orders the records of the stream, because
  // values must reach the GPU in order.
  uint64_t next_value(uint32_t word);
  uint64_t last_value(uint32_t word) const;  // last issued
  // False for a word that was released at the session's end: the wait then learns why (state,
  // death) and not "done".
  bool reached(uint32_t word, uint64_t value) const {
    const auto arrived = [value](uint64_t now) {
      return now >= value && now != abi::kWordReleased;
    };
    // The bit is set before a mailbox's first value and goes behind its last one.
    return arrived(load(word)) || is_mailbox(word) || arrived(load(word));
  }
  uint64_t load(uint32_t word) const;
  // The client's own words (host functions: `done`).
  void store(uint32_t word, uint64_t value);

  // Until word >= value. `probe` finds asynchronous faults; see wait.h.
  WaitResult wait(uint32_t word, uint64_t value, const Probe& probe = {});

 private:
  bool is_mailbox(uint32_t word) const {
    return (mailboxes_[word / 64].load(std::memory_order_acquire) >> (word % 64) & 1) != 0;
  }

  const Segment* segment_ = nullptr;
  Waiter* waiter_ = nullptr;
  Peer peer_;
  std::atomic<uint64_t> issued_[abi::kWordCount] = {};
  std::atomic<uint64_t> taken_[abi::kWordCount / 64] = {};
  std::atomic<uint64_t> mailboxes_[abi::kWordCount / 64] = {};
  std::atomic<uint32_t> cursor_{1};
};

// Proxy: may an untrusted index name a word?
constexpr bool valid_word(uint32_t untrusted_word) { return untrusted_word < abi::kWordCount; }

}  // namespace tube::shared
