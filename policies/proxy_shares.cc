#include "policies/proxy_shares.h"

#include <algorithm>
#include <utility>

namespace tube::policies {
namespace {

int64_t weighed(uint64_t ns, uint32_t weight) {
  return static_cast<int64_t>(ns * kProxyWeight / std::clamp(weight, 1u, kMostProxyWeight));
}

}  // namespace

bool ProxyShares::ahead(const ProxyUse& own, std::span<const ProxyUse> others, uint64_t now_ns) {
  const uint64_t own_ns =
      own.used_ns - std::min(own.used_ns, std::exchange(own_used_ns_, own.used_ns));
  bool ahead = false;
  for (auto& [id, other] : others_) other.seen = false;
  for (const ProxyUse& now : others) {
    const auto [found, is_new] = others_.try_emplace(now.id, Other{now.used_ns, 0, true});
    Other& other = found->second;
    const uint64_t other_ns =
        now.used_ns - std::min(now.used_ns, std::exchange(other.used_ns, now.used_ns));
    other.seen = true;
    if (is_new || !now.wants || !own.wants) {
      other.lead_ns = 0;
      continue;
    }
    other.lead_ns += weighed(own_ns, own.weight) - weighed(other_ns, now.weight);
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
