// Whose long launch runs next on one GPU.
//
// In one context the hardware deals out all blocks of a kernel before those of a later one, whoever
// launched it. While several streams always hold a long kernel, each kernel of everybody else waits
// for all of them: a step of 150 short kernels beside four functions with kernels of 21 ms took 9.3
// s on an H200, and 16 ms when one long kernel was in flight at a time (docs/scheduling.md). So
// long launches of different functions take turns. Short ones never come here.
//
// A launch that may not go is held, and no hold lasts: after four times what is expected of the
// longest launch in its way (`longest_hold_ns` at most), or twice what all that were there before
// it take together, it goes whatever runs, because kernels of two functions may wait for each
// other. A launch in flight that has outlasted the first of these keeps nobody back any more. A
// function alone is never held, and its launches follow each other on one stream without gaps:
// `own_lead` of them may be submitted while nobody else waits or lately did short work.
//
// Between two long launches the GPU rests for a moment while others' short work is outstanding, or
// its next kernels would wait for each long one in turn: a step of 150 took two of 20 ms each.
// Rests are paid from a fifth of the time that long launches took (contexts that take turns, as
// natively, cost them as much), from less where more than five functions have such launches: from
// what is one function's part. They last `rest_most_ns` at most. One that has begun may last as
// long on credit, since a rest that is cut short was for nothing: the rest of the step then waits
// for a long launch all the same. What is saved is also spent in advance: when the next step of a
// function that is asked at marks of a clock is expected before the long launch would end, and soon
// enough to be paid for, the launch goes behind that step. Otherwise a step that comes right behind
// the beginning of a launch waits for all of it. What was so spent refuses nobody a rest: a step
// that leaves a debt behind a wait would let the next one wait for two long launches.
//
// Some calls need the whole context idle, and every launch stands meanwhile: loads of code, splits
// of the GPU. They ask for a quiet moment here. It comes when what is in flight has ended, before
// all long launches; for `quiet_linger_ns` afterwards the next such call is awaited, since a
// program that starts makes hundreds of them. Then the long launches that wait have a turn, as soon
// as quiet moments took as long as the longest of them will.
//
// Orders (launch_order_name):
//   native      nobody is held: what the hardware does.
//   fair        start-time fair queueing by GPU time: a function's tag grows by what its launches
//               took, the lowest goes next; who comes back begins at the present turn's tag.
//   priority    functions with an SLO go first, otherwise as they came.
//   deadlines   the earliest deadline (arrival and SLO) first, those without one as in feedback.
//   feedback    the default: as deadlines, and else who used least lately goes first, in levels
//               that double (multi-level feedback); within a level as they came. A launch of at
//               most a quarter of the other's length goes first also from one level above, where it
//               would wait for several long ones to be served for little.
//
// Plain values in, decisions out: one thread, no clock, no lock. A decision costs a pass over the
// launches that wait, of which a stream has one.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

namespace tube::policies {

enum class LaunchOrder : uint8_t { kNative, kFair, kPriority, kDeadlines, kFeedback };
inline constexpr LaunchOrder kLaunchOrders[] = {LaunchOrder::kNative, LaunchOrder::kFair,
                                                LaunchOrder::kPriority, LaunchOrder::kDeadlines,
                                                LaunchOrder::kFeedback};
std::string_view launch_order_name(LaunchOrder order);
std::optional<LaunchOrder> parse_launch_order(std::string_view name);

// A launch of a kernel or of a whole graph that is expected to be long.
struct LongLaunch {
  uint64_t number = 0;  // not among those that wait or are in flight
  uint64_t function = 0;
  uint64_t stream = 0;
  uint64_t expected_ns = 0;
  bool quiet = false;  // no launch, but a call that needs the whole context idle
};

// What a launch was held for; a hold may have several reasons.
enum class HoldReason : uint8_t { kTurn, kShortWork, kExpectedStep, kQuiet, kOtherProxy };
inline constexpr HoldReason kHoldReasons[] = {HoldReason::kTurn, HoldReason::kShortWork,
                                              HoldReason::kExpectedStep, HoldReason::kQuiet,
                                              HoldReason::kOtherProxy};
std::string_view hold_reason_name(HoldReason reason);

// What a function got, since it was first named.
struct LaunchUse {
  uint64_t launches = 0;                            // that were long
  uint64_t held = 0;                                // of them
  uint64_t held_ns = 0;                             // all together
  uint64_t longest_ns = 0;                          // the longest hold
  uint64_t ran_out = 0;                             // holds that ran into the bound
  uint64_t held_for[std::size(kHoldReasons)] = {};  // by HoldReason
  uint64_t quiet = 0;                               // quiet moments
  uint64_t quiet_ns = 0;                            // for which it waited for them
};

// What functions without a long launch do, and are about to do.
struct ShortWork {
  bool outstanding = false;
  uint64_t next_ns = 0;   // when the next step of any is expected; 0: nobody knows
  uint64_t until_ns = 0;  // and how long it is awaited
};

// A launch that waits or is in flight, for a person who looks.
struct LaunchSeen {
  LongLaunch launch;
  uint64_t since_ns = 0;
  bool waits = false;
  HoldReason why = HoldReason::kTurn;  // the last reason, if it waits
  uint64_t behind = 0;                 // the function in the way; 0: none in particular
};

class LaunchAdmission {
 public:
  struct Options {
    LaunchOrder order = LaunchOrder::kFeedback;
    uint32_t in_flight = 1;        // long launches at a time, while functions share the GPU
    uint32_t own_lead = 2;         // of one stream, while no other function waits
    uint64_t long_ns = 1'000'000;  // a launch is long from here on, if nothing tighter is known
    uint64_t hold_factor = 4;
    uint64_t longest_hold_ns = 100'000'000;
    uint64_t recent_ns = 200'000'000;    // in which what was used lately counts half as much
    uint64_t rest_part = 5;              // of the time that long launches take; 0: there is no rest
    uint64_t rest_most_ns = 4'000'000;   // for work that is outstanding, at a time
    uint64_t rest_saved_ns = 5'000'000;  // at most, and so the longest wait for a step
    uint64_t short_lately_ns = 100'000'000;  // no lead of a stream for so long after short work
    uint64_t quiet_linger_ns = 1'000'000;
  };
  struct Turn {
    uint64_t number = 0;
    bool ran_out = false;  // it goes because its hold has lasted too long
  };

