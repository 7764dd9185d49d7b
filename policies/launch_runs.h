// Which launches to hold back so that they go to the GPU as one graph (launch coalescing):
// decisions over plain numbers.
//
// A program that is bound by launching repeats itself: step after step the same kernels in the same
// order. A step is the launches of one stream between two boundaries (records that are no
// launches). A step that has passed is cut into runs, short ones first so that the GPU starts
// early, and each run remembers which run came behind it. When a run begins that has passed often
// enough, its launches are held. When the run is whole, the caller sends it as one graph: 100
// kernels cost 75 us that way against 449 us one by one (on an H200). When the launches go on
// otherwise, those that are held are launched one by one.
//
//   launch(shape)  kPass    launch it now         (first launch what is held when `release` is set)
//                  kHold    keep it
//                  kReplay  keep it too: the held launches are known run `run`, whole
//   boundary()     something else came: true when what is held must be launched first
//   give_up()      nothing came in time, or the caller could not send the graph: what is held is
//                  launched one by one
//
// Streams without boundaries: when a whole window of launches has passed, its period is looked for.
// If there is one, the next launches are those of one period before, and the period's runs are held
// at once, whatever the phase.
//
// A shape is a hash of all that makes two launches the same node: kernel, grid, block, shared
// memory. The caller compares the values themselves before it trusts it. One object per stream, one
// thread; no clock, no memory beyond `known` runs of at most `longest` + `least` shapes and one
// window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tube::policies {

class LaunchRuns {
 public:
  struct Options {
    uint32_t least = 8;      // shorter runs gain nothing
    uint32_t first = 16;     // the first run of a step, each next one twice as long
    uint32_t longest = 128;  // from where a graph's own cost is spread thin enough
    uint32_t window = 1024;  // a step is cut here when no boundary comes
    uint32_t known = 64;     // runs remembered; the run unused longest makes room
    uint32_t proven = 2;     // times a run must pass before it is held
  };
  enum class Kind : uint8_t { kPass, kHold, kReplay };
  struct Decision {
    Kind kind = Kind::kPass;
    bool release = false;
    uint32_t run =
        0;  // kReplay: a small number, the same for the same run until `forgotten` says otherwise
  };

  explicit LaunchRuns(const Options& options) : options_(options) {}

  Decision launch(uint64_t shape);
  bool boundary();
  void give_up();
  // The graph of the last kReplay went out.
  void replayed() { settle(active_, true, 0); }
  // Forgets all runs, because kernels were unloaded or changed. The caller launches what is held.
  void forget();
  // The known run `run` made room for another since last asked: what the caller keeps for it is
  // stale.
  bool take_forgotten(uint32_t run);
  bool holding() const { return mode_ == Mode::kHolding; }

 private:
  enum class Mode : uint8_t {
    kFree,      // at the beginning of a run
    kHolding,   // the first at_ shapes of run active_ came, and are held
    kTracking,  // the same, but they are launched as they come
    kLearning,  // current_ came, and is no known run
  };
  struct Run {
    std::vector<uint64_t> shapes;
    uint32_t next[2];  // the run that came behind it; [1]: with a boundary between them
    uint32_t seen = 0;
    int32_t credit = 0;  // grows with what was gained, falls when it was held in vain; too low: not
                         // held any more
    uint64_t used = 0;   // when, counted in runs
    bool forgotten = false;
  };
  static constexpr uint32_t kNone = 0xffffffffu;
  static constexpr int32_t kWorst = -192, kBest = 512, kInVain = 16;

  bool holdable(const Run& run) const {
    return run.seen >= options_.proven && run.credit > kWorst && !run.shapes.empty();
  }
  Decision begin(uint64_t shape);
  Decision go_on(uint64_t shape);
  Decision whole();
  uint32_t predicted(uint64_t shape) const;
  uint32_t find(const std::vector<uint64_t>& prefix) const;
  void take_prefix();
  void learn(const uint64_t* shapes, size_t count, uint32_t first, uint32_t seen);
  uint32_t remember(const uint64_t* shapes, size_t count, uint32_t seen);
  void passed(Run& run, uint32_t times);
  void append(uint32_t run);
  void cut_window();
  size_t period() const;
  void settle(uint32_t run, bool good, size_t held);

  Options options_;
  std::vector<Run> runs_;
  std::vector<uint64_t> current_;  // kLearning: the shapes since it began
  Mode mode_ = Mode::kFree;
  uint32_t active_ = kNone;
  size_t at_ = 0;
  uint32_t last_ = kNone;  // the run that ended last, and whether a boundary came since
  bool after_boundary_ = false;
  uint64_t clock_ = 0;
};

}  // namespace tube::policies
