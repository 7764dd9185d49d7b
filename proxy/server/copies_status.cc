// What the control socket says of copies: for each function and direction how many went which way
// and why, and what the lanes gave it.
#include <nlohmann/json.hpp>

#include "proxy/server/server.h"

namespace tube::proxy {
namespace {

using nlohmann::json;
using policies::CopyReason;

json ways_json(const CopyCounts::Reasons& reasons) {
  json ways = json::object();
  for (size_t i = 0; i < reasons.size(); ++i) {
    const uint64_t copies = reasons[i].copies.load(std::memory_order_relaxed);
    if (copies == 0) continue;
    ways[std::string(policies::copy_reason_name(static_cast<CopyReason>(i)))] = {
        {"copies", copies}, {"bytes", reasons[i].bytes.load(std::memory_order_relaxed)}};
  }
  return ways;
}

json lane_json(const policies::LinkUse& use) {
  return {{"copies", use.copies},
          {"bytes", use.bytes},
          {"pieces", use.turns},
          {"waited_us", use.waited_ns / 1000},
          {"longest_wait_us", use.longest_ns / 1000},
          {"lasted_us", use.lasted_ns / 1000},
          {"bytes_per_s", use.bytes_per_s},
          {"needed_bytes_per_s", use.needed_bytes_per_s}};
}

json others_json(const std::vector<MachineLinks::Other>& others) {
  json list = json::array();
  for (const MachineLinks::Other& other : others) {
    if (other.bytes == 0) continue;
    list.push_back({{"workflow", other.workflow},
                    {"pid", other.pid},
                    {"gpu", uuid_text(other.gpu)},
                    {"direction", other.to_gpu ? "to GPU" : "from GPU"},
                    {"bytes", other.bytes},
                    {"needed_bytes_per_s", other.needed_bytes_per_s}});
  }
  return list;
}

json several_links_json(const WideCopies::Counts& counts) {
  return {{"copies", counts.copies},
          {"bytes", counts.bytes},
          {"relayed_bytes", counts.relayed_bytes},
          {"stayed", {{"one link", counts.one_link}, {"region", counts.regions}}},
          {"failed_paths", counts.failed_paths},
          {"taken_paths", counts.taken_paths},
          {"held", counts.held},
          {"relay_bytes", counts.relay_bytes}};
}

}  // namespace

json Server::copies_of(const Session& session) {
  json directions = json::array();
  policies::LinkUse needs;
  for (const bool up : {true, false}) {
    const CopyCounts& counts = session.copies().ways();
    json lanes = json::array();
    for (uint32_t gpu = 0; gpu < gpus_.count() && shared_.copies != nullptr; ++gpu) {
      const uint64_t id = session.client().id;
      const policies::LinkUse use = copies_.link(gpu, up).use(id);
      if (use.slo_ns != 0) needs = use;
      if (use.copies != 0 || use.bytes != 0) {
        lanes.push_back(lane_json(use));
        lanes.back()["gpu"] = gpu;
      }
      if (copies_.wide() == nullptr) continue;
      const policies::LinkUse lent = copies_.link(gpu, up).use(WideCopies::guest(id));
      if (lent.bytes == 0) continue;
      lanes.push_back(lane_json(lent));
      lanes.back()["gpu"] = gpu;
      lanes.back()["lent"] = true;
    }
    directions.push_back({{"direction", up ? "to GPU" : "from GPU"},
                          {"ways", ways_json(up ? counts.up : counts.down)},
                          {"lanes", std::move(lanes)}});
  }
  return {{"id", session.client().id},
          {"pid", session.client().pid},
          {"name", session.client().name},
          {"slo_ms", needs.slo_ns / 1e6},
          {"infer_ms", needs.infer_ns / 1e6},
          {"infer_learnt", session.client().needs.infer_ns == 0 && needs.infer_ns != 0},
          {"directions", std::move(directions)}};
}

json Server::topo() {
  json gpus = json::array();
  for (uint32_t i = 0; i < gpus_.count(); ++i) {
    json peers = json::array();
    for (const CUmemAccessDesc& reach : gpus_[i].access)
      if (reach.location.id != gpus_[i].device) peers.push_back(reach.location.id);
    json gpu = {{"index", i},
                {"name", gpus_[i].name},
                {"uuid", uuid_text(gpus_[i].uuid)},
                {"peers", std::move(peers)}};
    for (const bool up : {true, false}) {
      const bool lanes = shared_.copies != nullptr;
      gpu[up ? "to_gpu_bytes_per_s" : "from_gpu_bytes_per_s"] =
          lanes ? copies_.link(i, up).measured_bytes_per_s() : 0;
    }
    gpus.push_back(std::move(gpu));
  }
  return {{"ok", true},
          {"lanes", policies::lane_use_name(options_.copies.use)},
          {"gpus", std::move(gpus)},
          {"other_proxies", others_json(copies_.others())}};
}

// What registering host memory held up: for whom, how often, the longest of them.
json Server::registration_status() {
  json list = json::array();
  for (size_t i = 0; i < static_cast<size_t>(Registrant::kCount); ++i) {
    const auto who = static_cast<Registrant>(i);
    const Registrations::Counts counts = gpus_.registrations().counts(who);
    list.push_back({{"who", registrant_name(who)},
                    {"registered", counts.added},
                    {"bytes", counts.added_bytes},
                    {"on_request", counts.on_request},
                    {"longest_ms", double(counts.longest_ns) / 1e6},
                    {"unregistered", counts.removed},
                    {"longest_removal_ms", double(counts.longest_removal_ns) / 1e6},
                    {"failed", counts.failed},
                    {"stood_back_ms", double(counts.stood_back_ns) / 1e6}});
  }
  return list;
}

json Server::copies() {
  json list = json::array();
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, session] : sessions_) list.push_back(copies_of(*session));
  }
  json answer = {{"ok", true},
                 {"policy", policies::link_order_name(options_.copies.order)},
                 {"lanes", policies::lane_use_name(options_.copies.use)},
                 {"functions", std::move(list)},
                 {"registrations", registration_status()},
                 {"other_proxies", others_json(copies_.others())}};
  if (copies_.wide() != nullptr)
    answer["several_links"] = several_links_json(copies_.wide()->counts());
  return answer;
}

}  // namespace tube::proxy
