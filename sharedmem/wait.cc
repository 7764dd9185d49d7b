#include "sharedmem/wait.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/clock.h"
#include "base/cpu_pause.h"
#include "base/futex.h"
#include "base/timer_slack.h"
#include "sharedmem/accessors.h"
#include "sharedmem/socket.h"

namespace tube::shared {
namespace {

constexpr uint64_t kPeerCheckNs =
    50'000'000;  // how late a dead peer may be noticed; one poll(2) each
constexpr uint64_t kProbeNs = 20'000'000;
constexpr uint64_t kFirstNapNs = 20'000;
constexpr uint64_t kLongestNapNs = 250'000;  // the price of a GPU word that nobody wakes us for
constexpr uint64_t kNapPart = 16;            // a nap is this part of what was waited already
constexpr uint64_t kWakeNs =
    30'000;  // from the waker's futex call to the sleeper's next instruction (23 to 48 us)
// Pauses between two looks at the clock and the scheduler, a microsecond's worth at first. A pause
// is about 40 ns on current x86 and leaves the other thread of the core alone (the program's,
// perhaps). Looks at the clock do not, so a long wait takes one every five microseconds.
constexpr uint32_t kPausesAtFirst = 32, kPausesLater = 128;
constexpr uint64_t kLaterNs = 20'000;
constexpr uint64_t kQuietSpinNs = 2'000;
constexpr int kYields = 3;
constexpr uint64_t kNoSpinPays = ~uint64_t{0};  // as a gap
// An idle session is woken for records, its stop and its client's death. It looks at its stop flag
// every minute in case a hostile client keeps its sleep flag up (see wake_reader). When the client
// has closed its socket nothing reports its death, so the session looks every second.
constexpr uint64_t kSessionNapNs = 60'000'000'000;
constexpr uint64_t kUnconnectedNapNs = 1'000'000'000;

// A killed process hangs up too: the kernel closes its end.
bool connected(const Peer& peer) {
  if (peer.socket_inode != 0 && !is_socket(peer.socket_fd, peer.socket_inode)) return false;
  return !hung_up(peer.socket_fd);
}

// What is left of a nap that ends at a given time (0: any).
uint64_t cut_nap(uint64_t nap_ns, uint64_t end_ns) {
  if (end_ns == 0) return nap_ns;
  const uint64_t now = now_ns();
  return end_ns > now ? std::min(nap_ns, end_ns - now) : 1;
}

bool on_gpu(WaitReason reason) {
  return reason == WaitReason::kWord || reason == WaitReason::kChunk ||
         reason == WaitReason::kCallback;
}

// Of such a wait spinning was of no use: a sleeper is woken for the post.
bool ended_by_post(const Probe& probe) {
  return probe.posts != nullptr &&
         atomic(*probe.posts).load(std::memory_order_relaxed) != probe.seen;
}

}  // namespace

const char* wait_result_text(WaitResult result) {
  switch (result) {
    case WaitResult::kDone: return "done";
    case WaitResult::kPeerDead: return "the other process is gone";
    case WaitResult::kStopping: return "the proxy is stopping";
    case WaitResult::kSticky: return "the session or its context failed";
  }
  return "unknown";
}

WaitResult check_peer(const Peer& peer, bool gpu_wait) {
  if (peer.stop != nullptr && peer.stop->load(std::memory_order_acquire))
    return WaitResult::kPeerDead;
  if (peer.header != nullptr) {
    const abi::ProxyState state = client_load_proxy_state(*peer.header);
    if (state == abi::ProxyState::kPoisoned) return WaitResult::kSticky;
    if (state == abi::ProxyState::kStopping) return WaitResult::kStopping;
    if (gpu_wait && client_load_sticky_error(*peer.header) != 0) return WaitResult::kSticky;
  }
  if (peer.socket_fd < 0) return WaitResult::kDone;
  const int saved = errno;
  bool alive = connected(peer);
  if (peer.second_opinion != nullptr) alive = peer.second_opinion(peer.opinion_context, alive);
  errno = saved;
  if (alive) return WaitResult::kDone;
  // A proxy that stops says so before it takes its sockets away: maybe since the look above.
  const bool stops =
      peer.header != nullptr && client_load_proxy_state(*peer.header) == abi::ProxyState::kStopping;
  return stops ? WaitResult::kStopping : WaitResult::kPeerDead;
}

// A full ring takes long to drain, and the waiting thread has many records to write: sleep at once.
// A stream's progress is worth a long spin: a native cuStreamSynchronize spins all the way, and no
// waker exists for what the GPU writes.
uint32_t Waiter::spin_us() const {
  return followed_ != nullptr ? atomic(*followed_).load(std::memory_order_relaxed)
                              : spin_us_.load(std::memory_order_relaxed);
}

policies::SpinCost Waiter::spin_cost(WaitReason reason) const {
  const uint32_t spin_us = this->spin_us();
  if (reason == WaitReason::kRingSpace) return {};
  if (on_gpu(reason)) {
    const uint64_t spins =
        reason == WaitReason::kCallback ? policies::kCallbackSpins : policies::kGpuSpins;
    return {policies::gpu_spin_limit_ns(spin_us, spins), kFirstNapNs / 2, kNapPart * 2, 64};
  }
  return policies::woken_cost(uint64_t{spin_us} * 1000, kWakeNs);
}

uint64_t Waiter::spin_budget_ns(WaitReason reason) const {
  const policies::SpinCost cost = spin_cost(reason);
  if (cost.limit_ns == 0) return 0;
  policies::Gaps gaps;
  for (uint32_t i = 0; i < policies::kGapBuckets; ++i)
    gaps.count[i] = gaps_[static_cast<uint32_t>(reason)][i].load(std::memory_order_relaxed);
  return policies::best_spin(gaps, cost);
}

void Waiter::learn(WaitReason reason, uint64_t waited_ns) {
  std::atomic<uint32_t>(&gaps)[policies::kGapBuckets] = gaps_[static_cast<uint32_t>(reason)];
  uint32_t seen = 0;
  for (const std::atomic<uint32_t>& count : gaps) seen += count.load(std::memory_order_relaxed);
  if (seen >= policies::kGapsRemembered) {
    for (std::atomic<uint32_t>& count : gaps)
      count.store(count.load(std::memory_order_relaxed) / 2, std::memory_order_relaxed);
  }
  gaps[policies::gap_bucket(waited_ns)].fetch_add(1, std::memory_order_relaxed);
}

bool Waiter::spin(uint64_t start_ns, uint64_t budget_ns, ReadyRef ready) {
  if (budget_ns == 0) {
    for (int i = 0; i < kYields; ++i) {
      ::sched_yield();
      if (ready()) return true;
    }
    return false;
  }
  uint64_t spent_ns = 0;
  do {
    // Past the first moments the other side may well be waiting for this very core: offer it, each
    // time round. Costs a waiter with a core of its own 0.3 us of latency; with both sides on one
    // core it took a round trip from 100 us to 8.
    if (spent_ns > kQuietSpinNs) offer_.make(start_ns + spent_ns);
    for (uint32_t i = spent_ns < kLaterNs ? kPausesAtFirst : kPausesLater; i != 0; --i) {
      cpu_pause();
      if (ready()) return true;
    }
    spent_ns = now_ns() - start_ns;
  } while (spent_ns < budget_ns);
  return false;
}

WaitResult Waiter::run(WaitReason reason, const Peer& peer, const Sleep* sleep, const Probe& probe,
                       ReadyRef ready) {
  const uint64_t start_ns = now_ns();
  if (spin(start_ns, spin_budget_ns(reason), ready)) {
    learn(reason, ended_by_post(probe) ? kNoSpinPays : now_ns() - start_ns);
    if (counters_ != nullptr) count_one(counters_->spun[static_cast<uint32_t>(reason)]);
    return WaitResult::kDone;
  }
  if (counters_ != nullptr) count_one(counters_->slept[static_cast<uint32_t>(reason)]);
  const WaitResult result = sleep != nullptr ? sleep_on_futex(reason, peer, *sleep, ready)
                                             : sleep_polling(reason, peer, probe, ready);
  if (result == WaitResult::kDone)
    learn(reason, ended_by_post(probe) ? kNoSpinPays : now_ns() - start_ns);
  return result;
}

void Waiter::offer_core() { offer_.make(now_ns()); }

bool Waiter::watch(uint64_t until_ns, ReadyRef ready) {
  const uint64_t now = now_ns();
  return now < until_ns && spin(now, until_ns - now, ready);
}

WaitResult Waiter::sleep_on_futex(WaitReason reason, const Peer& peer, const Sleep& sleep,
                                  ReadyRef ready) {
  // A session hears of its client's death by wake_reader while the socket stands; other waits have
  // to look.
  const auto nap_ns = [&] {
    if (reason != WaitReason::kRecord) return kPeerCheckNs;
    if (peer.at_most_ns != 0) return peer.at_most_ns;
    return peer.socket_fd >= 0 && !connected(peer) ? kUnconnectedNapNs : kSessionNapNs;
  };
  // 0: not, or no longer.
  uint64_t watch_ns =
      peer.watch_until_ns != 0 && now_ns() < peer.watch_until_ns ? peer.watch_from_ns : 0;
  std::optional<NarrowTimerSlack> narrow;
  if (watch_ns != 0) narrow.emplace();
  WaitResult result = WaitResult::kDone;
  while (true) {
    const bool announced = sleep.announce(sleep.context);
    if (ready()) break;
    // After the announcement, so that a stop flag set before the waker took the announcement is
    // seen here.
    result = check_peer(peer, on_gpu(reason));
    if (result != WaitResult::kDone) {
      if (ready()) result = WaitResult::kDone;  // it answered and died: the answer counts
      break;
    }
    if (announced) futex_wait(sleep.word, sleep.asleep_value, cut_nap(nap_ns(), watch_ns));
    const uint64_t spin_ns = spin_cost(reason).limit_ns;
    // Looks that come more often than that are not to be spun past.
    if (ready() || (peer.at_most_ns != 0 && peer.at_most_ns <= spin_ns)) break;
    if (watch_ns != 0 && now_ns() >= watch_ns) {
      watch_ns = 0;
      if (peer.watched_ns != nullptr) *peer.watched_ns = now_ns();
      if (sleep.withdraw != nullptr) sleep.withdraw(sleep.context);
      if (watch(peer.watch_until_ns, ready)) break;
      continue;  // the word says awake because of that
    }
    // Woken for something that is to come (rouse_reader), or to look at a flag.
    const bool roused = reason == WaitReason::kRecord && announced &&
                        atomic(*sleep.word).load(std::memory_order_relaxed) != sleep.asleep_value;
    if (roused && spin_ns != 0 && spin(now_ns(), spin_ns, ready)) break;
    if (peer.at_most_ns != 0) break;
  }
  if (sleep.withdraw != nullptr) sleep.withdraw(sleep.context);
  return result;
}

WaitResult Waiter::sleep_polling(WaitReason reason, const Peer& peer, const Probe& probe,
                                 ReadyRef ready) {
  const NarrowTimerSlack narrow;
  const uint64_t start_ns = now_ns();
  uint64_t next_peer_check_ns = 0;  // at once: a wait that begins after the death must not sleep
  uint64_t next_probe_ns = start_ns + kProbeNs;
  while (true) {
    const uint64_t now = now_ns();
    if (probe.call != nullptr && now >= next_probe_ns) {
      probe.call(probe.context);
      next_probe_ns = now + kProbeNs;
      next_peer_check_ns = 0;  // the probe may have found the error that ends this wait
    }
    if (now >= next_peer_check_ns) {
      const WaitResult result = check_peer(peer, on_gpu(reason));
      if (result != WaitResult::kDone) return ready() ? WaitResult::kDone : result;
      next_peer_check_ns = now + kPeerCheckNs;
    }
    // In proportion to what was waited already: being late costs a wait a few percent, whatever its
    // length.
    const uint64_t nap_ns = std::clamp((now - start_ns) / kNapPart, kFirstNapNs, kLongestNapNs);
    if (probe.posts != nullptr) {
      futex_wait(probe.posts, probe.seen, nap_ns);
    } else {
      const timespec nap{0, static_cast<long>(nap_ns)};
      ::nanosleep(&nap, nullptr);
    }
    if (ready()) return WaitResult::kDone;
  }
}

}  // namespace tube::shared
