// Reply slots: where a call that waits gets its result.
//
// Client: claim() a slot before taking the producer lock, name it in the record, publish, wait(),
// copy out, release(). Which slots are free is the client's private knowledge (two 64-bit masks);
// shared memory holds only the slot's state. Proxy: complete(), once per record.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sharedmem/segment.h"
#include "sharedmem/wait.h"

namespace tube::shared {

class ReplySlots {
 public:
  void attach(const Segment& segment, Waiter& waiter, const Peer& peer);

  // An open slot (state kWaiting). When all are taken it waits for a release (other threads' calls
  // end or fail).
  uint32_t claim();
  // Until the proxy answered. Only after kDone may result() and payload() be read.
  WaitResult wait(uint32_t slot);
  uint32_t result(uint32_t slot) const;    // CUresult
  uint64_t sequence(uint32_t slot) const;  // of the record it answers
  std::span<const std::byte> payload(
      uint32_t slot) const;  // clamped to kMaxReplyBytes; valid until release()
  // Always, also after a wait that did not end with kDone. Such an end is final for all slots:
  // every later wait() ends the same way at once, so a late answer never meets a new owner.
  void release(uint32_t slot);

 private:
  bool try_claim(uint32_t* slot);

  const Segment* segment_ = nullptr;
  Waiter* waiter_ = nullptr;
  Peer peer_;
  std::atomic<uint64_t> taken_[abi::kReplySlots / 64] = {};
  uint32_t released_ = 0;  // local futex: counts releases while somebody waits for a slot
  std::atomic<WaitResult> over_{WaitResult::kDone};  // how the connection ended, once it has
  std::atomic<uint32_t> queued_{0};                  // threads in claim() that wait
};

// Proxy, session thread. `slot` < kReplySlots (RingReader checked it), payload <= kMaxReplyBytes.
void complete_reply(const Segment& segment, uint32_t slot, uint64_t sequence, uint32_t result,
                    std::span<const std::byte> payload);

}  // namespace tube::shared
