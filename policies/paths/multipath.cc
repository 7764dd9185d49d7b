#include "policies/paths/multipath.h"

#include <algorithm>

namespace tube::policies {
namespace {

constexpr uint32_t kNobody = 0xffffffffu;
constexpr double kFades = 1 - 1.0 / 32;  // of what was measured before, with each copy
// Two made-up copies, of none and of a millisecond's bytes, keep the regression defined where all
// copies have one size.
constexpr double kPriorNs = 1e6, kPriorWeight = 0.5;

uint32_t index(HostWay way) { return static_cast<uint32_t>(way); }
uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

}  // namespace

// Weights are relative: an error of a percent counts the same in a short and in a long copy.
void Multipath::Sums::add(double at_x, double at_y, double weight) {
  const double by = weight / (at_y * at_y);
  w += by;
  x += by * at_x;
  y += by * at_y;
  xx += by * at_x * at_x;
  xy += by * at_x * at_y;
}

Multipath::Multipath(const HostLinks& links, const Options& options)
    : links_(links), options_(options) {
  links_.count = std::min(links_.count, kMaxHostLinks);
  options_.most_paths = std::clamp(options_.most_paths, 1u, kMaxHostPaths);
  options_.least_gain_part = std::max(options_.least_gain_part, 1u);
  options_.first_ns = std::max<uint64_t>(options_.first_ns, 1);
}

void Multipath::set_needs(uint32_t link, HostWay way, uint64_t bytes_per_s) {
  if (link < links_.count) links_.link[link].needed_bytes_per_s[index(way)] = bytes_per_s;
}

void Multipath::set_usable(uint32_t link, bool usable) {
  if (link < links_.count) links_.link[link].usable = usable;
}

void Multipath::set_alone(uint32_t link, HostWay way, uint64_t bytes_per_s) {
  if (link < links_.count) links_.link[link].alone_bytes_per_s[index(way)] = bytes_per_s;
}

// ---- What links can carry.

uint64_t Multipath::spare(uint32_t link, HostWay way) const {
  const HostLink& l = links_.link[link];
  return minus(l.alone_bytes_per_s[index(way)], l.needed_bytes_per_s[index(way)]);
}

bool Multipath::may_help(uint32_t link, HostWay way) const {
  if (link >= links_.count || !links_.link[link].usable) return false;
  const uint64_t alone = links_.link[link].alone_bytes_per_s[index(way)];
  return spare(link, way) >= std::max<uint64_t>(alone / options_.least_gain_part, 1);
}

uint64_t Multipath::together(HostWay way, uint32_t links) const {
  const uint64_t* measured = links_.together_bytes_per_s[index(way)];
  if (measured[links] != 0) return measured[links];
  uint32_t below = 0, above = 0;
  for (uint32_t k = 1; k <= kMaxHostLinks; ++k) {
    if (measured[k] == 0) continue;
    if (k < links) below = k;
    else if (above == 0) above = k;
  }
  if (above == 0) return below == 0 ? UINT64_MAX : measured[below];
  if (below == 0) return measured[above] / above * links;
  const double part = static_cast<double>(links - below) / (above - below);
  const double low = static_cast<double>(measured[below]);
  return static_cast<uint64_t>(low + part * (static_cast<double>(measured[above]) - low));
}

// How many links are in use: those of this plan, and those whose owners need them.
uint32_t Multipath::busy(const HostPlan& plan) const {
  uint32_t count = plan.count;
  for (uint32_t l = 0; l < links_.count; ++l) {
    if (links_.link[l].needed_bytes_per_s[index(plan.way)] == 0) continue;
    count += std::none_of(plan.path, plan.path + plan.count,
                          [l](const HostPlan::Path& p) { return p.gpu == l; });
  }
  return count;
}

// When links want more than host memory gives, each gets the same: nobody's need may be more.
bool Multipath::needs_kept(const HostPlan& plan) const {
  const uint32_t links = busy(plan);
  const uint64_t each = together(plan.way, links) / links;
  for (uint32_t l = 0; l < links_.count; ++l) {
    const HostLink& link = links_.link[l];
    const uint64_t need =
        std::min(link.needed_bytes_per_s[index(plan.way)], link.alone_bytes_per_s[index(plan.way)]);
    if (need > each) return false;
  }
  return true;
}

// "What it carries alone": but for an eighth, as measurements of few copies differ by as much.
uint32_t Multipath::beside(HostWay way) const {
  uint32_t count = 1;
  const uint64_t* measured = links_.together_bytes_per_s[index(way)];
  while (count + 2 <= kMaxHostLinks && measured[1] != 0 &&
         together(way, count + 2) >= measured[1] / 8 * 7 * (count + 2))
    ++count;
  return count;
}

uint64_t Multipath::rate_of(const HostPlan& plan) const {
  uint64_t sum = 0, needed = 0;
  for (uint32_t i = 0; i < plan.count; ++i) sum += plan.path[i].bytes_per_s;
  for (uint32_t l = 0; l < links_.count; ++l)
    needed += links_.link[l].needed_bytes_per_s[index(plan.way)];
  return std::max<uint64_t>(std::min(sum, minus(together(plan.way, busy(plan)), needed)), 1);
}

uint64_t Multipath::switch_left(const HostPlan& plan, uint32_t pcie_switch) const {
  if (links_.switch_bytes_per_s == 0) return UINT64_MAX;
  uint64_t used = 0;
  for (uint32_t l = 0; l < links_.count; ++l)
    if (links_.link[l].pcie_switch == pcie_switch)
      used += links_.link[l].needed_bytes_per_s[index(plan.way)];
  for (uint32_t i = 0; i < plan.count; ++i)
    if (links_.link[plan.path[i].gpu].pcie_switch == pcie_switch) used += plan.path[i].bytes_per_s;
  return minus(links_.switch_bytes_per_s, used);
}

// ---- The plan.

uint32_t Multipath::best_neighbour(const HostPlan& plan, uint32_t filled,
                                   uint64_t* bytes_per_s) const {
  const uint32_t gpu = plan.path[0].gpu;
  uint32_t best = kNobody;
  *bytes_per_s = 0;
  for (uint32_t l = 0; l < links_.count; ++l) {
    const bool taken = std::any_of(plan.path, plan.path + plan.count,
                                   [l](const HostPlan::Path& p) { return p.gpu == l; });
    if (taken || (filled >> l & 1) != 0 || !may_help(l, plan.way)) continue;
    const uint64_t over = plan.way == HostWay::kUp ? links_.between_bytes_per_s[l][gpu]
                                                   : links_.between_bytes_per_s[gpu][l];
    const uint64_t rate =
        std::min({spare(l, plan.way), over, switch_left(plan, links_.link[l].pcie_switch)});
    if (rate <= *bytes_per_s) continue;
    *bytes_per_s = rate;
    best = l;
  }
  return best;
}

uint32_t Multipath::candidates(uint32_t gpu, HostWay way, uint32_t filled,
                               HostPlan (&plans)[kMaxHostPaths]) const {
  HostPlan plan;
  plan.way = way;
  plan.beside = beside(way);
  const uint64_t own = std::min(spare(gpu, way), switch_left(plan, links_.link[gpu].pcie_switch));
  plan.count = 1;
  plan.path[0] = {gpu, std::max<uint64_t>(own, 1)};
  plan.bytes_per_s = rate_of(plan);
  plans[0] = plan;
  uint32_t count = 1;
  while (count < options_.most_paths) {
    uint64_t rate = 0;
    const uint32_t neighbour = best_neighbour(plan, filled, &rate);
    if (neighbour == kNobody) break;
    plan.path[plan.count++] = {neighbour, rate};
    plan.bytes_per_s = rate_of(plan);
    const uint64_t least = plans[count - 1].bytes_per_s + rate / options_.least_gain_part;
    if ((plan.bytes_per_s < least && !options_.always_most) || !needs_kept(plan)) break;
    plans[count++] = plan;
  }
  return count;
}

HostPlan Multipath::plan(uint32_t gpu, HostWay way, uint64_t bytes, uint32_t filled) {
  if (gpu >= links_.count) return {};
  HostPlan plans[kMaxHostPaths];
  const uint32_t count = candidates(gpu, way, filled, plans);
  if (options_.always_most) return plans[count - 1];
  uint32_t best = 0;
  for (uint32_t k = 1; k < count; ++k)
    if (expected_ns(plans[k], bytes) < expected_ns(plans[best], bytes)) best = k;
  if (count == 1 || options_.probe_every == 0) return plans[best];
  const uint32_t other = best == 0 ? count - 1 : 0;
  const bool near = expected_ns(plans[other], bytes) < 2 * expected_ns(plans[best], bytes);
  if (!near || ++near_[index(way)] < options_.probe_every) return plans[best];
  near_[index(way)] = 0;
  return plans[other];
}

// ---- What copies cost.

void Multipath::took(const HostPlan& plan, uint64_t bytes, uint64_t ns) {
  if (plan.count == 0 || plan.count > kMaxHostPaths || plan.bytes_per_s == 0 || ns == 0) return;
  Sums& sums = measured_[index(plan.way)][plan.count - 1];
  for (double* sum : {&sums.w, &sums.x, &sums.y, &sums.xx, &sums.xy}) *sum *= kFades;
  const double planned_ns =
      static_cast<double>(bytes) * 1e9 / static_cast<double>(plan.bytes_per_s);
  sums.add(planned_ns, static_cast<double>(ns), 1);
}

Multipath::Cost Multipath::cost(HostWay way, uint32_t paths) const {
  Sums s = measured_[index(way)][paths - 1];
  const double prior = static_cast<double>(options_.first_ns + (paths - 1) * options_.further_ns);
  s.add(0, prior, kPriorWeight);
  s.add(kPriorNs, prior + kPriorNs, kPriorWeight);
  Cost cost;
  cost.factor = (s.w * s.xy - s.x * s.y) / (s.w * s.xx - s.x * s.x);
  cost.factor = std::clamp(cost.factor, 0.5, 20.0);
  cost.fixed_ns = std::max((s.y - cost.factor * s.x) / s.w, 0.0);
  return cost;
}

double Multipath::expected_ns(const HostPlan& plan, uint64_t bytes) const {
  const Cost c = cost(plan.way, plan.count);
  return c.fixed_ns +
         c.factor * static_cast<double>(bytes) * 1e9 / static_cast<double>(plan.bytes_per_s);
}

uint64_t Multipath::crossover_bytes(uint32_t gpu, HostWay way, uint32_t paths,
                                    uint32_t filled) const {
  if (gpu >= links_.count || paths < 2) return 0;
  HostPlan plans[kMaxHostPaths];
  if (candidates(gpu, way, filled, plans) < paths) return UINT64_MAX;
  const double fixed_one = expected_ns(plans[0], 0), fixed = expected_ns(plans[paths - 1], 0);
  constexpr uint64_t kUnit = 1u << 30;
  const double gained =
      (expected_ns(plans[0], kUnit) - fixed_one) - (expected_ns(plans[paths - 1], kUnit) - fixed);
  if (gained <= 0) return UINT64_MAX;
  if (fixed <= fixed_one) return 0;
  return static_cast<uint64_t>((fixed - fixed_one) / gained * static_cast<double>(kUnit));
}

}  // namespace tube::policies
