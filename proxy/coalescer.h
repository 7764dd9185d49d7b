// Launch coalescing: runs of launches that repeat go to the driver as one graph (policies/launch_runs.h decides which).
//
// Invisible to the client: same kernels, same parameters, same order on the same stream. Whatever is held is launched, one
// by one, before anything else of the session happens (Session calls release() and boundary()), and after `patience`
// when nothing comes. A graph is made the first time a proven run is whole and kept; before each replay the parameters that
// differ are written into it. Kernels with launch attributes, capturing streams and streams with a priority are left alone.
//
// Session thread only. Errors are the driver's; they belong to the launches, whose calls have returned long before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/cuda_api.h"
#include "policies/launch_runs.h"
#include "proxy/stats.h"

namespace tube::proxy {

struct Driver;

struct PlainLaunch {
  CUfunction function = nullptr;   // or a CUkernel, cast
  bool is_library_kernel = false;
  uint32_t grid[3] = {};
  uint32_t block[3] = {};
  uint32_t shared_bytes = 0;

  bool operator==(const PlainLaunch&) const = default;
};

class Coalescer {
 public:
  // patience 0: every launch goes straight to the driver.
  Coalescer(const Driver& driver, uint64_t patience_ns, Stats& stats)
      : driver_(driver), patience_ns_(patience_ns), runs_(policies::LaunchRuns::Options{}), stats_(stats) {}
  ~Coalescer() { forget(); }
  Coalescer(const Coalescer&) = delete;
  Coalescer& operator=(const Coalescer&) = delete;

  bool enabled() const { return patience_ns_ != 0; }
  uint64_t patience_ns() const { return patience_ns_; }
  bool holding() const { return !held_.empty(); }

  // Takes or makes the launch, in the current context. `parameters` are packed and copied. boundary() comes between two streams.
  CUresult launch(const PlainLaunch& launch, std::span<const std::byte> parameters, CUstream stream);
  // Nothing came in time: makes the held launches. In their context.
  CUresult give_up();
  // Anything but a plain launch on the same stream comes next: makes what is held, in its context, and ends the run.
  CUresult boundary();
  // Kernels are about to go or change: drops the graphs. Call boundary() first.
  void forget();

 private:
  struct Held {
    PlainLaunch launch;
    uint32_t parameters_at = 0;
    uint32_t parameters_bytes = 0;
  };
  struct Graph {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUstream stream = nullptr;
    std::vector<CUgraphNode> nodes;
    std::vector<Held> launches;
    std::vector<std::byte> parameters;
  };

  CUresult launch_now(const PlainLaunch& launch, std::span<const std::byte> parameters);
  CUresult launch_held();
  CUresult replay(uint32_t run);
  CUresult build(Graph& graph);
  // False when the graph is of other kernels or when so much differs that writing it costs more than launching.
  bool update(Graph& graph);
  void drop(Graph& graph);
  void keep(const PlainLaunch& launch, std::span<const std::byte> parameters);
  std::span<const std::byte> parameters_of(const Held& held, const std::vector<std::byte>& store) const;

  const Driver& driver_;
  const uint64_t patience_ns_;
  policies::LaunchRuns runs_;
  std::vector<Graph> graphs_;  // by number of the run
  std::vector<Held> held_;
  std::vector<std::byte> parameters_;
  CUstream stream_ = nullptr;
  Stats& stats_;
};

}  // namespace tube::proxy
