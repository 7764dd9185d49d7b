// How a session goes to sleep for want of records, and what it looks at when it wakes.
#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "policies/link_share.h"
#include "policies/spin.h"
#include "proxy/common/contained.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"
#include "sharedmem/accessors.h"
#include "sharedmem/ring.h"

namespace tube::proxy {

namespace {
// Between looks at the turns of long launches, by whose is next and by the others.
constexpr uint64_t kNextLooksNs = 50'000, kOthersLookNs = 500'000;
constexpr uint64_t kWaitsLookNs = 100'000;  // at the values of waits that are kept back
}  // namespace

void Session::woke(const shared::Peer& peer) {
  const uint64_t now = now_ns();
  // A record that came after that time and woke it says only that the timer had not.
  if (peer.watch_from_ns != 0 && now >= peer.watch_from_ns)
    rhythm_.timer_was_late((watched_ns_ != 0 ? watched_ns_ : now) - peer.watch_from_ns);
  if (reader_->has_record()) {
    rhythm_.works(now);
    resting_ = false;
    watches_since_ns_ = 0;
    if (steps_.woke(now) && deadlines_.on()) deadlines_.began(now);
  }
  shared_.activity.woke(client_.id, now);
  if (residency_.on()) residency_.woke(now);
}

// What is held here and what the driver has; as it is, nothing is hurried on.
bool Session::has_work() {
  return runs_.holding() || parked_.any() || lanes_.any() || launches_.holding() || !wait_idle(0);
}

// Whether no work of the client is outstanding, in the driver or here.
bool Session::at_rest() {
  if (runs_.on()) runs_.end();
  copies_.mark();
  if (parked_.any() || lanes_.any() || launches_.holding() || captures()) return false;
  deferred_.collect();
  return wait_idle(0);
}

// Its function has used more than its share of a core that others want. What these ask of this
// session meanwhile is done.
void Session::rest_for_others() {
  constexpr int kLookMs = 1;
  const uint64_t begin_ns = now_ns();
  uint64_t rest_ns = 0;
  (void)contained("a look at its share of the cores", [&] {
    rest_ns = cpu_.look(stats_.records.load(std::memory_order_relaxed),
                        shared_.activity.awake.load(std::memory_order_relaxed),
                        shared_.activity.alone(client_.id, begin_ns));
  });
  uint64_t passed_ns = 0;
  for (; passed_ns < rest_ns && !stopping(); passed_ns = now_ns() - begin_ns) {
    poll(nullptr, 0, kLookMs);
    if (residency_.asked()) (void)residency_.serve();
    (void)go_on_parked();
  }
  cpu_.rested(passed_ns);
}

// Whether it may stay awake for the sake of a function that works in a rhythm: that can have the
// cores.
bool Session::may_watch() const {
  return shared_.rhythm && waiter_.spin_us() != 0 && waiter_.spin_us() >= shared_.spin_us;
}

// What the lane says when it has the last piece of such a function's copy would find a core that
// has halted. Copies that take longer have no use for that. To its rhythm this is rest.
bool Session::watches_lane() {
  if (!lanes_.any() || !may_watch()) return false;
  const uint64_t now = now_ns();
  if (now >= rhythm_.next().until_ns) return false;
  if (watches_since_ns_ == 0) watches_since_ns_ = now;
  if (now - watches_since_ns_ >= policies::kLaneWatchNs) return false;
  if (!std::exchange(resting_, true)) rhythm_.rests(now);
  return true;
}

// One stream of each GPU says whether its context has failed.
void Session::ask_for_host_calls(uint64_t now_ns) {
  if (!host_calls_.due(now_ns)) return;
  uint64_t asked = 0;  // a bit for each GPU
  (void)contexts_.all_streams([&](const StreamState& state, uint32_t gpu) {
    const uint64_t bit = uint64_t{1} << gpu % 64;
    if ((asked & bit) != 0 || query(state, gpu) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
      return true;
    asked |= bit;
    if (shared_.gpus[gpu].failed.load(std::memory_order_relaxed) != 0) host_calls_.clear();
    return true;
  });
}

// While launches are held this session looks at their turns: without a pause when one of its own is
// the next and it may spin. False: it does not sleep.
bool Session::sleep_beside_holds(shared::Peer& peer) {
  peer.at_most_ns = 0;
  if (deadlines_.on()) {
    const uint64_t now = now_ns();
    if (deadlines_.wants_look(now)) deadlines_.look(now, parked_.any());
    peer.at_most_ns = deadlines_.sleeps_ns(now);
  }
  const auto look_within = [&peer](uint64_t ns) {
    peer.at_most_ns = peer.at_most_ns == 0 ? ns : std::min(peer.at_most_ns, ns);
  };
  if (host_calls_.any()) ask_for_host_calls(now_ns());
  if (host_calls_.any()) look_within(HostCalls::kLookNs);
  if (parked_waits_.any() || own_waits_.any()) look_within(kWaitsLookNs);
  if (watches_lane()) {
    (void)contained("a turn of the lanes", [&] { copies_.stand_in(); });
    waiter_.offer_core();
    return false;
  }
  if (!launches_.holding()) return true;
  if (launches_.is_next() && waiter_.spin_us() != 0) {
    waiter_.offer_core();
    return false;
  }
  look_within(launches_.is_next() ? kNextLooksNs : kOthersLookNs);
  return true;
}

// A function that works in a rhythm is waited for without sleeping when its time comes.
void Session::expect_a_record(shared::Peer& peer) {
  if (!std::exchange(resting_, true)) rhythm_.rests(now_ns());  // else it woke to look at something
  const policies::Rhythm::Watch watch = may_watch() ? rhythm_.next() : policies::Rhythm::Watch{};
  peer.watch_from_ns = watch.from_ns;
  peer.watch_until_ns = watch.until_ns;
  peer.watched_ns = &watched_ns_;
  watched_ns_ = 0;
}

bool Session::soon_a_record(uint64_t within_ns) {
  const uint64_t end = now_ns() + within_ns;
  while (now_ns() < end)
    if (reader_->next() != shared::RingReader::Next::kEmpty) return true;
  return false;
}

// How long this session and its client may spin, now that so many are awake.
void Session::share_spinning() {
  if (shared_.cores == 0) return;
  const uint32_t share =
      policies::spin_share(shared_.cores, shared_.activity.awake.load(std::memory_order_relaxed));
  const uint32_t spin_us =
      policies::spin_limit_us(shared_.spin_us, share, client_.needs.slo_ns != 0);
  waiter_.set_spin_us(spin_us);
  shared::proxy_store_spin(segment_.header(), spin_us);
}

}  // namespace tube::proxy