  explicit LaunchAdmission(const Options& options) : options_(options) {}

  // What a function must reach: 0 nothing, else within how long a request is to be answered.
  void needs(uint64_t function, uint64_t slo_ns);
  // From how long on a launch is long: half of the tightest SLO, if that is less than the default.
  uint64_t long_ns() const;

  // As of now.
  void short_work(const ShortWork& work) { short_ = work; }
  // This proxy has had more than its share of the GPU: long launches wait until so many
  // nanoseconds (proxy_shares.h). 0: it has not.
  void hold_until(uint64_t ns) { held_until_ns_ = ns; }
  // Whether the function has a long launch that waits or is in flight.
  bool has(uint64_t function) const;
  // Whether the launch goes now; otherwise it waits until next() names it. `shared`: more than one
  // function uses the GPU at the moment.
  bool ask(const LongLaunch& launch, uint64_t now_ns, bool shared);
  // A launch that waits and may go by now; ask again until there is none.
  std::optional<Turn> next(uint64_t now_ns, bool shared);
  // A launch in flight has ended and took so long; 0: nobody knows, as much as was expected.
  void ended(uint64_t number, uint64_t took_ns);
  // A quiet moment is over.
  void quiet_ended(uint64_t number, uint64_t now_ns);
  // It is not made after all, or nobody hears of its end. Waiting or in flight.
  void remove(uint64_t number);
  // The function is gone, with all its launches that wait. Those in flight still end.
  void forget(uint64_t function);

  // The launch that goes when the one in flight ends, if nothing else comes; 0: none waits.
  uint64_t first() const;
  bool waits() const { return !waiting_.empty(); }
  // Whether somebody else's long launch is in flight.
  bool beside(uint64_t function) const;
  // The same, or waits.
  bool others(uint64_t function) const;
  LaunchUse use(uint64_t function) const;
  // What is in flight, then what waits.
  std::vector<LaunchSeen> seen() const;

 private:
  struct Function {
    uint64_t id = 0;
    uint64_t slo_ns = 0;
    uint64_t tag = 0;        // fair: of what comes next
    uint64_t lately_ns = 0;  // feedback: of GPU time, at `lately_at`
    uint64_t lately_at = 0;
    LaunchUse use;
  };
  struct Waiting {
    LongLaunch launch;
    uint64_t arrived_ns = 0;
    uint64_t due_ns = 0;  // it goes then
    uint64_t deadline = 0;
    uint32_t reasons = 0;  // a bit for each HoldReason
    HoldReason why = HoldReason::kTurn;
  };
  struct Going {
    LongLaunch launch;
    uint64_t since_ns = 0;
    uint64_t over_ns = 0;  // from then on it keeps nobody back
  };

  Function& function(uint64_t id);
  const Function* find(uint64_t id) const;
  uint64_t bound_ns(uint64_t expected_ns) const;
  uint64_t hold_ns(const LongLaunch& launch) const;
  // nullopt: it has room. Else why not.
  std::optional<HoldReason> refusal(const LongLaunch& launch, uint64_t now_ns);
  std::optional<HoldReason> rests(const LongLaunch& launch, uint64_t now_ns);
  bool awaits_step(const LongLaunch& launch, uint64_t now_ns) const;
  bool quiet_goes_first() const;
  bool stands(const Waiting& launch) const;
  void go(const LongLaunch& launch, uint64_t now_ns);
  void charge(Function& function, uint64_t ns, uint64_t now_ns);
  uint64_t functions_beside(uint64_t function) const;
  uint32_t level(const Function& function, uint64_t now_ns) const;
  bool before(const Waiting& a, const Waiting& b) const;
  const Waiting* best() const;
  Turn take(size_t at, uint64_t now_ns, bool ran_out);

  const Options options_;
  uint64_t virtual_ns_ = 0;  // fair: the tag of the last turn
  uint64_t now_ns_ = 0;      // the last that was said
  ShortWork short_;
  uint64_t held_until_ns_ = 0;
  uint64_t no_lead_until_ns_ = 0;
  int64_t rest_ns_ = 0;           // that may be rested; below zero: owed
  uint64_t rest_since_ns_ = 0;    // 0: it does not rest
  uint64_t serves_since_ns_ = 0;  // of this rest, the short work that is outstanding
  uint64_t waited_ns_ = 0;        // from the beginning of the last rest that served some until then
  uint64_t quiet_until_ns_ = 0;   // another quiet moment is awaited
  uint64_t quiet_ns_ = 0;         // of quiet moments since a long launch went
  std::vector<Function> functions_;
  std::vector<Waiting> waiting_;  // as they came
  std::vector<Going> going_;
};

}  // namespace tube::policies
