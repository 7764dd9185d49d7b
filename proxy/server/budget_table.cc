// The budgets of the proxy (common/budget_table.h) as use against limit, for `status`. Server's
// thread.
#include "proxy/common/budget_table.h"

#include <sys/resource.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "proxy/common/client_limits.h"
#include "proxy/common/descriptors.h"
#include "proxy/server/server.h"

namespace tube::proxy {

using nlohmann::json;

namespace {

// `client` 0: one may have all of it. `limit` 0: there is none.
struct Use {
  uint64_t used = 0, limit = 0, client = 0;
};

// What the system gives the user; one session and one maker of staging chunks for each function.
uint64_t most_threads() {
  constexpr uint64_t kOfFunctions = uint64_t{2} * limits::kClients, kOwn = 32;
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return std::min<uint64_t>(kOfFunctions + kOwn, known ? limit.rlim_cur : UINT64_MAX);
}

}  // namespace

uint64_t Server::session_cpu_ms() const {
  std::lock_guard lock(mutex_);
  uint64_t ns = 0;
  for (const auto& [id, session] : sessions_) ns += session->cpu().used_ns();
  return ns / 1'000'000;
}

json Server::budget_status() {
  const auto use = [this](Budget budget) -> Use {
    const auto host = [this](HostUse of, uint64_t client = 0) {
      return Use{host_.held_bytes(of), host_.budget().total_bytes, client};
    };
    switch (budget) {
      case Budget::kFunctions: {
        std::lock_guard lock(mutex_);
        return {limits::kClients - places(Place::kFree), limits::kClients, 1};
      }
      case Budget::kHostMemory: return {host_.held_bytes(), host_.budget().total_bytes, 0};
      case Budget::kPinned: return host(HostUse::kPinned, limits::kPinnedBytes);
      case Budget::kSegments: return host(HostUse::kSegments, abi::kSegmentBytes);
      case Budget::kImages: return host(HostUse::kImages);
      case Budget::kEvicted:
        return {host_.held_bytes(HostUse::kEvicted),
                std::min(arena_.most_bytes(), host_.budget().total_bytes), 0};
      case Budget::kRegisteredFiles: return host(HostUse::kFiles, HostPages::most_bytes());
      case Budget::kRegisteredMappings:
        return {HostPages::mappings_of_all(), HostPages::most_mappings_of_all(),
                HostPages::most_mappings()};
      case Budget::kDescriptors:
        return {open_descriptors(), descriptor_limit() - descriptor_headroom(), 0};
      case Budget::kThreads: return {running_threads(), most_threads(), 2};
      case Budget::kSessionCpu: return {session_cpu_ms(), 0, 0};
      case Budget::kGreetings:
        return {greeting_.size(), limits::kGreetings, limits::kGreetingsOfOne};
      case Budget::kControlClients: return {control_.size(), limits::kControlClients, 0};
      case Budget::kBrokerClients: return {brokered_.size(), limits::kBrokerClients, 0};
      case Budget::kLogLines: return {log_lines_left_out(), 0, 0};
      case Budget::kCount: break;
    }
    return {};
  };
  json list = json::array();
  for (const BudgetEntry& entry : kBudgets) {
    const Use now = use(entry.budget);
    list.push_back({{"name", entry.name},
                    {"unit", entry.unit},
                    {"used", now.used},
                    {"limit", now.limit != 0 ? json(now.limit) : json()},
                    {"client_limit", now.client != 0 ? json(now.client) : json()},
                    {"refused", entry.refused}});
  }
  return list;
}

}  // namespace tube::proxy
