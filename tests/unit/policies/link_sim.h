// A link in virtual time under a LinkShare: it serves chunks in the order of their submission, and
// its caller keeps as many of them outstanding as it may. What every order must keep is checked on
// the way: the link never idles while a copy waits, and each copy's bytes go once and in order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <ostream>
#include <queue>
#include <vector>

#include "policies/link_share.h"
#include "tests/support/units.h"

namespace tube::policies {

struct SimCopy {
  uint64_t function = 0;
  uint64_t bytes = 0;
  uint64_t arrived_ns = 0;
  uint64_t free_ns = 0;   // when what was in flight at its arrival had been served
  uint64_t first_ns = 0;  // its first byte on the link
  uint64_t done_ns = 0;
  uint64_t sent = 0;
};

class SimLink {
 public:
  // An H200's link: 54.5 GB/s with chunks of 8 MiB, 51.8 with chunks of 2 MiB.
  static constexpr double kBytesPerNs = 55.5;
  static constexpr uint64_t kChunkNs = 2'600;

  explicit SimLink(const LinkShare::Options& options) : share(options) {}

  // Returns the copy's number.
  uint64_t ask(uint64_t function, uint64_t bytes, uint64_t at_ns) {
    copies.push_back({function, bytes, at_ns, 0, 0, 0, 0});
    arrivals_.push({at_ns, copies.size() - 1});
    return copies.size() - 1;
  }

  void run_until(uint64_t end_ns) {
    while (true) {
      const uint64_t done_ns = in_flight_.empty() ? UINT64_MAX : in_flight_.front().done_ns;
      const uint64_t arrival_ns = arrivals_.empty() ? UINT64_MAX : arrivals_.top().first;
      now_ns = std::min(done_ns, arrival_ns);
      if (now_ns > end_ns || now_ns == UINT64_MAX) break;
      done_ns <= arrival_ns ? end_chunk() : arrive();
      submit();
    }
    now_ns = end_ns;
  }
  void run() { run_until(UINT64_MAX - 1); }

  LinkShare share;
  uint64_t now_ns = 0;
  std::vector<SimCopy> copies;
  std::function<void(uint64_t copy)> on_done = [](uint64_t) {};
  std::function<void(const LinkShare::Turn&)> on_turn = [](const LinkShare::Turn&) {};

 private:
  struct Chunk {
    uint64_t done_ns;
    uint64_t copy;
    uint64_t bytes;
    bool last;
  };
  using Arrival = std::pair<uint64_t, uint64_t>;  // when, which copy

  void arrive() {
    const uint64_t copy = arrivals_.top().second;
    arrivals_.pop();
    copies[copy].free_ns = std::max(free_ns_, now_ns);
    share.add({copy, copies[copy].function, copies[copy].bytes, now_ns});
  }

  void end_chunk() {
    const Chunk chunk = in_flight_.front();
    in_flight_.pop_front();
    if (!chunk.last) return;
    copies[chunk.copy].done_ns = now_ns;
    on_done(chunk.copy);
  }

  void submit() {
    while (may_send()) {
      const auto turn = share.next(now_ns);
      if (!turn) break;
      SimCopy& copy = copies[turn->copy];
      ASSERT_EQ(turn->offset, copy.sent);
      ASSERT_GT(turn->bytes, 0u);
      copy.sent += turn->bytes;
      ASSERT_LE(copy.sent, copy.bytes);
      ASSERT_EQ(turn->last, copy.sent == copy.bytes);
      if (free_ns_ < now_ns) {
        ASSERT_EQ(copy.arrived_ns, now_ns) << "the link idled while this waited";
      }
      const uint64_t begin_ns = std::max(free_ns_, now_ns);
      if (turn->offset == 0) copy.first_ns = begin_ns;
      free_ns_ = begin_ns + kChunkNs + static_cast<uint64_t>(double(turn->bytes) / kBytesPerNs);
      in_flight_.push_back({free_ns_, turn->copy, turn->bytes, turn->last});
      on_turn(*turn);
    }
    ASSERT_TRUE(share.empty() || !may_send());
  }

  bool may_send() const {
    uint64_t bytes = 0;
    for (const Chunk& chunk : in_flight_) bytes += chunk.bytes;
    return share.may_send(static_cast<uint32_t>(in_flight_.size()), bytes, now_ns);
  }

  uint64_t free_ns_ = 0;  // when the link has served all that was submitted
  std::deque<Chunk> in_flight_;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
};

// ---- For tests.

inline constexpr uint64_t kVictim = 100;

inline LinkShare::Options order(LinkOrder order) { return {.order = order}; }

struct Taken {
  uint64_t copy, bytes;
  bool operator==(const Taken&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const Taken& t) {
  return out << "{" << t.copy << ", " << t.bytes << "}";
}

inline std::vector<Taken> take(LinkShare& share, size_t turns, uint64_t now_ns = 0) {
  std::vector<Taken> taken;
  while (taken.size() < turns) {
    const auto turn = share.next(now_ns);
    if (!turn) break;
    taken.push_back({turn->copy, turn->bytes});
  }
  return taken;
}

inline std::vector<uint64_t> take_copies(LinkShare& share, size_t turns, uint64_t now_ns = 0) {
  std::vector<uint64_t> copies;
  for (const Taken& t : take(share, turns, now_ns)) copies.push_back(t.copy);
  return copies;
}

// Functions that copy `bytes` without pause, one copy after the other.
inline void keep_copying(SimLink& link, uint64_t first, uint64_t functions, uint64_t bytes) {
  for (uint64_t f = first; f < first + functions; ++f) link.ask(f, bytes, 0);
  link.on_done = [&link, before = link.on_done, first, functions, bytes](uint64_t copy) {
    before(copy);
    const uint64_t f = link.copies[copy].function;
    if (f >= first && f < first + functions) link.ask(f, bytes, link.now_ns);
  };
}

// A function that copies every `period_ns`, or when its last copy is done if that is later.
inline void copy_now_and_then(SimLink& link, uint64_t function, uint64_t bytes,
                              uint64_t period_ns) {
  link.ask(function, bytes, period_ns);
  link.on_done = [&link, before = link.on_done, function, bytes, period_ns](uint64_t copy) {
    before(copy);
    const SimCopy done = link.copies[copy];
    if (done.function != function) return;
    link.ask(function, bytes, std::max(done.arrived_ns + period_ns, link.now_ns));
  };
}

inline uint64_t sent_by(const SimLink& link, uint64_t function) {
  uint64_t sent = 0;
  for (const SimCopy& copy : link.copies) sent += copy.function == function ? copy.sent : 0;
  return sent;
}

inline uint64_t sent_by_all(const SimLink& link) {
  uint64_t sent = 0;
  for (const SimCopy& copy : link.copies) sent += copy.sent;
  return sent;
}

// How long a function's copies took that are done, sorted.
inline std::vector<uint64_t> latencies(const SimLink& link, uint64_t function) {
  std::vector<uint64_t> taken;
  for (const SimCopy& copy : link.copies)
    if (copy.function == function && copy.done_ns != 0)
      taken.push_back(copy.done_ns - copy.arrived_ns);
  std::sort(taken.begin(), taken.end());
  return taken;
}

inline uint64_t part_of(const std::vector<uint64_t>& sorted, double part) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(double(sorted.size()) * part))];
}

}  // namespace tube::policies
