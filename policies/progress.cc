#include "policies/progress.h"

#include <utility>

namespace tube::policies {

std::vector<Stall> ProgressWatch::look(std::span<const Progress> subjects, uint64_t now_ns) {
  std::vector<Stall> stalls;
  std::map<uint64_t, Seen> seen;
  for (const Progress& subject : subjects) {
    const auto known = seen_.find(subject.id);
    Seen now{subject.count, now_ns, false};
    if (known != seen_.end()) {
      const Seen& before = known->second;
      if (subject.busy && before.count == subject.count) now = before;
      else if (before.told) stalls.push_back({subject.id, before.since_ns, Stall::News::kOver});
    }
    if (!subject.busy) continue;
    if (limit_ns_ != 0 && now_ns - now.since_ns >= limit_ns_) {
      const auto news = std::exchange(now.told, true) ? Stall::News::kGoesOn : Stall::News::kBegins;
      stalls.push_back({subject.id, now.since_ns, news});
    }
    seen.emplace(subject.id, now);
  }
  seen_ = std::move(seen);
  return stalls;
}

}  // namespace tube::policies
