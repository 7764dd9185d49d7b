#include "policies/proxy_shares.h"

#include <algorithm>

namespace tube::policies {
namespace {

int64_t weighed(uint64_t ns, uint32_t weight) {
  return static_cast<int64_t>(ns * kProxyWeight / std::clamp(weight, 1u, kMostProxyWeight));
}

}  // namespace

bool ProxyShares::ahead(const ProxyUse& own, std::span<const ProxyUse> others, uint64_t now_ns) {
  // Who has not looked for long wanted nothing meanwhile.
  const uint64_t passed_ns = looked_ns_ != 0 ? std::min(now_ns - looked_ns_, options_.most_ns) : 0;
  looked_ns_ = now_ns;
  uint64_t running = own_runs_;
  for (const auto& [id, other] : others_) running += other.runs;
  const uint64_t each_ns = passed_ns / std::max<uint64_t>(running, 1);
  const int64_t own_ns = own_runs_ ? weighed(each_ns, own.weight) : 0;
  own_runs_ = own.runs;
  bool ahead = false;
  for (auto& [id, other] : others_) other.seen = false;
  for (const ProxyUse& now : others) {
    Other& other = others_[now.id];
    other.seen = true;
    if (other.wants) other.lead_ns += own_ns - (other.runs ? weighed(each_ns, now.weight) : 0);
    other.wants = now.wants && own.wants;
    other.runs = now.wants && now.runs;
    if (!other.wants) other.lead_ns = 0;
    // Once it is ahead it waits until the other one has caught up.
    ahead = ahead ||
            other.lead_ns > (ahead_since_ns_ != 0 ? 0 : static_cast<int64_t>(options_.lead_ns));
  }
  std::erase_if(others_, [](const auto& each) { return !each.second.seen; });
  if (!ahead) {
    ahead_since_ns_ = 0;
    return false;
  }
  if (ahead_since_ns_ == 0) ahead_since_ns_ = now_ns;
  if (now_ns - ahead_since_ns_ < options_.most_ns) return true;
  for (auto& [id, other] : others_) other.lead_ns = 0;
  ahead_since_ns_ = 0;
  return false;
}

}  // namespace tube::policies
