#include "policies/launch_admission.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>

namespace tube::policies {
namespace {

constexpr std::string_view kNames[] = {"native", "fair", "priority", "deadlines", "feedback"};
static_assert(std::size(kNames) == std::size(kLaunchOrders));

constexpr std::string_view kReasons[] = {"another's turn", "short work", "an expected step",
                                         "a quiet moment", "another proxy's share"};
static_assert(std::size(kReasons) == std::size(kHoldReasons));

constexpr uint64_t kNoDeadline = UINT64_MAX;
constexpr uint64_t kLevelNs = 1'000'000;  // of the lowest level
constexpr uint64_t kSlightPart = 4;       // of the other launch, at most
constexpr uint32_t kSlightLevels = 1;

// The other one hardly notices it.
bool is_slight_beside(const LongLaunch& launch, const LongLaunch& other) {
  return launch.expected_ns <= other.expected_ns / kSlightPart;
}

}  // namespace

std::string_view launch_order_name(LaunchOrder order) { return kNames[static_cast<size_t>(order)]; }

std::string_view hold_reason_name(HoldReason reason) {
  return kReasons[static_cast<size_t>(reason)];
}

std::optional<LaunchOrder> parse_launch_order(std::string_view name) {
  for (const LaunchOrder order : kLaunchOrders)
    if (launch_order_name(order) == name) return order;
  return std::nullopt;
}

LaunchAdmission::Function& LaunchAdmission::function(uint64_t id) {
  for (Function& each : functions_)
    if (each.id == id) return each;
  functions_.push_back({.id = id, .tag = virtual_ns_, .use = {}});
  return functions_.back();
}

const LaunchAdmission::Function* LaunchAdmission::find(uint64_t id) const {
  for (const Function& each : functions_)
    if (each.id == id) return &each;
  return nullptr;
}

void LaunchAdmission::needs(uint64_t id, uint64_t slo_ns) { function(id).slo_ns = slo_ns; }

uint64_t LaunchAdmission::long_ns() const {
  constexpr uint64_t kLeast = 100'000;  // below that turns cost more than they give
  uint64_t least = options_.long_ns;
  for (const Function& each : functions_)
    if (each.slo_ns != 0) least = std::min(least, std::max(kLeast, each.slo_ns / 2));
  return least;
}

uint64_t LaunchAdmission::bound_ns(uint64_t expected_ns) const {
  if (expected_ns >= options_.longest_hold_ns / options_.hold_factor)
    return options_.longest_hold_ns;
  return options_.hold_factor * expected_ns;
}

// The launch itself counts as in its way. All that are before it take turns, so to wait for each of
// them once is no sign that somebody stands.
uint64_t LaunchAdmission::hold_ns(const LongLaunch& launch) const {
  const uint64_t most = options_.longest_hold_ns / options_.hold_factor;  // that one counts
  uint64_t longest = launch.expected_ns, together = std::min(launch.expected_ns, most);
  const auto count = [&](const auto& each) {
    longest = std::max(longest, each.launch.expected_ns);
    together += std::min(each.launch.expected_ns, most);
  };
  std::for_each(going_.begin(), going_.end(), count);
  std::for_each(waiting_.begin(), waiting_.end(), count);
  return std::max(bound_ns(longest), 2 * together);
}

// Whether the launch would be in the way of a step that is about to come, for which enough is
// saved.
bool LaunchAdmission::awaits_step(const LongLaunch& launch, uint64_t now_ns) const {
  if (short_.next_ns == 0 || short_.next_ns >= now_ns + launch.expected_ns) return false;
  const uint64_t rested_ns = rest_since_ns_ != 0 ? now_ns - rest_since_ns_ : 0;
  const uint64_t wait_ns = short_.until_ns > now_ns ? short_.until_ns - now_ns : 0;
  return rest_ns_ >= static_cast<int64_t>(rested_ns + wait_ns);
}

// Nothing long is in flight: whether it stays so for now.
std::optional<HoldReason> LaunchAdmission::rests(const LongLaunch& launch, uint64_t now_ns) {
  if (!short_.outstanding) {
    serves_since_ns_ = 0;
    if (!awaits_step(launch, now_ns)) return std::nullopt;
    if (rest_since_ns_ == 0) rest_since_ns_ = now_ns;
    return HoldReason::kExpectedStep;
  }
  if (rest_since_ns_ == 0) {
    if (rest_ns_ + static_cast<int64_t>(waited_ns_) <= 0) return std::nullopt;
    rest_since_ns_ = now_ns;
  }
  if (serves_since_ns_ == 0) {
    serves_since_ns_ = now_ns;
    waited_ns_ = now_ns - rest_since_ns_;
  }
  if (now_ns - serves_since_ns_ >= options_.rest_most_ns) return std::nullopt;
  return HoldReason::kShortWork;
}

std::optional<HoldReason> LaunchAdmission::refusal(const LongLaunch& launch, uint64_t now_ns) {
  if (short_.outstanding) no_lead_until_ns_ = now_ns + options_.short_lately_ns;
  uint32_t blocking = 0;
  bool own = true, quiet = false;
  for (const Going& each : going_) {
    if (each.over_ns <= now_ns) continue;
    ++blocking;
    quiet = quiet || each.launch.quiet;
    own = own && each.launch.function == launch.function && each.launch.stream == launch.stream;
  }
  if (launch.quiet) return blocking == 0 ? std::nullopt : std::optional(HoldReason::kTurn);
  if (quiet) return HoldReason::kQuiet;
  if (now_ns < held_until_ns_) return HoldReason::kOtherProxy;
  if (blocking == 0) {
    if (now_ns < quiet_until_ns_) return HoldReason::kQuiet;
    return rests(launch, now_ns);
  }
  if (blocking < options_.in_flight) return std::nullopt;
  const bool leads = own && blocking < options_.own_lead && now_ns >= no_lead_until_ns_ &&
                     std::all_of(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
                       return each.launch.function == launch.function;
                     });
  return leads ? std::nullopt : std::optional(HoldReason::kTurn);
}

