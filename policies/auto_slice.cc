#include "policies/auto_slice.h"

#include <algorithm>
#include <bit>

namespace tube::policies {

void AutoSlice::change(std::optional<uint32_t> to, uint64_t now_ns) {
  if (to && !wanted_) {
    const bool soon = gave_back_ns_ != 0 && now_ns - gave_back_ns_ < options_.again_ns;
    keep_ns_ = soon ? std::min(2 * keep_ns_, options_.longest_alone_ns) : options_.alone_ns;
    reason_ns_ = now_ns;
  }
  if (!to) gave_back_ns_ = now_ns;
  wanted_ = to;
  changed_ns_ = now_ns;
  lately_ = 0;
}

void AutoSlice::step(uint64_t began_ns, bool missed, bool heavy, bool holds, uint64_t now_ns) {
  ++steps_;
  missed_ += missed;
  if (wanted_ && heavy) reason_ns_ = now_ns;
  // Without a part only what others' long kernels may have done counts; with one that somebody
  // else holds nothing does.
  if (began_ns < changed_ns_ || (wanted_ && !holds)) return;
  const bool counts = missed && (wanted_ || heavy);
  lately_ = (lately_ << 1 | static_cast<uint64_t>(counts)) & ((uint64_t{1} << options_.steps) - 1);
  if (static_cast<uint32_t>(std::popcount(lately_)) < options_.misses) return;
  if (!wanted_) {
    if (now_ns >= not_before_ns_ && smallest_ < parts_) change(smallest_, now_ns);
    return;
  }
  smallest_ = *wanted_ + 1;
  if (smallest_ < parts_) return change(smallest_, now_ns);
  smallest_ = 0;
  not_before_ns_ = now_ns + options_.give_up_ns;
  change(std::nullopt, now_ns);
}

void AutoSlice::look(uint64_t now_ns) {
  if (wanted_ && now_ns - std::max(changed_ns_, reason_ns_) >= keep_ns_)
    change(std::nullopt, now_ns);
}

}  // namespace tube::policies
