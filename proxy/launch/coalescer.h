// Launch coalescing on one stream: runs of launches that repeat go to the driver as one graph
// (policies/launch_runs.h decides which).
//
// Invisible to the client: same kernels, same parameters, same order on the same stream. Whatever
// is held is launched, one by one, before anything else happens to the stream (Session::stream_op)
// or to what spans streams (Session::execute), and when nothing comes for the session's patience. A
// graph is made the first time a proven run is whole and kept; before each replay the parameters
// that differ are written into it. Programs that use two sets of buffers in turn get two graphs per
// run. All of a session's graphs are bounded together (run_graphs.h). Kernels with launch
// attributes, capturing streams and streams with a priority or attributes are left alone. A graph's
// kernels run on the multiprocessors, and with the priority, that its nodes name: where the stream
// has some of its own, nodes are made by capturing the launches from it.
//
// Session thread only, in the stream's context. Errors are the driver's; they belong to launches
// whose calls have returned long before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "base/cuda_api.h"
#include "policies/launch_runs.h"
#include "proxy/common/stats.h"
#include "proxy/launch/plain_launch.h"
#include "proxy/launch/run_graphs.h"

namespace tube::proxy {

struct Driver;

class Coalescer {
 public:
  // How nodes of graphs are made: from the context that is current, or by capturing from the
  // stream.
  enum class Nodes : uint32_t { kOfContext, kOfStream };
  // Driver, graphs and counters outlive it; `stream`, one of `gpu`, is launched into while
  // something is held.
  Coalescer(const Driver& driver, RunGraphs& graphs, CUstream stream, uint32_t gpu, Stats& stats,
            Nodes nodes = Nodes::kOfContext)
      : driver_(driver),
        all_graphs_(graphs),
        stream_(stream),
        gpu_(gpu),
        nodes_(nodes),
        runs_(policies::LaunchRuns::Options{}),
        stats_(stats) {}
  // Its stream goes: graphs that no longer run are left for others (run_graphs.h). Asks the stream
  // whether they do, unless there are none.
  ~Coalescer();
  Coalescer(const Coalescer&) = delete;
  Coalescer& operator=(const Coalescer&) = delete;

  bool holding() const { return !held_.empty(); }
  // Takes or makes the launch. `parameters` are packed and copied. `now` counts the session's
  // records.
  // `around`, if any, is called with a launch that goes out by itself at once, which it makes.
  using Around = std::function<CUresult(CUstream, const std::function<CUresult()>&)>;
  CUresult launch(const PlainLaunch& launch, std::span<const std::byte> parameters, uint64_t now,
                  const Around* around = nullptr);
  // Nothing came in time: makes the held launches.
  CUresult give_up();
  // Anything but a plain launch comes next on the stream: makes what is held and ends the run.
  CUresult boundary();
  // Kernels are about to go or change: drops the graphs. Call boundary() first.
  void forget();
  // The record with which the oldest held launch came. Meaningful while holding.
  uint64_t held_since() const { return held_since_; }

 private:
  static constexpr uint32_t kVariants = 2;
  static constexpr uint32_t kMisses = 4;
  static constexpr size_t kKeptBytes =
      64u << 10;  // of parameters: what a stream that holds nothing keeps room for
  struct Variants {
    RunGraph* graphs[kVariants] = {};
    uint32_t oldest = 0;
    // Since the last graph that fitted: after kMisses of them the oldest one is out of date.
    uint32_t misses = 0;
  };

  CUresult launch_now(const PlainLaunch& launch, std::span<const std::byte> parameters);
  CUresult launch_held();
  CUresult replay(uint32_t run);
  RunGraph* graph_for(uint32_t run);
  RunGraph* make_graph(Variants& variants, RunGraph** place);
  RunGraph* take_left(Variants& variants, RunGraph** place);
  RunGraph* make_graph_now(Variants& variants, RunGraph** place, uint64_t bytes);
  CUresult build(RunGraph& graph);
  CUresult add_nodes(RunGraph& graph);
  CUresult capture_nodes(RunGraph& graph);
  CUresult capture_launches(RunGraph& graph);
  CUresult set_parameters(const RunGraph& graph, size_t node, const PlainLaunch& launch,
                          PackedParameters& packed);
  uint32_t difference(const RunGraph& graph) const;
  bool update(RunGraph& graph);
  void drop(Variants& variants);
  void keep(const PlainLaunch& launch, std::span<const std::byte> parameters);
  void held_are_out();
  std::span<const std::byte> parameters_of(const HeldLaunch& held,
                                           const std::vector<std::byte>& store) const;

  const Driver& driver_;
  RunGraphs& all_graphs_;
  const CUstream stream_;
  const uint32_t gpu_;
  const Nodes nodes_;
  policies::LaunchRuns runs_;
  bool later_ = false;           // the graph was not made because no turn was to be had
  std::deque<Variants> graphs_;  // by number of the run; they stay where they are
  std::vector<HeldLaunch> held_;
  std::vector<std::byte> parameters_;
  uint64_t held_since_ = 0;
  Stats& stats_;
};

}  // namespace tube::proxy