void LaunchAdmission::charge(Function& function, uint64_t ns, uint64_t now_ns) {
  if (now_ns > function.lately_at) {
    const uint64_t halves = (now_ns - function.lately_at) / options_.recent_ns;
    function.lately_ns = halves < 64 ? function.lately_ns >> halves : 0;
    // What is left of the interval counts on.
    function.lately_at += halves * options_.recent_ns;
  }
  function.lately_ns += ns;
}

uint32_t LaunchAdmission::level(const Function& function, uint64_t now_ns) const {
  const uint64_t halves =
      now_ns > function.lately_at ? (now_ns - function.lately_at) / options_.recent_ns : 0;
  const uint64_t lately = halves < 64 ? function.lately_ns >> halves : 0;
  return static_cast<uint32_t>(std::bit_width(lately / kLevelNs));
}

// It is charged with what is expected at once, or others' turns would be counted against old use.
void LaunchAdmission::go(const LongLaunch& launch, uint64_t now_ns) {
  if (launch.quiet) {
    going_.push_back(
        {launch, now_ns, now_ns + std::max<uint64_t>(bound_ns(launch.expected_ns), 1)});
    return;
  }
  // One that began may have had nobody to end it, when its launch was not made after all.
  if (rest_since_ns_ != 0)
    rest_ns_ -= static_cast<int64_t>(
        std::min(now_ns - rest_since_ns_, options_.rest_saved_ns + options_.rest_most_ns));
  rest_since_ns_ = serves_since_ns_ = 0;
  quiet_ns_ = quiet_until_ns_ = 0;
  Function& who = function(launch.function);
  virtual_ns_ = std::max(virtual_ns_, who.tag);
  who.tag += launch.expected_ns;
  charge(who, launch.expected_ns, now_ns);
  ++who.use.launches;
  going_.push_back({launch, now_ns, now_ns + std::max<uint64_t>(bound_ns(launch.expected_ns), 1)});
}

