// What the pool holds beside what is in use, in virtual time: six functions allocate and free as
// models do while they infer, and requests come as in a trace. No GPU, no threads, no clock.
//
//   pool_model TRACE STEPS STEP_MS SPEEDUP      a line for each policy, JSON
//
// A request goes to one of six functions in turn, at a moment drawn evenly from its step (the trace
// counts requests a step). It allocates and frees blocks by its function's profile: {begin, end in
// us, MiB}, made up from the sizes of the models' layers with the next layer's input alive beside
// its output. `held` is in use or idle, integrated over time; making a block and giving one back
// are counted. Looks at idle blocks come every kPoolLookNs, as in the proxy.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "policies/memory/pool_size.h"

namespace {

using tube::policies::PoolDemand;
using tube::policies::PoolPolicy;
constexpr uint64_t kMiB = 1u << 20;

struct Use {
  uint64_t begin_us, end_us, mebibytes;
};
// Chains of layers, whose activations shrink or stay, and the workspace of convolutions.
const std::vector<Use> kFunctions[] = {
    // ResNet-50, batch 8
    {{0, 900, 26},
     {200, 1300, 26},
     {300, 800, 64},
     {900, 2100, 52},
     {1300, 2600, 26},
     {2100, 3200, 26},
     {2300, 2900, 32},
     {2600, 3600, 12},
     {3200, 4000, 6}},
    // VGG-11, batch 8
    {{0, 1200, 100},
     {400, 1100, 128},
     {1000, 2300, 50},
     {2000, 3400, 26},
     {2100, 3000, 64},
     {3300, 4600, 12},
     {4500, 5200, 2}},
    // BERT base, 128 tokens, batch 8
    {{0, 5000, 4},
     {300, 1500, 12},
     {600, 1600, 8},
     {1500, 2700, 12},
     {1900, 2900, 16},
     {2700, 3900, 12},
     {3000, 4100, 16},
     {3900, 5000, 12}},
    // GPT-2, a prompt of 64
    {{0, 6000, 6}, {400, 2000, 10}, {1500, 3300, 10}, {3000, 4800, 10}, {4600, 6000, 24}},
    // YOLO, one frame
    {{0, 700, 48},
     {300, 1500, 48},
     {1200, 2500, 24},
     {2100, 3600, 24},
     {3300, 4500, 12},
     {4200, 5300, 12}},
    // ViT base, batch 8
    {{0, 4400, 5}, {200, 1600, 14}, {1400, 2800, 14}, {2600, 4000, 14}, {3600, 4400, 5}},
};
constexpr size_t kCount = std::size(kFunctions);

struct Event {
  uint64_t at_ns;
  enum Kind : uint8_t { kFree, kAllocate, kLook } kind;
  size_t function;
  uint64_t bytes;
  bool operator>(const Event& other) const {
    return std::pair(at_ns, kind) > std::pair(other.at_ns, other.kind);
  }
};

class Model {
 public:
  explicit Model(PoolPolicy policy) : policy_(policy) {}

  void run(std::vector<Event> events) {
    uint64_t end_ns = 0;
    for (const Event& event : events) end_ns = std::max(end_ns, event.at_ns);
    for (uint64_t at = 0; at < end_ns; at += tube::policies::kPoolLookNs)
      events.push_back({at, Event::kLook, 0, 0});
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return b > a; });
    for (const Event& event : events) {
      integrate(event.at_ns);
      step(event);
    }
  }

  void print(const char* last) const {
    printf("{\"policy\":\"%s\",\"held_over_live\":%.4f,\"allocations\":%" PRIu64
           ",\"made\":%" PRIu64 ",\"given_back\":%" PRIu64 ",\"peak_held\":%" PRIu64
           ",\"peak_live\":%" PRIu64 "}%s\n",
           tube::policies::pool_policy_name(policy_), held_area_ / live_area_, allocations_, made_,
           given_back_, peak_held_, peak_live_, last);
  }

 private:
  void integrate(uint64_t now_ns) {
    const auto passed = static_cast<double>(now_ns - now_ns_);
    held_area_ += passed * static_cast<double>(live_ + idle_);
    live_area_ += passed * static_cast<double>(live_);
    now_ns_ = now_ns;
  }
  void step(const Event& event) {
    PoolDemand& demand = demand_[event.function];
    auto& idle = idle_blocks_[{event.function, event.bytes}];
    switch (event.kind) {
      case Event::kAllocate:
        ++allocations_;
        if (idle.empty()) {
          ++made_;
          demand.missed(0, event.bytes, event.at_ns);
        } else {
          idle.pop_back();
          idle_ -= event.bytes;
          demand.found(0, event.bytes, event.at_ns);
        }
        live_ += event.bytes;
        break;
      case Event::kFree:
        demand.freed(0, event.bytes);
        live_ -= event.bytes;
        idle.push_back(event.at_ns);
        idle_ += event.bytes;
        break;
      case Event::kLook: look(event.at_ns); break;
    }
    peak_live_ = std::max(peak_live_, live_);
    peak_held_ = std::max(peak_held_, live_ + idle_);
  }
  void look(uint64_t now_ns) {
    if (policy_ == PoolPolicy::kStatic) return;
    for (auto& [of, idle] : idle_blocks_) {
      const auto& [function, bytes] = of;
      const uint32_t worth = demand_[function].worth(0, bytes, now_ns);
      while (!idle.empty()) {
        const uint64_t since = idle.front();
        const bool goes = policy_ == PoolPolicy::kKeep ? tube::policies::pool_expired(since, now_ns)
                                                       : idle.size() > worth;
        if (!goes) break;
        idle.erase(idle.begin());
        idle_ -= bytes;
        ++given_back_;
      }
    }
  }

  const PoolPolicy policy_;
  PoolDemand demand_[kCount];
  // By function and size: since when, the oldest first.
  std::map<std::pair<size_t, uint64_t>, std::vector<uint64_t>> idle_blocks_;
  uint64_t now_ns_ = 0, live_ = 0, idle_ = 0, peak_live_ = 0, peak_held_ = 0;
  uint64_t allocations_ = 0, made_ = 0, given_back_ = 0;
  double held_area_ = 0, live_area_ = 0;
};

std::vector<Event> events_of(std::ifstream& trace, uint64_t steps, double step_ms, double speedup) {
  std::vector<Event> events;
  std::mt19937_64 random(17);
  std::uniform_real_distribution<double> when(0, 1);
  const double step_ns = step_ms * 1e6 / speedup;
  uint64_t requests = 0, function = 0;
  for (uint64_t step = 0; step < steps && trace >> requests; ++step) {
    for (uint64_t i = 0; i < requests; ++i, ++function) {
      const auto at = static_cast<uint64_t>((static_cast<double>(step) + when(random)) * step_ns);
      const size_t which = function % kCount;
      for (const Use& use : kFunctions[which]) {
        const uint64_t bytes = use.mebibytes * kMiB;
        events.push_back({at + use.begin_us * 1000, Event::kAllocate, which, bytes});
        events.push_back({at + use.end_us * 1000, Event::kFree, which, bytes});
      }
    }
  }
  return events;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  std::ifstream trace(argv[1]);
  const auto events =
      events_of(trace, strtoull(argv[2], nullptr, 10), atof(argv[3]), atof(argv[4]));
  if (events.empty()) return 1;
  puts("[");
  for (const PoolPolicy policy : {PoolPolicy::kDemand, PoolPolicy::kKeep, PoolPolicy::kStatic}) {
    Model model(policy);
    model.run(events);
    model.print(policy == PoolPolicy::kStatic ? "" : ",");
  }
  puts("]");
  return 0;
}
