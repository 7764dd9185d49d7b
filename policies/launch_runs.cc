#include "policies/launch_runs.h"

#include <algorithm>
#include <utility>

namespace tube::policies {

LaunchRuns::Decision LaunchRuns::launch(uint64_t shape) {
  switch (mode_) {
    case Mode::kFree: return begin(shape);
    case Mode::kHolding:
    case Mode::kTracking: return go_on(shape);
    case Mode::kLearning: break;
  }
  current_.push_back(shape);
  if (current_.size() >= options_.window) cut_window();
  return {};
}

LaunchRuns::Decision LaunchRuns::begin(uint64_t shape) {
  current_.assign(1, shape);
  active_ = predicted(shape);
  if (active_ == kNone) active_ = find(current_);
  at_ = 1;
  if (active_ == kNone) {
    mode_ = Mode::kLearning;
    return {};
  }
  mode_ = holdable(runs_[active_]) ? Mode::kHolding : Mode::kTracking;
  return {holding() ? Kind::kHold : Kind::kPass};
}

LaunchRuns::Decision LaunchRuns::go_on(uint64_t shape) {
  if (runs_[active_].shapes[at_] == shape)
    return ++at_ == runs_[active_].shapes.size() ? whole()
                                                 : Decision{holding() ? Kind::kHold : Kind::kPass};
  const bool held = holding();
  take_prefix();
  current_.push_back(shape);
  const uint32_t other = held ? find(current_) : kNone;
  if (other != kNone) {
    active_ = other;
    at_ = current_.size();
    return at_ == runs_[active_].shapes.size() ? whole() : Decision{Kind::kHold};
  }
  if (held) settle(active_, false, at_);
  mode_ = Mode::kLearning;
  return {Kind::kPass, held};
}

LaunchRuns::Decision LaunchRuns::whole() {
  const bool held = holding();
  Run& run = runs_[active_];
  if (held) run.used = ++clock_;
  else passed(run, 1);
  mode_ = Mode::kFree;
  append(active_);
  return held ? Decision{Kind::kReplay, false, active_} : Decision{};
}

bool LaunchRuns::boundary() {
  const bool release = holding();
  if (mode_ == Mode::kHolding || mode_ == Mode::kTracking) {
    if (release) settle(active_, false, at_);
    take_prefix();
    mode_ = Mode::kLearning;
  }
  if (mode_ == Mode::kLearning) learn(current_.data(), current_.size(), options_.first, 1);
  mode_ = Mode::kFree;
  after_boundary_ = true;
  return release;
}

void LaunchRuns::give_up() {
  settle(active_, false, mode_ == Mode::kFree ? 0 : at_);
  if (holding())
    mode_ = Mode::kTracking;  // the rest of this run passes; the next one may be held again
}

void LaunchRuns::forget() {
  for (Run& run : runs_) run.shapes.clear(), run.seen = 0, run.forgotten = true;
  current_.clear();
  mode_ = Mode::kFree;
  active_ = last_ = kNone;
}

bool LaunchRuns::take_forgotten(uint32_t run) {
  if (run >= runs_.size()) return false;
  return std::exchange(runs_[run].forgotten, false);
}

// The run that came behind the last run before, if it may be the same again. A run that is not
// worth holding is followed too, for the sake of the runs behind it.
uint32_t LaunchRuns::predicted(uint64_t shape) const {
  if (last_ == kNone) return kNone;
  const uint32_t next = runs_[last_].next[after_boundary_ ? 1 : 0];
  if (next == kNone || runs_[next].shapes.empty() || runs_[next].shapes[0] != shape) return kNone;
  return runs_[next].seen >= options_.proven ? next : kNone;
}

// The known run that begins with `prefix`, the one used last when there are several.
uint32_t LaunchRuns::find(const std::vector<uint64_t>& prefix) const {
  uint32_t best = kNone;
  for (uint32_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    if (!holdable(run) || run.shapes.size() < prefix.size()) continue;
    if (!std::equal(prefix.begin(), prefix.end(), run.shapes.begin())) continue;
    if (best == kNone || run.used > runs_[best].used) best = i;
  }
  return best;
}

// The active run did not go on as it was: what came of it is what came.
void LaunchRuns::take_prefix() {
  const std::vector<uint64_t>& shapes = runs_[active_].shapes;
  current_.assign(shapes.begin(), shapes.begin() + static_cast<long>(at_));
}

// Cuts a step into runs and remembers them, chained behind the last one. What would be too short to
// be one joins the one before.
void LaunchRuns::learn(const uint64_t* shapes, size_t count, uint32_t first, uint32_t seen) {
  size_t length = first;
  while (count >= options_.least) {
    size_t now = std::min(length, count);
    if (count - now < options_.least) now = count;
    append(remember(shapes, now, seen));
    shapes += now;
    count -= now;
    length = std::min<size_t>(2 * length, options_.longest);
  }
  current_.clear();
}

uint32_t LaunchRuns::remember(const uint64_t* shapes, size_t count, uint32_t seen) {
  const auto same = [&](const Run& run) {
    return run.shapes.size() == count && std::equal(run.shapes.begin(), run.shapes.end(), shapes);
  };
  auto found = std::find_if(runs_.begin(), runs_.end(), same);
  if (found == runs_.end()) {
    if (runs_.size() < options_.known) {
      runs_.emplace_back();
      found = runs_.end() - 1;
    } else {
      found = std::min_element(runs_.begin(), runs_.end(),
                               [](const Run& a, const Run& b) { return a.used < b.used; });
      *found = Run{};
      found->forgotten = true;
    }
    found->shapes.assign(shapes, shapes + count);
    found->next[0] = found->next[1] = kNone;
  }
  passed(*found, seen);
  return static_cast<uint32_t>(found - runs_.begin());
}

// A run that was held in vain too often gets another chance after it has passed often.
void LaunchRuns::passed(Run& run, uint32_t times) {
  if (run.credit <= kWorst && run.seen / 64 != (run.seen + times) / 64)
    run.credit = kWorst + kInVain;
  run.seen += times;
  run.used = ++clock_;
}

void LaunchRuns::append(uint32_t run) {
  if (last_ != kNone) runs_[last_].next[after_boundary_ ? 1 : 0] = run;
  last_ = run;
  after_boundary_ = false;
}

// No boundary for a whole window. Its runs are remembered as a step's; if it ends with something
// that repeats, what comes next is known already.
void LaunchRuns::cut_window() {
  const std::vector<uint64_t> window = std::move(current_);
  current_.clear();
  mode_ = Mode::kFree;
  learn(window.data(), window.size(), options_.first, 1);
  current_ = window;
  const size_t one = period();
  current_.clear();
  if (one == 0) return;
  std::vector<uint64_t> cycle;
  do cycle.insert(cycle.end(), window.end() - static_cast<long>(one), window.end());
  while (cycle.size() < options_.least || cycle.size() + one <= options_.longest);
  const uint32_t before = last_;
  learn(cycle.data(), cycle.size(), options_.longest, options_.proven);
  if (before == kNone) return;
  const uint32_t first = runs_[before].next[0];
  append(first);   // behind the cycle's last run comes its first
  last_ = before;  // and behind the window too
}

// The shortest distance at which at least the second half of current_ repeats, at least twice; 0:
// none.
size_t LaunchRuns::period() const {
  const size_t count = current_.size();
  const auto from_the_end = [this, count](size_t i) { return current_[count - 1 - i]; };
  std::vector<uint32_t> border(count + 1, 0);
  for (size_t i = 1, k = 0; i < count; ++i) {
    while (k != 0 && from_the_end(i) != from_the_end(k)) k = border[k];
    if (from_the_end(i) == from_the_end(k)) ++k;
    border[i + 1] = static_cast<uint32_t>(k);
  }
  for (size_t i = count; i > count / 2; --i) {
    const size_t distance = i - border[i];
    if (2 * distance <= i) return distance;
  }
  return 0;
}

void LaunchRuns::settle(uint32_t at, bool good, size_t held) {
  if (at == kNone) return;
  Run& run = runs_[at];
  const int32_t change =
      good ? static_cast<int32_t>(run.shapes.size()) : -kInVain - 2 * static_cast<int32_t>(held);
  run.credit = std::clamp(run.credit + change, kWorst, kBest);
  if (good) run.used = ++clock_;
}

}  // namespace tube::policies
