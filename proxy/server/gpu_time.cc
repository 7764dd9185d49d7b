// What the control socket says of the GPUs' time: what each function used and has lately, what runs
// and who waits for whom, and the parts of GPUs.
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "proxy/server/server.h"
#include "proxy/server/slices_status.h"

namespace tube::proxy {
namespace {

using nlohmann::json;
using policies::HoldReason;

json launches_json(uint64_t gpu_ns, const policies::LaunchUse& use) {
  json reasons = json::object();
  for (const HoldReason reason : policies::kHoldReasons) {
    const uint64_t count = use.held_for[static_cast<size_t>(reason)];
    if (count != 0) reasons[std::string(policies::hold_reason_name(reason))] = count;
  }
  return {{"gpu_ms", double(gpu_ns) / 1e6},
          {"long", use.launches},
          {"held", use.held},
          {"held_us", use.held_ns / 1000},
          {"held_for", std::move(reasons)},
          {"longest_hold_us", use.longest_ns / 1000},
          {"holds_ran_out", use.ran_out},
          {"quiet_moments", use.quiet},
          {"quiet_wait_us", use.quiet_ns / 1000}};
}

json seen_json(const policies::LaunchSeen& seen, uint64_t now) {
  json one = {{"function", seen.launch.function},
              {"what", seen.launch.quiet ? "a call that needs the whole GPU" : "a long launch"},
              {"since_us", (now - std::min(now, seen.since_ns)) / 1000}};
  if (!seen.launch.quiet) one["expected_us"] = seen.launch.expected_ns / 1000;
  if (!seen.waits) return one;
  one["for"] = policies::hold_reason_name(seen.why);
  if (seen.behind != 0) one["behind"] = seen.behind;
  return one;
}

}  // namespace

// With mutex_, behind a look of the meter.
json Server::time_of(const Session& session) {
  const uint64_t id = session.client().id, used_ns = session.long_launches().gpu_ns();
  json time = {{"launches", launches_json(used_ns, turns_.use(id))},
               {"gpu_share", meter_.share(id, session.started_ns(), used_ns)},
               {"slices", function_slices_json(slices_, id)},
               {"priority", policies::launch_priority_name(session.client().priority)}};
  const DeadlineWatch& deadlines = session.deadlines();
  if (deadlines.on())
    time["deadlines"] = {{"slo_ms", double(session.client().needs.slo_ns) / 1e6},
                         {"steps", deadlines.steps()},
                         {"missed", deadlines.missed()}};
  return time;
}

json Server::gpu_time() {
  const uint64_t now = now_ns();
  json gpus = json::array(), list = json::array();
  for (uint32_t i = 0; i < gpus_.count(); ++i) {
    json runs = json::array(), waits = json::array();
    for (const policies::LaunchSeen& seen : turns_.seen(i))
      (seen.waits ? waits : runs).push_back(seen_json(seen, now));
    gpus.push_back({{"index", i},
                    {"name", gpus_[i].name},
                    {"runs", std::move(runs)},
                    {"waits", std::move(waits)},
                    {"slices", gpu_slices_json(slices_, i)}});
  }
  std::lock_guard lock(mutex_);
  meter_.look(now);
  for (const auto& [id, session] : sessions_) {
    list.push_back({{"id", id},
                    {"pid", session->client().pid},
                    {"name", session->client().name},
                    {"gpu", session->current_gpu()}});
    list.back().update(time_of(*session));
  }
  return {{"ok", true},
          {"policy", policies::launch_order_name(turns_.order())},
          {"gpus", std::move(gpus)},
          {"functions", std::move(list)}};
}

}  // namespace tube::proxy
