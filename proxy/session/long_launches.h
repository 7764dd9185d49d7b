// How long one client's kernels and graphs run, and its long launches, which take turns with those
// of other functions (launch/launch_turns.h).
//
// Knowing. Two events around a launch tell how long it ran: the first launches of each kernel with
// a grid and a block, then one in some hundreds (by time, four a second, one in a thousand at most
// often). A sample can only be too long, by others' work in its way, so the least one counts, until
// several in a row were twice as long with nobody's long launch beside them. That a short kernel is
// taken for a long one corrects itself: its next launch is given a turn, in which it is alone. A
// launch of a graph is one unit. Launches that go out as parts of a run are not measured: a kernel
// is before it becomes one.
//
// Holding. The stream of a launch that has to wait for its turn is held (parked_records.h), and the
// record comes again when the turn is there. Nothing of it reaches the driver before.
//
// What it costs: a short launch one decrement and two compares (launch_watch.h); a launch that is
// looked at a look-up of 50 ns; one that is measured two event records of 0.3 us. Session thread
// only, but for the nudge and the counter.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/cuda_api.h"
#include "proxy/launch/launch_turns.h"
#include "proxy/launch/launch_watch.h"
#include "proxy/session/parked_records.h"

namespace tube::proxy {

class ContextShares;
struct Driver;
struct StreamState;

class LongLaunches;

// What was decided for one launch: its turn and its events. Made before the launch; a turn that was
// not used is given back with it.
class LaunchPass {
 public:
  LaunchPass() = default;
  ~LaunchPass();
  LaunchPass(LaunchPass&& other) noexcept;
  LaunchPass(const LaunchPass&) = delete;
  LaunchPass& operator=(const LaunchPass&) = delete;
  LaunchPass& operator=(LaunchPass&&) = delete;

  // The stream is held, the record must come again.
  bool held() const { return held_; }
  // It has a turn: a launch of its own, no part of a run.
  bool is_long() const { return turn_ != nullptr; }
  bool measures() const { return unit_ != 0; }
  // Around the driver's call; in the context of the stream.
  void before(CUstream stream);
  void after(CUstream stream, CUresult result);
  template <class Launch>
  CUresult around(CUstream stream, const Launch& launch) {
    if (!measures()) return launch();
    before(stream);
    const CUresult result = launch();
    after(stream, result);
    return result;
  }

 private:
  friend class LongLaunches;
  LongLaunches* owner_ = nullptr;
  bool held_ = false;
  uint32_t gpu_ = 0;
  uint64_t unit_ = 0;    // 0: it is not measured
  bool beside_ = false;  // another's long launch was in flight
  std::shared_ptr<LaunchTurn> turn_;
  std::shared_ptr<TimedWork> work_;
};

class LongLaunches {
 public:
  // All outlive it.
  LongLaunches(const Driver& driver, ContextShares& shares, ParkedRecords& parked)
      : driver_(driver), shares_(shares), parked_(parked) {}
  ~LongLaunches() { take_all_back(); }
  LongLaunches(const LongLaunches&) = delete;
  LongLaunches& operator=(const LongLaunches&) = delete;

  // nullptr: nothing is measured or held. `told`: makes a session that sleeps look at settle(); any
  // thread.
  void use(LaunchTurns* turns, const LaunchUser& user, std::function<void()> told);
  bool on() const { return turns_ != nullptr; }
  // Its kernels on this GPU run beside those of others, on multiprocessors of its own, or no more.
  void set_apart(uint32_t gpu, bool apart) {
    if (turns_ != nullptr) turns_->set_apart(session_, gpu, apart);
  }

  // A launch that may be long.
  struct Unit {
    uint64_t key = 0;  // of a kernel with its grid and block, or of a graph's instance; not 0
    uint64_t blocks = 0;
    StreamState* stream = nullptr;
    uint64_t record = 0;   // its sequence
    bool may_wait = true;  // it may be held
    uint64_t also = 0;     // what else is held with its stream, a key of ParkKeys; 0: nothing
  };
  // What becomes of it. Not for launches whose stream captures, nor for green contexts' streams.
  LaunchPass look(const Unit& unit, LaunchWatch& watch);
  // Of an instance of a graph.
  LaunchWatch& of_graph(uint64_t exec) { return graphs_[exec]; }
  void forget_graph(uint64_t exec) { graphs_.erase(exec); }

  bool holding() const { return !holds_.empty(); }
  // While something is held: takes note of what has ended, and gives the turns that are due.
  void watch();
  // Whether one of the held launches was the next one then.
  bool is_next() const { return is_next_; }
  // Lets the streams go whose turn has come; then their records come again.
  void settle();
  // They had the opportunity: turns that were not used are given back.
  void settled();
  // The client is gone. Nothing is held any more, what is in flight still ends.
  void take_all_back();

  // GPU time that was used, as far as it was measured. Any thread.
  uint64_t gpu_ns() const { return gpu_ns_.load(std::memory_order_relaxed); }

 private:
  friend class LaunchPass;
  // How long a unit runs.
  struct Time {
    uint64_t least_ns = 0;  // 0: not known
    uint32_t samples = 0;
    uint32_t pending = 0;      // that have not ended
    uint32_t longer = 0;       // in a row, that took twice the least or more
    uint64_t longer_ns = 0;    // the least of these
    uint64_t launches = 0;     // since it was measured
    uint64_t measured_ns = 0;  // when
  };
  struct Sample {
    uint64_t unit;
    uint32_t gpu;
    bool beside;
    std::shared_ptr<TimedWork> work;
  };
  struct Hold {
    std::shared_ptr<LaunchTurn> turn;
    ParkKeys keys;
    uint64_t record;
  };

  Time& time_of(uint64_t unit);
  void harvest();
  void learn(const Sample& sample, uint64_t took_ns);
  bool measure(Time& time, uint64_t now);
  void plan(const Time& time, const Unit& unit, LaunchWatch& watch, uint64_t now);
  std::shared_ptr<LaunchTurn> take_pass(uint64_t record);
  void hold(const Unit& unit, std::shared_ptr<LaunchTurn> turn);

  const Driver& driver_;
  ContextShares& shares_;
  ParkedRecords& parked_;
  LaunchTurns* turns_ = nullptr;
  uint64_t session_ = 0;
  std::function<void()> told_;
  std::unordered_map<uint64_t, Time> times_;
  std::unordered_map<uint64_t, LaunchWatch> graphs_;
  std::vector<Sample> samples_;
  uint64_t harvested_ns_ = 0;
  bool is_next_ = false;
  std::vector<Hold> holds_;
  std::vector<Hold> passes_;  // let go, their records are about to come again
  std::atomic<uint64_t> gpu_ns_{0};
};

}  // namespace tube::proxy
