#include "policies/paths/placement.h"

#include <algorithm>
#include <tuple>

namespace tube::policies {
namespace {

class Search {
 public:
  Search(const PlacementGpus& gpus, const PlacementPattern& pattern, PlacementScore score,
         uint64_t most_tries)
      : gpus_(gpus), pattern_(pattern), score_(score), most_tries_(most_tries) {
    for (uint32_t g = 0; g < gpus.count; ++g) {
      free_[g] = gpus.free_share[g];
      for (uint32_t h = 0; h < gpus.count; ++h)
        if (g != h) fastest_ = std::max(fastest_, gpus.between_bytes_per_s[g][h]);
    }
  }

  Placement run() {
    put(0, 0, 0);
    best_.tries = tries_;
    return best_;
  }

  Placement evaluate(const uint32_t (&gpu)[kMaxFunctions]) {
    Placement p;
    p.found = true;
    std::copy(gpu, gpu + kMaxFunctions, p.gpu);
    for (uint32_t f = 0; f < pattern_.functions; ++f) {
      now_.gpu[f] = gpu[f];
      add_passes(f, &p.time_ns, &p.aggregated_bytes_per_s);
      used_ |= 1u << gpu[f];
    }
    p.preserved_bytes_per_s = preserved();
    return p;
  }

 private:
  uint64_t rate(uint32_t from, uint32_t to) const {
    if (from == kHost) return gpus_.up_bytes_per_s[now_.gpu[to]];
    if (to == kHost) return gpus_.down_bytes_per_s[now_.gpu[from]];
    return gpus_.between_bytes_per_s[now_.gpu[from]][now_.gpu[to]];
  }

  // What the function passes to and gets from those before it, and the host.
  void add_passes(uint32_t function, uint64_t* time_ns, uint64_t* aggregated) const {
    for (uint32_t i = 0; i < pattern_.passes; ++i) {
      const PassedData& pass = pattern_.pass[i];
      const uint32_t other = pass.from == function ? pass.to : pass.from;
      if (pass.from != function && pass.to != function) continue;
      if (other != kHost && other >= function) continue;
      if (other != kHost && now_.gpu[other] == now_.gpu[function]) {
        *aggregated += fastest_;
        continue;
      }
      const uint64_t bytes_per_s = rate(pass.from, pass.to);
      if (other != kHost) *aggregated += bytes_per_s;
      const double ns = bytes_per_s == 0 ? 1e15
                                         : static_cast<double>(pass.bytes) * 1e9 /
                                               static_cast<double>(bytes_per_s);
      *time_ns += static_cast<uint64_t>(ns);
    }
  }

  uint64_t preserved() const {
    uint64_t sum = 0;
    for (uint32_t a = 0; a < gpus_.count; ++a)
      for (uint32_t b = 0; b < gpus_.count; ++b)
        if (a != b && stays_free(a) && stays_free(b)) sum += gpus_.between_bytes_per_s[a][b];
    return sum;
  }
  bool stays_free(uint32_t g) const {
    return (used_ >> g & 1) == 0 && gpus_.free_share[g] >= kWholeGpu;
  }

  using Key = std::tuple<uint64_t, uint64_t, uint64_t>;  // lower is better
  Key key(const Placement& p) const {
    const uint64_t less = UINT64_MAX - p.aggregated_bytes_per_s;
    const uint64_t kept = UINT64_MAX - p.preserved_bytes_per_s;
    switch (score_) {
      case PlacementScore::kTime: return {p.time_ns, kept, less};
      case PlacementScore::kAggregated: return {less, kept, p.time_ns};
      case PlacementScore::kPreserved: return {kept, less, p.time_ns};
    }
    return {};
  }

  // No placement of the functions that are left makes it better than the best one.
  bool hopeless(uint32_t function, uint64_t time_ns, uint64_t aggregated) const {
    if (!best_.found) return false;
    if (score_ == PlacementScore::kTime) return time_ns > best_.time_ns;
    if (score_ == PlacementScore::kPreserved) return preserved() < best_.preserved_bytes_per_s;
    for (uint32_t i = 0; i < pattern_.passes; ++i) {
      const PassedData& pass = pattern_.pass[i];
      if (pass.from == kHost || pass.to == kHost) continue;
      if (std::max(pass.from, pass.to) >= function) aggregated += fastest_;
    }
    return aggregated < best_.aggregated_bytes_per_s;
  }

  void put(uint32_t function, uint64_t time_ns, uint64_t aggregated) {
    if (hopeless(function, time_ns, aggregated)) return;
    if (function == pattern_.functions) return leaf(time_ns, aggregated);
    for (uint32_t g = 0; g < gpus_.count; ++g) {
      const uint32_t share = pattern_.share[function];
      if (free_[g] < share || free_[g] == 0) continue;
      if (tries_ == most_tries_) {
        best_.exact = false;
        return;
      }
      ++tries_;
      const uint32_t used = used_;
      now_.gpu[function] = g;
      used_ |= 1u << g;
      free_[g] -= share;
      uint64_t time = time_ns, sum = aggregated;
      add_passes(function, &time, &sum);
      put(function + 1, time, sum);
      free_[g] += share;
      used_ = used;
    }
  }

  void leaf(uint64_t time_ns, uint64_t aggregated) {
    now_.time_ns = time_ns;
    now_.aggregated_bytes_per_s = aggregated;
    now_.preserved_bytes_per_s = preserved();
    if (best_.found && key(now_) >= key(best_)) return;
    const bool exact = best_.exact;
    best_ = now_;
    best_.found = true;
    best_.exact = exact;
  }

  const PlacementGpus& gpus_;
  const PlacementPattern& pattern_;
  const PlacementScore score_;
  const uint64_t most_tries_;
  uint64_t fastest_ = 0;
  uint64_t tries_ = 0;
  uint32_t free_[kMaxPlacedGpus] = {};
  uint32_t used_ = 0;  // set of GPUs
  Placement now_, best_;
};

bool sound(const PlacementGpus& gpus, const PlacementPattern& pattern) {
  if (gpus.count > kMaxPlacedGpus || pattern.functions > kMaxFunctions || pattern.functions == 0 ||
      pattern.passes > kMaxPasses)
    return false;
  return std::all_of(pattern.pass, pattern.pass + pattern.passes, [&](const PassedData& p) {
    return (p.from == kHost || p.from < pattern.functions) &&
           (p.to == kHost || p.to < pattern.functions) && p.from != p.to;
  });
}

}  // namespace

Placement place(const PlacementGpus& gpus, const PlacementPattern& pattern, PlacementScore score,
                uint64_t most_tries) {
  if (!sound(gpus, pattern)) return {};
  return Search(gpus, pattern, score, most_tries).run();
}

Placement score_of(const PlacementGpus& gpus, const PlacementPattern& pattern,
                   const uint32_t (&gpu)[kMaxFunctions]) {
  if (!sound(gpus, pattern) ||
      std::any_of(gpu, gpu + pattern.functions, [&](uint32_t g) { return g >= gpus.count; }))
    return {};
  return Search(gpus, pattern, PlacementScore::kTime, 0).evaluate(gpu);
}

}  // namespace tube::policies
