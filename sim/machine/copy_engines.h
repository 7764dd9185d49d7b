// The copy engines of all GPUs, one for each direction, and the clock on which their copies take
// time.
//
// A copy that uses an engine does not go to a worker when its turn in the stream comes: it is added
// to the engine, which serves one copy after the other in the order of copy_order.h. Exists only
// where TUBE_SIM_COPIES=engine or TUBE_SIM_TIME=virtual asks for it.
//
// The clock (TUBE_SIM_TIME=virtual) counts nanoseconds from 0. A copy in an engine's hand ends
// `copy_ns` and its bytes at the link's rate after it began, a kernel as long as its blocks where
// these take time (block_order.h); whatever else the GPU does takes none. Calls of the program take
// none either: what is submitted while a copy is in hand was submitted before that copy's end. The
// bytes move when the clock reaches the end of their copy, one copy at a time in the order of their
// ends, so events and words become complete in that order, and the next copy is chosen from what is
// ready then.
//
// Who moves the clock: by itself it goes on to the next end as fast as the bytes can be copied. How
// many copies the host adds before an end is then a race, as on a GPU. While it is held, copies end
// only in step() and advance_to(): a test submits, moves the clock, looks and submits again, and
// nothing depends on speed. Nobody sleeps, and no thread belongs to the clock.
//
// Without the clock copies still wait for each other in the engine's order, hold and step work the
// same, and times are those of the host.
//
// All functions: with State::mutex held.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/machine/block_order.h"
#include "sim/machine/copy_order.h"
#include "sim/machine/engine.h"
#include "sim/machine/topology.h"

namespace tube::sim {

// Host to device: copies of up to so many bytes travel another way (docs/facts.md).
inline constexpr uint64_t kPinnedWithoutEngine = 24 << 10;
inline constexpr uint64_t kPageableWithoutEngine = 64 << 10;

// What an engine did, for tests.
struct ServedCopy {
  Transfer transfer;
  uint64_t context = 0;
  uint64_t stream = 0;  // as cuStreamGetId says; of a graph's node: that of the launch
  uint64_t ready_ns = 0, begin_ns = 0, end_ns = 0;
};

class CopyEngines {
 public:
  // Null when the environment asks for neither rule nor clock.
  static std::unique_ptr<CopyEngines> load(const TopologySpec& spec, Fabric* fabric,
                                           std::string* error);

  // The head of the lane is a copy that can begin.
  void add(const LanePtr& lane, const Transfer& transfer);
  // Its bytes have arrived: the clock stands at its end. Then what hangs on it is completed, then
  // comes left().
  void reach_end(const Transfer& transfer);
  void left(Lock& lock, const Transfer& transfer);

  // The head of the lane is a kernel that can begin, on a device whose kernels take time: its body
  // runs when the clock stands at its end.
  bool deals_blocks(int device) const { return kernels_[static_cast<size_t>(device)].has_value(); }
  void add(const LanePtr& lane, const Grid& grid);
  // What hangs on the end of the kernel in hand is completed.
  void kernel_left(Lock& lock);

  bool held() const { return held_; }
  bool has_clock() const { return clock_; }
  uint64_t now() const { return clock_ ? now_ : now_ns(); }

  // No copy is moving when it returns. May drop the lock.
  void hold(Lock& lock, bool on);
  // Ends the copy in hand that ends first, words before it too, and returns when all that follows
  // at once is done, kernels and host functions not included. False: no copy is in hand. For one
  // thread at a time, while held. Drops the lock.
  bool step(Lock& lock);
  // Ends all copies that end until then, and lets it be then. Needs the clock. Drops the lock.
  void advance_to(Lock& lock, uint64_t until_ns);

  // Copies in hand and waiting, of all engines or of one, with the words behind them.
  size_t pending() const;
  size_t pending(int device, bool up) const;
  // Returns when there are so many. Drops the lock.
  void wait_for_pending(Lock& lock, size_t count);
  // The last 65,536 copies in the order of their ends.
  const std::deque<ServedCopy>& served() const { return served_; }
  uint64_t ended() const { return ends_; }  // how many there were

 private:
  struct Copy {
    LanePtr lane;
    ServedCopy served;
  };
  struct Engine {
    CopyOrder order;
    std::unordered_map<uint64_t, Copy> waiting;  // by ReadyCopy::number
    uint64_t copy_ns = 0;
    Copy in_hand;          // without a lane: none
    uint64_t turn = 0;     // counts what was taken in hand, of all engines
    bool started = false;  // the bytes are moving
  };

  CopyEngines(const TopologySpec& spec, Fabric* fabric, bool clock);
  Engine& engine(int device, bool up) {
    return engines_[static_cast<size_t>(device) * 2 + (up ? 0 : 1)];
  }
  uint64_t duration_of(const Engine& engine, const Transfer& transfer) const;
  void take_next(Engine& engine);
  Engine* first_to_end();
  void start(Engine& engine);
  bool go_on_with_kernels();
  void go_on();

  Fabric* fabric_;
  const bool clock_;
  bool held_ = false;
  uint64_t now_ = 0;
  uint64_t numbers_ = 0, turns_ = 0, ends_ = 0;
  std::vector<Engine> engines_;  // by device, up before down
  // Of the devices whose kernels take time.
  std::vector<std::optional<BlockOrder>> kernels_;
  std::unordered_map<uint64_t, LanePtr> kernel_lanes_;  // by number, of all devices
  bool kernel_started_ = false;
  std::deque<ServedCopy> served_;
  std::condition_variable changed_;  // a copy was added, or ended
};

}  // namespace tube::sim