bool LaunchAdmission::ask(const LongLaunch& launch, uint64_t now_ns, bool shared) {
  now_ns_ = now_ns;
  Function& who = function(launch.function);
  who.tag = std::max(virtual_ns_, who.tag);  // who comes back has saved nothing up
  if (options_.order == LaunchOrder::kNative || !shared) {
    go(launch, now_ns);
    return true;
  }
  const bool none_before = launch.quiet ? quiet_goes_first() : waiting_.empty();
  const auto why = none_before ? refusal(launch, now_ns) : HoldReason::kTurn;
  if (!why) {
    go(launch, now_ns);
    who.use.quiet += launch.quiet;
    return true;
  }
  who.use.held += !launch.quiet;
  waiting_.push_back({launch, now_ns, now_ns + hold_ns(launch),
                      who.slo_ns != 0 ? now_ns + who.slo_ns : kNoDeadline,
                      1u << static_cast<uint32_t>(*why), *why});
  return false;
}

// A long launch whose function waits for a quiet moment: it could not be made now.
bool LaunchAdmission::stands(const Waiting& launch) const {
  return !launch.launch.quiet &&
         std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
           return each.launch.quiet && each.launch.function == launch.launch.function;
         });
}

// Of quiet moments and long launches that wait.
bool LaunchAdmission::quiet_goes_first() const {
  uint64_t longest_ns = 0;
  for (const Waiting& each : waiting_)
    if (!each.launch.quiet && !stands(each))
      longest_ns = std::max(longest_ns, each.launch.expected_ns);
  return longest_ns == 0 || quiet_ns_ < longest_ns;
}

// Whether a goes before b, which came later.
bool LaunchAdmission::before(const Waiting& a, const Waiting& b) const {
  if (a.launch.quiet != b.launch.quiet) return a.launch.quiet == quiet_goes_first();
  if (a.launch.quiet) return true;
  const Function* x = find(a.launch.function);
  const Function* y = find(b.launch.function);
  if (x == nullptr || y == nullptr) return true;
  switch (options_.order) {
    case LaunchOrder::kNative: return true;
    case LaunchOrder::kFair: return x->tag <= y->tag;
    case LaunchOrder::kPriority: return a.deadline != kNoDeadline || b.deadline == kNoDeadline;
    case LaunchOrder::kDeadlines:
    case LaunchOrder::kFeedback: break;
  }
  if (a.deadline != b.deadline) return a.deadline < b.deadline;
  if (options_.order == LaunchOrder::kDeadlines) return true;
  const uint32_t mine = level(*x, now_ns_), others = level(*y, now_ns_);
  if (is_slight_beside(a.launch, b.launch)) return mine <= others + kSlightLevels;
  if (is_slight_beside(b.launch, a.launch)) return others > mine + kSlightLevels;
  return mine <= others;
}

const LaunchAdmission::Waiting* LaunchAdmission::best() const {
  const Waiting* best = nullptr;
  for (const Waiting& each : waiting_)
    if (!stands(each) && (best == nullptr || !before(*best, each))) best = &each;
  return best;
}

uint64_t LaunchAdmission::first() const {
  const Waiting* const next = best();
  return next != nullptr ? next->launch.number : 0;
}

LaunchAdmission::Turn LaunchAdmission::take(size_t at, uint64_t now_ns, bool ran_out) {
  const Waiting taken = waiting_[at];
  waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(at));
  go(taken.launch, now_ns);
  LaunchUse& use = function(taken.launch.function).use;
  const uint64_t held_ns = now_ns - std::min(now_ns, taken.arrived_ns);
  if (taken.launch.quiet) {
    ++use.quiet;
    use.quiet_ns += held_ns;
    return {taken.launch.number, ran_out};
  }
  for (const HoldReason reason : kHoldReasons)
    use.held_for[static_cast<size_t>(reason)] += taken.reasons >> static_cast<uint32_t>(reason) & 1;
  use.held_ns += held_ns;
  use.longest_ns = std::max(use.longest_ns, held_ns);
  use.ran_out += ran_out;
  return {taken.launch.number, ran_out};
}

