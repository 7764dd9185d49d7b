#include "policies/sm_slices.h"

#include <algorithm>

namespace tube::policies {

std::vector<uint32_t> sm_splits(uint32_t multiprocessors, uint32_t group) {
  std::vector<uint32_t> sizes;
  group = std::max(group, 1u);
  for (const uint32_t part : {8u, 4u, 2u}) {
    const uint32_t size = std::max(group, multiprocessors / part / group * group);
    if (size >= multiprocessors || (!sizes.empty() && sizes.back() == size)) continue;
    sizes.push_back(size);
  }
  return sizes;
}

void SmSlices::ask(uint64_t function, uint32_t percent) {
  const bool before = std::any_of(asked_.begin(), asked_.end(),
                                  [&](const Asked& each) { return each.function == function; });
  if (!before && percent != 0) asked_.push_back({function, std::min(percent, 100u)});
}

void SmSlices::want(uint64_t function, std::optional<uint32_t> split) {
  const auto mine = std::find_if(asked_.begin(), asked_.end(),
                                 [&](const Asked& each) { return each.function == function; });
  if (mine != asked_.end() && mine->percent != 0) return;
  if (mine == asked_.end() && split) asked_.push_back({function, 0, *split});
  else if (mine != asked_.end() && split) mine->split = *split;
  else if (mine != asked_.end()) asked_.erase(mine);
}

void SmSlices::exchanges(uint64_t function) { exchanging_.insert(function); }

void SmSlices::forget(uint64_t function) {
  std::erase_if(asked_, [&](const Asked& each) { return each.function == function; });
  exchanging_.erase(function);
}

uint32_t SmSlices::multiprocessors_of(const SmPart& part) const {
  if (part.whole() || part.split >= splits_.size()) return multiprocessors_;
  return part.large ? multiprocessors_ - splits_[part.split] : splits_[part.split];
}

// The smallest part that is large enough; none: that would be all of it.
std::optional<SmPart> SmSlices::part_for(const Asked& asked) const {
  if (asked.percent == 0)
    return asked.split < splits_.size() ? std::optional(SmPart{asked.split, false}) : std::nullopt;
  const uint64_t wanted = (uint64_t{multiprocessors_} * asked.percent + 99) / 100;
  std::optional<SmPart> best;
  for (uint32_t split = 0; split < splits_.size(); ++split) {
    for (const bool large : {false, true}) {
      const SmPart part{split, large};
      if (multiprocessors_of(part) >= wanted &&
          (!best || multiprocessors_of(part) < multiprocessors_of(*best)))
        best = part;
    }
  }
  return best;
}

std::optional<SmSlices::Held> SmSlices::held() const {
  for (const bool automatic : {false, true}) {
    for (const Asked& each : asked_) {
      if ((each.percent == 0) != automatic || exchanging_.contains(each.function)) continue;
      if (const auto part = part_for(each)) return Held{each.function, *part};
    }
  }
  return std::nullopt;
}

SmPart SmSlices::part_of(uint64_t function) const {
  const std::optional<Held> slice = held();
  if (!slice) return {};
  return slice->function == function ? slice->part : SmPart{slice->part.split, !slice->part.large};
}

}  // namespace tube::policies
