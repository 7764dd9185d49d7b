// The graphs that a client's repeated runs of launches became (coalescer.h): all of one session,
// bounded together.
//
// A client may have thousands of streams, each with its own coalescer and up to a hundred graphs
// there; a graph holds a copy of all its launches' parameters here, and nodes in the driver and on
// the GPU. When a new one would be beyond the limit, the graphs replayed longest ago go: their runs
// are launched one by one the next time, or become graphs again. Nobody can tell but by the time it
// takes.
//
// When a stream goes, its graphs are left here for the next stream with the same runs: to make an
// instance is a context-wide call, which has to wait while some program's stream stands, and a
// program that makes new streams for each piece of work would launch one by one for as long.
//
// Session thread only. Outlives the coalescers, which drop or leave what is theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "base/cuda_api.h"
#include "proxy/launch/plain_launch.h"

namespace tube::proxy {

class ContextGate;
struct Driver;

// A launch whose packed parameters lie in a store beside.
struct HeldLaunch {
  PlainLaunch launch;
  uint32_t parameters_at = 0;
  uint32_t parameters_bytes = 0;
};

struct RunGraph {
  uint32_t gpu = 0;  // whose context its nodes name: a library's kernel is the same on all GPUs
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  std::vector<CUgraphNode> nodes;
  std::vector<HeldLaunch> launches;
  std::vector<std::byte> parameters;

  // RunGraphs' own.
  RunGraph** place = nullptr;  // nullptr: it was left
  uint64_t when = 0;           // it was made or replayed last
  uint64_t bytes = 0;
};

class RunGraphs {
 public:
  struct Limits {
    uint32_t count;
    uint64_t bytes;  // as bytes_of() estimates them
  };
  // `gate`: in front of the driver's context-wide calls; nullptr: none is (unit tests).
  RunGraphs(const Driver& driver, const Limits& limits, ContextGate* gate = nullptr)
      : driver_(driver), limits_(limits), gate_(gate) {}
  RunGraphs(const RunGraphs&) = delete;
  RunGraphs& operator=(const RunGraphs&) = delete;

  // What a graph of these costs, with the driver's copies in graph and instance.
  static uint64_t bytes_of(size_t launches, size_t parameter_bytes) {
    return launches * kNodeBytes + 3 * parameter_bytes;
  }

  bool has_room(uint64_t bytes) const {
    return graphs_.size() < limits_.count && bytes_ + bytes <= limits_.bytes;
  }
  // Drops what was replayed longest ago until there is room, or nothing is left.
  void make_room(uint64_t bytes);
  // Takes over a graph that was just made. `*place` points to it until it is dropped, and is
  // nullptr then.
  void add(RunGraph&& made, RunGraph** place);
  // It is about to be launched.
  void replayed(RunGraph& graph);
  void drop(RunGraph& graph);
  // Its stream goes, and has ended all that it had to do.
  void leave(RunGraph& graph);
  // One that was left, whose launches `fits`; `*place` points to it as if it had been added.
  // nullptr: there is none.
  RunGraph* take_left(const std::function<bool(const RunGraph&)>& fits, RunGraph** place);
  // Kernels are about to go or change, or the client is.
  void drop_left();
  // One that was not added.
  void destroy(RunGraph& graph) const;
  // Calls `make`, which makes an instance (a context-wide call), unless the context gate is closed.
  // False: it was not called.
  bool if_gate_open(const std::function<void()>& make);

  // Those that were left included.
  size_t count() const { return graphs_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  static constexpr uint64_t kNodeBytes =
      1024;  // an estimate: of a node here, in the graph and in its instance
  static constexpr size_t kMostLeft = 64;

  const Driver& driver_;
  const Limits limits_;
  ContextGate* const gate_;
  std::map<uint64_t, RunGraph> graphs_;  // by `when`
  std::deque<RunGraph*> left_;           // of these, the longest first
  uint64_t bytes_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace tube::proxy
