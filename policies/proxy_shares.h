// Whether a proxy has had more of a GPU than its weight gives it, while other proxies want it, too.
//
// Proxies are contexts, and the hardware gives contexts with work equal slices of its time,
// whatever their weights and however long their kernels are. So a proxy that is ahead of another
// one holds its long launches for a moment. What counts is what each had while both wanted the
// GPU, divided by its weight: who was away has saved nothing up, and owes nothing. What a launch
// takes says little, beside another proxy's it takes twice as long: a proxy whose functions were
// first measured so seemed to use twice as much as it did (0.38 of an H200 in place of 0.5). So
// each look divides the time since the last one among those who had a launch in flight then.
//
// No hold lasts: a proxy that was ahead for `most_ns` is so no longer, whatever the others did
// meanwhile. Each proxy decides for itself, out of what all of them count in the machine's file.
//
// Plain values: no clock, no lock. A decision costs a pass over the other proxies.
#pragma once

#include <cstdint>
#include <map>
#include <span>

namespace tube::policies {

inline constexpr uint32_t kProxyWeight = 100, kMostProxyWeight = 10'000;

struct ProxyUse {
  uint64_t id = 0;
  uint32_t weight = kProxyWeight;
  bool wants = false;  // it has a long launch that runs or waits
  bool runs = false;   // that runs
};

class ProxyShares {
 public:
  struct Options {
    uint64_t lead_ns = 10'000'000;   // so far it may be ahead, at the usual weight
    uint64_t most_ns = 100'000'000;  // at a time
  };
  explicit ProxyShares(const Options& options) : options_(options) {}

  // Now. Whether its long launches wait for a moment.
  bool ahead(const ProxyUse& own, std::span<const ProxyUse> others, uint64_t now_ns);

 private:
  struct Other {
    int64_t lead_ns = 0;  // of this proxy over it
    bool wants = false;   // and runs: at the last look
    bool runs = false;
    bool seen = false;
  };

  const Options options_;
  uint64_t looked_ns_ = 0;
  bool own_runs_ = false;        // then
  uint64_t ahead_since_ns_ = 0;  // 0: it is not
  std::map<uint64_t, Other> others_;
};

}  // namespace tube::policies
