// When the next record of a function is to be expected, if it works in a rhythm.
//
// A function that answers a camera's frames or a clock's marks sends records, rests, and sends
// again a fixed time after the last beginning. Its session sleeps meanwhile, and being woken costs
// each step 30 to 50 us, which for a copy of 51 KiB is most of its time. A session that knows the
// beat wakes by itself a little before it, and watches for the record instead of sleeping: a few
// hundredths of a core for as long as the beat is kept, an eighth where timers are late, nothing
// for anybody else. A beat that fails to come ends it, until there is a beat again.
//
// Plain values: one thread, no clock, no lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tube::policies {

class Rhythm {
 public:
  // Shorter pauses are slept through by nobody, or belong to a step.
  static constexpr uint64_t kLeastPauseNs = 1'000'000;
  static constexpr uint64_t kShortestBeatNs = 2'000'000, kLongestBeatNs = 250'000'000;
  // How late a timer may wake a session, and how far a beat may be off; beats that differ by more
  // than a part of theirs are none. (A session that is woken by a record sees it late, by up to 0.2
  // ms and never alike; one that watches does not, so the differences become small.)
  static constexpr uint64_t kEarlyNs = 200'000, kLateNs = 100'000, kSpreadPart = 16;
  // Where timers are later than that, it wakes as much earlier: by twice what nine in ten are late,
  // and at most by this part of the beat.
  static constexpr uint64_t kEarlyPart = 8;

  // From when to when to watch; both 0: nothing is expected.
  struct Watch {
    uint64_t from_ns = 0;
    uint64_t until_ns = 0;
  };

  // There is nothing to do.
  void rests(uint64_t now_ns) { rested_ns_ = now_ns; }
  // A record came. After rests(), not before it in time.
  void works(uint64_t now_ns) {
    const uint64_t pause = now_ns - rested_ns_;
    if (pause < kLeastPauseNs) return;
    // Pauses within a step, for the GPU's sake, are shorter than the one between steps.
    const bool within = pause < longest_pause_ns_ / 2;
    longest_pause_ns_ = std::min(std::max(pause, longest_pause_ns_ / 4 * 3), kLongestBeatNs);
    if (within) return;
    if (begun_ns_ != 0) beats_ns_[count_++ % kBeats] = now_ns - begun_ns_;
    begun_ns_ = now_ns;
  }
  // It was to wake by itself and did, so late.
  void timer_was_late(uint64_t late_ns) {
    late_ns_ = late_ns > late_ns_ ? late_ns_ + (late_ns - late_ns_) / 2
                                  : late_ns_ - (late_ns_ - late_ns) / 16;
  }
  Watch next() const {
    if (count_ < kBeats) return {};
    const auto [least, most] = std::minmax_element(beats_ns_, beats_ns_ + kBeats);
    if (*least < kShortestBeatNs || *most > kLongestBeatNs) return {};
    const uint64_t spread = *most - *least;
    if (spread > *least / kSpreadPart) return {};
    const uint64_t early = std::max(kEarlyNs, std::min(2 * late_ns_, *least / kEarlyPart));
    return {begun_ns_ + *least - early - spread, begun_ns_ + *most + kLateNs + spread};
  }

 private:
  static constexpr size_t kBeats = 3;  // that must agree

  uint64_t rested_ns_ = 0;
  uint64_t begun_ns_ = 0;  // when the last step began; 0: none yet
  uint64_t late_ns_ = 0;   // what nine timers in ten, about, are late at most
  uint64_t longest_pause_ns_ = 0;
  uint64_t beats_ns_[kBeats] = {};
  size_t count_ = 0;
};

}  // namespace tube::policies
