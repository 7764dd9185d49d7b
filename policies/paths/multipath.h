// How many GPUs' links carry one host copy, and what each is expected to carry.
//
// A large copy between the host and one GPU can go over its neighbours' PCIe links too, and from
// there over NVLink (DeepPlan, EuroSys 2023; FaaSTube, section 6.1, shares the links of all GPUs by
// rates). On an H200 four links carry 177 GB/s up and 147 down for 54 of one, and more than four
// lose on the way down, as host memory is the limit (docs/decisions/0016-paths.md). So the number
// of links follows what was measured:
//
//   - A neighbour lends what its link carries beyond what its own functions need, never more than
//     reaches the GPU over NVLink, and no more than its PCIe switch has left. While large copies
//     of its own fill the link it lends nothing: each would only make the other late.
//   - All links together carry what so many links at once were measured to. A link that others
//     need must still get its need when all share evenly.
//   - A further link must add at least an eighth of what it carries itself.
//   - While a small copy of a link's owner moves, only as many links go on as leave it what it
//     carries alone: more would share the host's memory with it.
//   - Setting up several paths costs time: the count that is expected to be done first is taken.
//     Cost and efficiency of each count are learnt from how long copies took (a regression over
//     the last ones, which counts relative errors), so the crossover size follows the machine.
//
// The copy's own link is always among them. Who carries which bytes is decided as the copy goes
// (pieces.h): links pull. When needs change, may_help() says whether a link must be taken back.
//
// Plain values, fixed memory, no clock; one thread at a time. A plan is a few passes over the
// links.
#pragma once

#include <cstdint>

namespace tube::policies {

inline constexpr uint32_t kMaxHostLinks = 16;
inline constexpr uint32_t kMaxHostPaths = 8;

enum class HostWay : uint8_t { kUp, kDown };  // to the GPU, from it
inline constexpr uint32_t kHostWays = 2;

struct HostLink {
  bool usable = true;
  uint32_t pcie_switch = 0;
  uint64_t alone_bytes_per_s[kHostWays] = {};   // measured while nobody else copies
  uint64_t needed_bytes_per_s[kHostWays] = {};  // its own GPU's functions' rates together
};

struct HostLinks {
  uint32_t count = 0;
  HostLink link[kMaxHostLinks];
  uint64_t switch_bytes_per_s = 0;  // of a PCIe switch, each way; 0: no bound
  // What so many links carry at once, all together; [0] is not used. 0: not measured, which is
  // interpolated; none measured: no bound.
  uint64_t together_bytes_per_s[kHostWays][kMaxHostLinks + 1] = {};
  uint64_t between_bytes_per_s[kMaxHostLinks][kMaxHostLinks] = {};  // GPU to GPU; 0: no peer path
};

struct HostPlan {
  HostWay way = HostWay::kUp;
  uint32_t count = 1;
  struct Path {
    uint32_t gpu = 0;  // whose link; the first is the copy's own
    uint64_t bytes_per_s = 0;
  };
  Path path[kMaxHostPaths];
  uint64_t bytes_per_s = 0;  // expected of all together
  // So many of these links leave a further one what it carries alone: as many go on beside a small
  // copy of an owner.
  uint32_t beside = 1;
};

class Multipath {
 public:
  struct Options {
    uint32_t most_paths = kMaxHostPaths;
    uint32_t least_gain_part = 8;  // a further link adds a 1/8 of itself
    // Until it is learnt: what a copy costs besides its bytes over one link, and each further one.
    uint64_t first_ns = 10'000;
    uint64_t further_ns = 15'000;
    // Every so many copies near the crossover take the count that seems slower, so that it is
    // measured too. 0: never.
    uint32_t probe_every = 32;
    // Always the most paths that may be, whatever copies took: for tests and measurements.
    bool always_most = false;
  };

  explicit Multipath(const HostLinks& links) : Multipath(links, Options()) {}
  Multipath(const HostLinks& links, const Options& options);

  // `filled`: a bit for each link that large copies of its own fill at the moment, the same way.
  HostPlan plan(uint32_t gpu, HostWay way, uint64_t bytes, uint32_t filled = 0);
  // What a copy took that went by this plan.
  void took(const HostPlan& plan, uint64_t bytes, uint64_t ns);

  // False: the neighbour's link has to be taken back from copies that it helps.
  bool may_help(uint32_t link, HostWay way) const;
  void set_needs(uint32_t link, HostWay way, uint64_t bytes_per_s);
  void set_usable(uint32_t link, bool usable);
  // What the link was seen to carry while nobody else copied.
  void set_alone(uint32_t link, HostWay way, uint64_t bytes_per_s);

  // From what size on so many links are expected to beat one; UINT64_MAX: never.
  uint64_t crossover_bytes(uint32_t gpu, HostWay way, uint32_t paths, uint32_t filled = 0) const;

 private:
  // Weighted sums of y (ns) over x (ns by planned rates).
  struct Sums {
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    void add(double at_x, double at_y, double weight);
  };
  struct Cost {
    double fixed_ns = 0;
    double factor = 1;  // on the ns by planned rates
  };

  uint64_t spare(uint32_t link, HostWay way) const;
  uint64_t together(HostWay way, uint32_t links) const;
  uint64_t rate_of(const HostPlan& plan) const;
  bool needs_kept(const HostPlan& plan) const;
  uint32_t beside(HostWay way) const;
  uint64_t switch_left(const HostPlan& plan, uint32_t pcie_switch) const;
  uint32_t best_neighbour(const HostPlan& plan, uint32_t filled, uint64_t* bytes_per_s) const;
  // plans[k - 1] has k paths; returns how many plans there are.
  uint32_t candidates(uint32_t gpu, HostWay way, uint32_t filled,
                      HostPlan (&plans)[kMaxHostPaths]) const;
  uint32_t busy(const HostPlan& plan) const;
  Cost cost(HostWay way, uint32_t paths) const;
  double expected_ns(const HostPlan& plan, uint64_t bytes) const;

  HostLinks links_;
  Options options_;
  Sums measured_[kHostWays][kMaxHostPaths];
  uint32_t near_[kHostWays] = {};  // copies near the crossover since the last probe
};

}  // namespace tube::policies
