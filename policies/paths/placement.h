// On which GPUs the functions of a workflow go, so that the data between them goes over fast links.
//
// After MAPA (multi-accelerator pattern allocation, SC 2021): a pattern (functions, and which
// passes data to which) is matched onto the graph of the GPUs that have room, each match gets a
// score, the best one is taken. MAPA's two scores that come from the topology alone are here,
// "aggregated" and "preserved" bandwidth. Its third is a regression over the effective bandwidth of
// NCCL's rings, which our copies are not; ours is the time that one request's data takes.
//
//   kTime        sum of bytes / bandwidth over what is passed; ties: what is preserved
//   kAggregated  sum of the bandwidths between functions that pass data; ties: preserved
//   kPreserved   sum of the bandwidths among the GPUs that stay free; ties: aggregated
//
// Other than in MAPA, functions may share a GPU when their shares fit: data that stays on a GPU
// costs nothing. Every match is looked at, less those that cannot become the best any more (branch
// and bound): 8 functions on 8 GPUs are 40,320 at most. Beyond `most_tries` the best so far is
// taken and marked.
//
// Pure: no state, no clock, nothing allocated. Not for a hot path: up to milliseconds.
#pragma once

#include <cstdint>

namespace tube::policies {

inline constexpr uint32_t kMaxPlacedGpus = 16;
inline constexpr uint32_t kMaxFunctions = 16;
inline constexpr uint32_t kMaxPasses = 64;
inline constexpr uint32_t kHost = 0xffffffffu;  // as one end of a pass
inline constexpr uint32_t kWholeGpu = 1000;     // shares are parts of this

struct PlacementGpus {
  uint32_t count = 0;
  uint32_t free_share[kMaxPlacedGpus] = {};  // of kWholeGpu
  // From, to: over the way that data takes, which without a peer path is host memory.
  uint64_t between_bytes_per_s[kMaxPlacedGpus][kMaxPlacedGpus] = {};
  uint64_t up_bytes_per_s[kMaxPlacedGpus] = {};    // from the host
  uint64_t down_bytes_per_s[kMaxPlacedGpus] = {};  // to it
};

struct PassedData {
  uint32_t from = 0, to = 0;  // functions, or kHost for one of them
  uint64_t bytes = 0;
};

struct PlacementPattern {
  uint32_t functions = 0;
  uint32_t share[kMaxFunctions] = {};  // of a GPU that the function needs; 0: nothing but a place
  uint32_t passes = 0;
  PassedData pass[kMaxPasses];
};

enum class PlacementScore : uint8_t { kTime, kAggregated, kPreserved };

struct Placement {
  bool found = false;                   // false: the free shares do not suffice
  bool exact = true;                    // false: the search was cut short
  uint32_t gpu[kMaxFunctions] = {};     // of each function
  uint64_t time_ns = 0;                 // one request's data, one pass after the other
  uint64_t aggregated_bytes_per_s = 0;  // a pass on one GPU counts as the machine's fastest link
  uint64_t preserved_bytes_per_s = 0;   // both directions
  uint64_t tries = 0;                   // functions put onto GPUs during the search
};

inline constexpr uint64_t kMostTries = 2'000'000;

// Of equals, the placement that comes first when GPUs are written in the order of the functions.
Placement place(const PlacementGpus& gpus, const PlacementPattern& pattern, PlacementScore score,
                uint64_t most_tries = kMostTries);

// The scores of a placement that somebody else chose.
Placement score_of(const PlacementGpus& gpus, const PlacementPattern& pattern,
                   const uint32_t (&gpu)[kMaxFunctions]);

}  // namespace tube::policies
