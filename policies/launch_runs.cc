#include "policies/launch_runs.h"

#include <algorithm>
#include <utility>

namespace tube::policies {

LaunchRuns::Decision LaunchRuns::launch(uint64_t shape) {
  current_.push_back(shape);
  Decision decision;
  if (holding_ || (!passing_ && current_.size() == 1)) {
    if (!holding_ || runs_[active_].shapes[current_.size() - 1] != shape) active_ = find_prefix();
    if (active_ == kNone) {
      decision.release = holding_;
      holding_ = false;
      passing_ = true;
    } else if (current_.size() == runs_[active_].shapes.size()) {
      holding_ = false;
      current_.clear();
      decision.kind = Kind::kReplay;
      decision.run = active_;
    } else {
      holding_ = true;
      decision.kind = Kind::kHold;
    }
  } else {
    passing_ = true;
  }
  if (decision.kind == Kind::kPass && current_.size() >= options_.most) learn();
  return decision;
}

bool LaunchRuns::boundary() {
  const bool release = holding_;
  if (holding_) settle(active_, false);
  holding_ = false;
  learn();
  return release;
}

void LaunchRuns::give_up() {
  settle(active_, false);
  passing_ = passing_ || holding_;
  holding_ = false;
}

void LaunchRuns::forget() {
  for (Run& run : runs_) run.shapes.clear(), run.seen = 0, run.forgotten = true;
  current_.clear();
  holding_ = passing_ = false;
  active_ = kNone;
}

bool LaunchRuns::take_forgotten(uint32_t run) {
  if (run >= runs_.size()) return false;
  return std::exchange(runs_[run].forgotten, false);
}

// The known run that begins with everything in current_, the one used last when there are several.
uint32_t LaunchRuns::find_prefix() const {
  uint32_t best = kNone;
  for (uint32_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    if (run.seen < options_.proven || run.credit <= kWorst || run.shapes.size() < current_.size()) continue;
    if (!std::equal(current_.begin(), current_.end(), run.shapes.begin())) continue;
    if (best == kNone || run.used > runs_[best].used) best = i;
  }
  return best;
}

// A run has ended: known ones count it, a new one takes a place.
void LaunchRuns::learn() {
  passing_ = false;
  if (current_.size() >= options_.least) {
    uint32_t at = 0;
    while (at < runs_.size() && runs_[at].shapes != current_) ++at;
    if (at == runs_.size()) {
      if (runs_.size() < options_.known) {
        runs_.emplace_back();
      } else {
        at = static_cast<uint32_t>(std::min_element(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.used < b.used; }) - runs_.begin());
        runs_[at] = Run{};
        runs_[at].forgotten = true;
      }
      runs_[at].shapes = current_;
    }
    Run& run = runs_[at];
    ++run.seen;
    run.used = ++clock_;
    // One that was held in vain too often gets another chance after it has passed often.
    if (run.credit <= kWorst && run.seen % 64 == 0) run.credit = kWorst / 2;
  }
  current_.clear();
}

void LaunchRuns::settle(uint32_t at, bool good) {
  if (at == kNone) return;
  Run& run = runs_[at];
  run.credit = good ? std::min(run.credit + 1, kBest) : std::max(run.credit - kInVain, kWorst);
  if (good) run.used = ++clock_;
}

}  // namespace tube::policies