std::optional<LaunchAdmission::Turn> LaunchAdmission::next(uint64_t now_ns, bool shared) {
  now_ns_ = now_ns;
  const Waiting* const best = this->best();
  if (best == nullptr) return std::nullopt;
  const size_t at = static_cast<size_t>(best - waiting_.data());
  const auto why = shared ? refusal(best->launch, now_ns) : std::nullopt;
  if (!why) return take(at, now_ns, false);
  waiting_[at].why = *why;
  waiting_[at].reasons |= 1u << static_cast<uint32_t>(*why);
  for (size_t i = 0; i < waiting_.size(); ++i)
    if (waiting_[i].due_ns <= now_ns) return take(i, now_ns, true);
  return std::nullopt;
}

// Others with long launches that wait or are in flight.
uint64_t LaunchAdmission::functions_beside(uint64_t function) const {
  return static_cast<uint64_t>(
      std::count_if(functions_.begin(), functions_.end(),
                    [&](const Function& each) { return each.id != function && has(each.id); }));
}

void LaunchAdmission::ended(uint64_t number, uint64_t took_ns) {
  const auto found = std::find_if(going_.begin(), going_.end(),
                                  [&](const Going& each) { return each.launch.number == number; });
  if (found == going_.end()) return;
  const LongLaunch launch = found->launch;
  going_.erase(found);
  if (options_.rest_part != 0) {
    const uint64_t part = std::max(options_.rest_part, 1 + functions_beside(launch.function));
    rest_ns_ = std::min(static_cast<int64_t>(options_.rest_saved_ns),
                        rest_ns_ + static_cast<int64_t>(took_ns / part));
  }
  if (took_ns == 0 || find(launch.function) == nullptr) return;
  Function& who = function(launch.function);
  const auto correct = [&](uint64_t& sum) {
    sum = took_ns >= launch.expected_ns ? sum + (took_ns - launch.expected_ns)
                                        : sum - std::min(sum, launch.expected_ns - took_ns);
  };
  correct(who.tag);
  correct(who.lately_ns);
}

void LaunchAdmission::quiet_ended(uint64_t number, uint64_t now_ns) {
  const auto found = std::find_if(going_.begin(), going_.end(),
                                  [&](const Going& each) { return each.launch.number == number; });
  if (found == going_.end()) return remove(number);
  quiet_ns_ += now_ns - std::min(now_ns, found->since_ns);
  going_.erase(found);
  quiet_until_ns_ = quiet_goes_first() ? now_ns + options_.quiet_linger_ns : 0;
}

void LaunchAdmission::remove(uint64_t number) {
  std::erase_if(waiting_, [&](const Waiting& each) { return each.launch.number == number; });
  std::erase_if(going_, [&](const Going& each) { return each.launch.number == number; });
}

void LaunchAdmission::forget(uint64_t id) {
  std::erase_if(waiting_, [&](const Waiting& each) { return each.launch.function == id; });
  std::erase_if(functions_, [&](const Function& each) { return each.id == id; });
}

bool LaunchAdmission::beside(uint64_t function) const {
  return std::any_of(going_.begin(), going_.end(),
                     [&](const Going& each) { return each.launch.function != function; });
}

bool LaunchAdmission::others(uint64_t function) const {
  return beside(function) ||
         std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Waiting& each) { return each.launch.function != function; });
}

bool LaunchAdmission::has(uint64_t function) const {
  const auto is_its = [&](const auto& each) {
    return each.launch.function == function && !each.launch.quiet;
  };
  return std::any_of(going_.begin(), going_.end(), is_its) ||
         std::any_of(waiting_.begin(), waiting_.end(), is_its);
}

std::vector<LaunchSeen> LaunchAdmission::seen() const {
  std::vector<LaunchSeen> all;
  uint64_t in_the_way = 0;
  for (const Going& each : going_) {
    all.push_back({each.launch, each.since_ns, false, HoldReason::kTurn, 0});
    in_the_way = each.launch.function;
  }
  for (const Waiting& each : waiting_)
    all.push_back({each.launch, each.arrived_ns, true, each.why,
                   each.launch.function != in_the_way ? in_the_way : 0});
  return all;
}

LaunchUse LaunchAdmission::use(uint64_t function) const {
  const Function* const found = find(function);
  return found != nullptr ? found->use : LaunchUse{};
}

}  // namespace tube::policies
