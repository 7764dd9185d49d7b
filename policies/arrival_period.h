// When a function's next step is expected, from when its steps began so far.
//
// Functions that are asked at marks of a clock (camera frames, a load generator, a control loop)
// begin a step a period after the last one, or some periods after it when a step lasted for longer.
// Each new distance between two beginnings is held against the last few: the period is the shortest
// of them of which nearly all others are small multiples. There is none while they do not agree.
//
// (policies/rhythm.h learns from pauses instead of questions, and less: when a session should look
// for its own next record, after three equal distances, to a tenth of a millisecond.)
//
// Plain values: no clock, no lock. A step costs some 64 divisions; one that begins within kLeastNs
// of the last beginning counts as a part of that and costs a compare.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tube::policies {

class ArrivalPeriod {
 public:
  static constexpr uint64_t kLeastNs = 1'000'000;      // between two steps that are told apart
  static constexpr uint64_t kMostNs = 10'000'000'000;  // a distance that tells nothing

  // A step began.
  void began(uint64_t now_ns);
  // 0: not known.
  uint64_t period_ns() const { return period_ns_; }
  // The last beginning that fits the period.
  uint64_t anchor_ns() const { return anchor_ns_; }

  // When the first step after `now_ns` should begin, for a period that is known; a step is awaited
  // for slack_ns() longer.
  static uint64_t next_ns(uint64_t anchor_ns, uint64_t period_ns, uint64_t now_ns) {
    if (now_ns <= anchor_ns) return anchor_ns + period_ns;
    const uint64_t over_ns = (now_ns - anchor_ns) % period_ns;
    return over_ns <= slack_ns(period_ns) && now_ns - anchor_ns >= period_ns
               ? now_ns - over_ns
               : now_ns - over_ns + period_ns;
  }
  // How far from its time a step may begin.
  static uint64_t slack_ns(uint64_t period_ns) { return period_ns / 32 + 100'000; }

 private:
  static constexpr size_t kKept = 8;   // distances
  static constexpr size_t kAgree = 6;  // of them
  static constexpr uint64_t kMostMissed = 8;

  // How many periods the distance is; 0: no small multiple.
  static uint64_t periods_in(uint64_t distance_ns, uint64_t period_ns);
  void learn();

  std::array<uint64_t, kKept> distances_{};
  size_t count_ = 0;  // of all distances
  uint64_t last_ns_ = 0;
  uint64_t anchor_ns_ = 0;
  uint64_t period_ns_ = 0;
};

}  // namespace tube::policies
