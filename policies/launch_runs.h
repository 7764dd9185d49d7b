// Which launches to hold back so that they go to the GPU as one graph (launch coalescing): decisions over plain numbers.
//
// A program that is bound by launching repeats itself: step after step the same kernels in the same order. A run is a
// sequence of launches with nothing else between them. Runs that passed before are known; when one begins again, its
// launches are held, and when it is whole the caller sends it as one graph: 100 kernels cost 75 us that way against 449 us
// one by one (facts of the H200). Whatever does not go as it went before is let go and launched one by one, in order.
//
//   launch(shape)  kPass    launch it now         (first launch what is held when `release` is set)
//                  kHold    keep it
//                  kReplay  keep it too: the held launches are known run `run`, whole
//   boundary()     something else came, or another stream: true when what is held must be launched first
//   give_up()      nothing came in time, or the caller could not send the graph: what is held gets launched one by one
//
// A shape is a hash of all that makes two launches the same node: kernel, grid, block, shared memory. The caller compares
// the values themselves before it trusts it. One thread; no clock, no memory beyond Options::known runs of Options::most.
#pragma once

#include <cstdint>
#include <vector>

namespace tube::policies {

class LaunchRuns {
 public:
  struct Options {
    uint32_t least = 8;   // shorter runs gain nothing
    uint32_t most = 512;  // a longer run is cut here
    uint32_t known = 16;  // runs remembered; the one unused longest makes room
    uint32_t proven = 2;  // times a run must pass before it is held
  };
  enum class Kind : uint8_t { kPass, kHold, kReplay };
  struct Decision {
    Kind kind = Kind::kPass;
    bool release = false;
    uint32_t run = 0;  // kReplay: a small number, the same for the same run until `forgotten` says otherwise
  };

  explicit LaunchRuns(const Options& options) : options_(options) { runs_.reserve(options.known); }

  Decision launch(uint64_t shape);
  bool boundary();
  void give_up();
  // The graph of the last kReplay went out.
  void replayed() { settle(active_, true); }
  // Nothing of before counts any more (kernels were unloaded or changed). Held launches are the caller's to launch.
  void forget();
  // The known run `run` made room for another since last asked: what the caller keeps for it is stale.
  bool take_forgotten(uint32_t run);
  bool holding() const { return holding_; }

 private:
  struct Run {
    std::vector<uint64_t> shapes;
    uint32_t seen = 0;
    int32_t credit = 0;     // falls with every time it was held in vain; too low: not held any more
    uint64_t used = 0;      // when, counted in runs
    bool forgotten = false;
  };
  static constexpr uint32_t kNone = 0xffffffffu;
  static constexpr int32_t kWorst = -12, kBest = 16, kInVain = 4;

  uint32_t find_prefix() const;
  void learn();
  void settle(uint32_t run, bool good);

  Options options_;
  std::vector<Run> runs_;
  std::vector<uint64_t> current_;  // shapes since the last boundary, cut or replay
  uint32_t active_ = kNone;        // the run that is being held
  bool holding_ = false;
  bool passing_ = false;           // this run is let through to its boundary
  uint64_t clock_ = 0;
};

}  // namespace tube::policies
