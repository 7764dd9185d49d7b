// Whether a function with a deadline holds a part of the GPU by itself, and which one.
//
// A function that was started with `--slo-ms` and misses it beside others' long kernels gets the
// smallest of the parts that a GPU is split into (sm_slices.h). Deadlines missed there lead to the
// next larger one; when the largest is too small as well, the part goes back, and it is not tried
// again for a while. When nobody has had long kernels for some time, or the function itself has
// done nothing, the part goes back, too. Each time that it is wanted again soon after that, it is
// kept for twice as long.
//
// What decides are the last few steps that began since the last change, so that one late step
// moves nothing, and a change is judged by what came behind it.
//
// Plain values: no clock, no lock. A step costs a few compares.
#pragma once

#include <cstdint>
#include <optional>

namespace tube::policies {

class AutoSlice {
 public:
  struct Options {
    uint32_t steps = 16;                // that are looked at
    uint32_t misses = 3;                // of them lead to a change
    uint64_t alone_ns = 2'000'000'000;  // without a reason for it, the part goes back
    uint64_t longest_alone_ns = 60'000'000'000;
    uint64_t again_ns = 10'000'000'000;    // wanted again within that: it is kept for longer
    uint64_t give_up_ns = 60'000'000'000;  // after the largest part did not do
  };
  // `parts`: into how many ways a GPU can be split.
  AutoSlice(uint32_t parts, const Options& options) : parts_(parts), options_(options) {}

  // A step that began then has ended in time, or has not. `heavy`: others had long kernels
  // meanwhile; `holds`: it ran in the part that is wanted.
  void step(uint64_t began_ns, bool missed, bool heavy, bool holds, uint64_t now_ns);
  // Time goes by.
  void look(uint64_t now_ns);
  // The split whose small part it should hold; none: no part.
  std::optional<uint32_t> wanted() const { return wanted_; }

  uint64_t steps() const { return steps_; }
  uint64_t missed() const { return missed_; }

 private:
  void change(std::optional<uint32_t> to, uint64_t now_ns);

  const uint32_t parts_;
  const Options options_;
  std::optional<uint32_t> wanted_;
  uint32_t smallest_ = 0;  // that is not known to be too small
  uint64_t changed_ns_ = 0;
  uint64_t reason_ns_ = 0;  // when there was one for the part last
  uint64_t keep_ns_ = 0;    // how long it is kept without a reason
  uint64_t gave_back_ns_ = 0;
  uint64_t not_before_ns_ = 0;
  uint64_t lately_ = 0;  // the last steps, the newest in bit 0: 1 missed
  uint64_t steps_ = 0, missed_ = 0;
};

}  // namespace tube::policies
