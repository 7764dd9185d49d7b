// The one wait helper. Every wait of hook and proxy on the other side goes through Waiter, under a
// reason's name.
//
// A wait spins first, for at most `spin_us` (for what the GPU writes 128 times that, 8 times for a
// host function's turn, 20 ms at most)
// and only for as long as spinning lately paid for waits of this reason (policies/spin.h). It
// offers its core to other threads meanwhile (core_offer.h). Then it sleeps. Words that a process
// writes are slept on as futexes, announced by the protocols of abi.h. Words that the GPU writes
// have no waker: the wait polls them, with naps of a sixteenth of what it waited already, 20 to 250
// us. While it sleeps it looks every 50 ms whether the other process still lives (a session every
// minute, because it is told), and in GPU waits it calls a probe every 20 ms. With spin_us == 0
// (cores are scarce) a spin is a few sched_yield().
//
// No allocation, no lock; the cost of a wait that is already satisfied is one call of `ready`. Any
// thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "policies/spin.h"
#include "sharedmem/abi.h"
#include "sharedmem/core_offer.h"

namespace tube::shared {

enum class WaitReason : uint32_t {
  kRingSpace,  // client: room in the command ring (futex client_wants_space)
  kReply,      // client: a reply slot's state (futex)
  kWord,       // client: a progress word (GPU-written)
  kChunk,      // client: a staging chunk's state (GPU-written)
  kRecord,     // proxy: the next record (futex proxy_asleep)
  kCallback,   // client: a host function's turn (GPU-written)
  kCount,
};

static_assert(static_cast<uint32_t>(WaitReason::kCount) <= abi::kWaitReasons);

enum class WaitResult : uint32_t {
  kDone,
  kPeerDead,  // the socket hung up, or the caller's own stop flag is set
  kStopping,  // the proxy ends in order
  kSticky,  // the session was poisoned, or (kWord, kChunk) the context has a sticky error: it will
            // never be done
};
const char* wait_result_text(WaitResult result);

// How a wait knows that the other side is gone. The owner keeps socket and header alive. Client:
// socket and header; proxy: `stop`, and the socket if nobody else watches it.
struct Peer {
  int socket_fd = -1;                    // -1: not looked at
  abi::SegmentHeader* header = nullptr;  // client only: proxy_state and sticky_error are looked at
  const std::atomic<bool>* stop =
      nullptr;  // ours, local: the session should end, the process exits
  uint64_t socket_inode =
      0;  // of our socket: another one at its number means that the program closed it
  // Does the other process live, given what the socket alone would say? Optional.
  bool (*second_opinion)(void* context, bool socket_says) = nullptr;
  void* opinion_context = nullptr;
  // Ours, local: there is something else to do than what is waited for. RingReader::wait() alone.
  const std::atomic<bool>* nudged = nullptr;
  // There is something to look at by then: RingReader::wait() ends. 0: there is not.
  uint64_t at_most_ns = 0;
  // What is waited for is expected between these times (base/clock.h): RingReader::wait() wakes by
  // itself and looks without a pause meanwhile. 0: it is not.
  uint64_t watch_from_ns = 0, watch_until_ns = 0;
  uint64_t* watched_ns = nullptr;  // when it woke for that is written here; may be nullptr
};

// A fresh look; one poll(2) on the socket. kDone means "alive". `gpu_wait`: sticky_error counts
// too.
WaitResult check_peer(const Peer& peer, bool gpu_wait);

// Futex half of a wait: `announce` publishes that we are about to sleep and may answer false ("it
// is already done"); then the wait sleeps while *word == asleep_value.
struct Sleep {
  uint32_t* word = nullptr;
  uint32_t asleep_value = 1;
  bool (*announce)(void* context) = nullptr;
  void (*withdraw)(void* context) = nullptr;  // after the sleep, done or not; may be nullptr
  void* context = nullptr;
};

// What a GPU wait does while it sleeps.
struct Probe {
  // Called now and then. It may find an error and store it; it must not wait on the same Waiter
  // reason.
  void (*call)(void* context) = nullptr;
  void* context = nullptr;
  // A nap ends early when another thread changes this futex from `seen`, and wakes it. nullptr: by
  // the clock alone.
  uint32_t* posts = nullptr;
  uint32_t seen = 0;
};

class Waiter {
 public:
  // `spin_us` 0: do not spin. The handshake's Welcome carries it; TUBE_SPIN_US overrides (caller's
  // business).
  explicit Waiter(uint32_t spin_us = 0) : spin_us_(spin_us) {}
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Counts from now on how waits end, those apart that were satisfied at once; call before the
  // first wait. `counters` outlives the waits.
  void count_into(abi::WaitCounters* counters) { counters_ = counters; }

  void set_spin_us(uint32_t spin_us) { spin_us_.store(spin_us, std::memory_order_relaxed); }
  uint32_t spin_us() const;
  // From now on the limit is what stands in `*spin_us`, which outlives the waiter. Call before the
  // first wait.
  void follow(uint32_t* spin_us) { followed_ = spin_us; }

  // Until ready() is true, asleep on a futex after the spin. `ready` is called often and must be
  // cheap.
  template <class Ready>
  WaitResult until(WaitReason reason, const Peer& peer, const Sleep& sleep, Ready&& ready) {
    if (ready()) return WaitResult::kDone;
    return run(reason, peer, &sleep, Probe{}, ReadyRef::of(ready));
  }

  // The same for memory that nobody wakes us for.
  template <class Ready>
  WaitResult until_polled(WaitReason reason, const Peer& peer, const Probe& probe, Ready&& ready) {
    if (ready()) return WaitResult::kDone;
    return run(reason, peer, nullptr, probe, ReadyRef::of(ready));
  }

  // Of a thread that waits here in its own way, without sleeping.
  void offer_core();

  // What this reason would spin now, for tests and statistics.
  uint64_t spin_budget_ns(WaitReason reason) const;

 private:
  struct ReadyRef {
    bool (*call)(void*);
    void* context;
    template <class Ready>
    static ReadyRef of(Ready& ready) {
      return {[](void* c) -> bool { return (*static_cast<Ready*>(c))(); },
              const_cast<void*>(static_cast<const void*>(&ready))};
    }
    bool operator()() const { return call(context); }
  };

  WaitResult run(WaitReason reason, const Peer& peer, const Sleep* sleep, const Probe& probe,
                 ReadyRef ready);
  bool spin(uint64_t start_ns, uint64_t budget_ns, ReadyRef ready);
  bool watch(uint64_t until_ns, ReadyRef ready);
  WaitResult sleep_on_futex(WaitReason reason, const Peer& peer, const Sleep& sleep,
                            ReadyRef ready);
  WaitResult sleep_polling(WaitReason reason, const Peer& peer, const Probe& probe, ReadyRef ready);
  void learn(WaitReason reason, uint64_t waited_ns);
  policies::SpinCost spin_cost(WaitReason reason) const;

  std::atomic<uint32_t> spin_us_;
  abi::WaitCounters* counters_ = nullptr;
  uint32_t* followed_ = nullptr;
  CoreOffer offer_;
  // How long waits of each reason took (policies/spin.h). Threads that wait at once may lose a
  // count; nothing rests on one.
  std::atomic<uint32_t> gaps_[static_cast<uint32_t>(WaitReason::kCount)][policies::kGapBuckets] =
      {};
};

}  // namespace tube::shared
