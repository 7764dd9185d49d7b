// The control socket: one JSON object per line in, one per line out. Server thread; everything it
// reads of a session is an atomic or fixed since its start.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "base/byte_size.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/descriptors.h"
#include "proxy/common/version.h"
#include "proxy/server/budgets.h"
#include "proxy/server/server.h"
#include "proxy/server/slices_status.h"
#include "sharedmem/accessors.h"
#include "sharedmem/socket.h"

namespace tube::proxy {

namespace {

using nlohmann::json;

double seconds_since(uint64_t ns) { return static_cast<double>(now_ns() - ns) / 1e9; }

json calls_json(const std::array<std::atomic<uint64_t>, wire::kCallCount>& counts) {
  json calls = json::object();
  for (uint32_t call = 0; call < wire::kCallCount; ++call) {
    if (uint64_t count = counts[call].load(std::memory_order_relaxed))
      calls[wire::call_name(call)] = count;
  }
  return calls;
}

// Per reason, the client's waits and the session's (record): how many ended while spinning, how
// many slept.
json waits_json(Session& session) {
  static constexpr std::pair<shared::WaitReason, const char*> kReasons[] = {
      {shared::WaitReason::kRingSpace, "ring_space"},
      {shared::WaitReason::kReply, "reply"},
      {shared::WaitReason::kWord, "word"},
      {shared::WaitReason::kChunk, "chunk"},
      {shared::WaitReason::kCallback, "callback"},
      {shared::WaitReason::kRecord, "record"}};
  json waits = json::object();
  for (const auto& [reason, name] : kReasons) {
    abi::WaitCounters& counters =
        reason == shared::WaitReason::kRecord ? session.session_waits() : session.client_waits();
    const uint64_t spun = shared::load_count(counters.spun[static_cast<uint32_t>(reason)]);
    const uint64_t slept = shared::load_count(counters.slept[static_cast<uint32_t>(reason)]);
    if (spun != 0 || slept != 0) waits[name] = {{"spun", spun}, {"slept", slept}};
  }
  return waits;
}

json offers_json(const BlockOffers* offers) {
  if (offers == nullptr) return json();
  const BlockOffers::Counts& counts = offers->counts();
  return {{"posted", counts.posted.load(std::memory_order_relaxed)},
          {"reused", counts.reused.load(std::memory_order_relaxed)},
          {"made", counts.made.load(std::memory_order_relaxed)},
          {"made_ahead", counts.ahead.load(std::memory_order_relaxed)},
          {"given_back", counts.given_back.load(std::memory_order_relaxed)}};
}

// Of the session's thread.
json cpu_json(const CpuWatch& cpu) {
  return {{"used_ms", cpu.used_ns() / 1'000'000},
          {"share_thousandths", cpu.share() != 0 ? json(cpu.share()) : json()},
          {"rested_ms", cpu.rested_ns() / 1'000'000}};
}

json function_json(Session& session, const char* state, json memory) {
  const Stats& stats = session.stats();
  const uint64_t records = stats.records.load(std::memory_order_relaxed);
  const uint64_t round_trips = stats.round_trips.load(std::memory_order_relaxed);
  return {{"id", session.client().id},
          {"pid", session.client().pid},
          {"name", session.client().name},
          {"gpu", session.current_gpu()},
          {"state", state},
          {"age_s", seconds_since(session.started_ns())},
          {"records", records},
          {"round_trips", round_trips},
          {"posted", records - round_trips},
          {"record_bytes", stats.record_bytes.load(std::memory_order_relaxed)},
          {"reply_bytes", stats.reply_bytes.load(std::memory_order_relaxed)},
          {"copy_bytes", stats.copy_bytes.load(std::memory_order_relaxed)},
          {"coalesced_runs", stats.runs.load(std::memory_order_relaxed)},
          {"coalesced_launches", stats.run_launches.load(std::memory_order_relaxed)},
          {"errors", stats.errors.load(std::memory_order_relaxed)},
          {"images_loaded", stats.images_loaded.load(std::memory_order_relaxed)},
          {"images_shared", stats.images_shared.load(std::memory_order_relaxed)},
          {"image_bytes", stats.image_bytes.load(std::memory_order_relaxed)},
          {"pinned_hits", stats.pinned_hits.load(std::memory_order_relaxed)},
          {"pinned_misses", stats.pinned_misses.load(std::memory_order_relaxed)},
          {"kernels_loaded", stats.kernels_loaded.load(std::memory_order_relaxed)},
          {"kernels_shared", stats.kernels_shared.load(std::memory_order_relaxed)},
          {"device_bytes", session.device_bytes()},
          {"pinned_bytes", session.pinned_bytes()},
          {"memory", std::move(memory)},
          {"memory_refusals", session.account().refusals()},
          {"blocks", offers_json(session.offers())},
          {"allocations", session.allocation_count()},
          {"streams", session.object_count(wire::Kind::kStream)},
          {"events", session.object_count(wire::Kind::kEvent)},
          {"modules",
           session.object_count(wire::Kind::kModule) + session.object_count(wire::Kind::kLibrary)},
          {"kernels", session.object_count(wire::Kind::kKernel)},
          {"graphs",
           session.object_count(wire::Kind::kGraph) + session.object_count(wire::Kind::kGraphExec)},
          {"cpu", cpu_json(session.cpu())},
          {"waits", waits_json(session)},
          {"round_trip_calls", calls_json(stats.waited_calls)},
          {"calls", calls_json(stats.calls)}};
}

json pinned_json(const PinnedPools::Counts& pinned, const policies::PinnedBudget& budget) {
  return {{"budget_bytes", budget.total_bytes},
          {"held_bytes", pinned.held_bytes},
          {"idle_bytes", pinned.idle_bytes},
          {"hits", pinned.hits},
          {"misses", pinned.misses},
          {"made_ahead", pinned.made_ahead},
          {"ready_places", pinned.ready}};
}

const char* janitor_text(Janitor::State state) {
  switch (state) {
    case Janitor::State::kIdle: return "idle";
    case Janitor::State::kHeldBack: return "held back";
    case Janitor::State::kWorking: return "working";
  }
  return "";
}

json modules_json(const ModuleCache::Counts& modules) {
  return {{"idle", modules.idle},
          {"idle_image_bytes", modules.idle_bytes},
          {"waiting_for_unload", modules.retired},
          {"kernels_early", modules.kernels_early}};
}

// nullptr: it is no request.
const std::string* verb_of(const json& request) {
  const auto verb = request.is_object() ? request.find("verb") : request.end();
  return verb != request.end() && verb->is_string() ? verb->get_ptr<const std::string*>() : nullptr;
}

}  // namespace

json Server::ping() {
  return {{"ok", true},
          {"version", kVersion},
          {"pid", getpid()},
          {"backend", options_.is_sim ? "sim" : "driver"},
          {"gpus_asked", options_.gpus},
          {"copy_policy", policies::link_order_name(options_.copies.order)},
          {"launch_policy", policies::launch_order_name(options_.launches.order)},
          {"memory", byte_limits_text(memory_limits())},
          {"function_memory", byte_limit_text(function_memory_limit())},
          {"slices", options_.slices_at_start},
          {"on_fault", options_.end_on_fault ? "end" : "wait"},
          {"faults", faults()},
          {"gpus", uuids()}};
}

bool Server::tells_states(const json& request) {
  const std::string* verb = verb_of(request);
  return verb != nullptr && (*verb == "ps" || *verb == "status");
}

std::string Server::answer(const json& request, const ControlClient& client) {
  const json reply = [&]() -> json {
    if (verb_of(request) == nullptr)
      return refusal("expected one JSON object per line with a \"verb\"");
    const std::string& verb = *verb_of(request);
    if (verb == "ping") return ping();
    if (verb == "ps")
      return {{"ok", true}, {"functions", functions(client.look->idle)}, {"faults", faults()}};
    if (verb == "status") return status(client.look->idle);
    if (verb == "copies") return copies();
    if (verb == "gpu") return gpu_time();
    if (verb == "mem") return mem();
    if (verb == "topo") return topo();
    if (verb == "store") return store_status();
    if (verb == "limit") return limit(request);
    if (verb == "seen") return seen(request, client.pid);
    if (verb == "held") return held(request);
    if (verb == "stop") {
      stopping_ = true;
      return {{"ok", true}};
    }
    return refusal(
        "unknown verb \"" + verb +
        "\"; known are ping, ps, status, copies, gpu, mem, topo, store, limit, seen, held, stop");
  }();
  return reply.dump(-1, ' ', false, json::error_handler_t::replace);
}

json Server::uuids() {
  json list = json::array();
  for (uint32_t i = 0; i < gpus_.count(); ++i) list.push_back(uuid_text(gpus_[i].uuid));
  return list;
}

json Server::functions(const std::set<uint64_t>& idle) {
  json list = json::array();
  std::lock_guard lock(mutex_);
  meter_.look(now_ns());
  for (const auto& [id, session] : sessions_) {
    list.push_back(
        function_json(*session, state_of(*session, idle.contains(id)), memory_of(*session)));
    list.back().update(time_of(*session));
  }
  return list;
}

json Server::gpu_status() {
  json gpus = json::array();
  for (uint32_t i = 0; i < gpus_.count(); ++i) {
    const Gpu& gpu = gpus_[i];
    gpus.push_back({{"index", i},
                    {"name", gpu.name},
                    {"uuid", uuid_text(gpu.uuid)},
                    {"memory_total", gpu.total_bytes},
                    {"memory_used_by_clients", memory_.used_bytes(static_cast<int>(i))},
                    {"memory", budget_json(memory_.budgets().now(i))},
                    {"pool_bytes", memory_.budgets().idle_bytes(i)},
                    {"pool_limit_bytes", blocks_.budget_bytes(i)},
                    {"slices", gpu_slices_json(slices_, i)},
                    {"contexts", 1}});
    if (uint32_t failed = gpu.failed.load())
      gpus.back()["error"] = result_text(driver_, static_cast<CUresult>(failed));
  }
  return gpus;
}

json Server::place_status() {
  std::lock_guard lock(mutex_);
  return {{"free", places(Place::kFree)},
          {"functions", places(Place::kFunction)},
          {"pinned", places(Place::kPinned)},
          {"lost", places(Place::kLost)}};
}

json Server::status(const std::set<uint64_t>& idle) {
  json list = functions(idle);
  const ModuleCache::Counts modules = modules_.counts();
  uint64_t sums[7] = {};
  const char* const names[] = {"streams", "events",      "modules",     "kernels",
                               "graphs",  "allocations", "pinned_bytes"};
  for (const json& function : list) {
    for (size_t i = 0; i < 7; ++i) sums[i] += function[names[i]].get<uint64_t>();
  }
  const SpareSegments::Counts spares = spares_.counts();
  const PinnedPools::Counts pinned = pinned_.counts();
  const uint64_t fds = open_descriptors();
  // The spares' thread opened and closed nothing meanwhile.
  const bool settled = spares.settled && spares_.counts() == spares;
  return {{"ok", true},
          {"version", kVersion},
          {"pid", getpid()},
          {"workflow", options_.workflow},
          {"backend", options_.is_sim ? "sim" : "driver"},
          {"driver_version", gpus_.driver_version()},
          {"uptime_s", seconds_since(started_ns_)},
          {"gpus", gpu_status()},
          {"faults", faults()},
          {"functions", std::move(list)},
          {"totals",
           {{"sessions_started", sessions_started_},
            {"sessions_ended", sessions_ended_},
            {"sessions_killed", sessions_killed_},
            {"restarts", options_.inherited.restarts},
            {"images_loaded", modules.loaded},
            {"images_shared", modules.shared}}},
          {"modules", modules_json(modules)},
          {"pinned", pinned_json(pinned, pinned_.budget())},
          {"memory", memory_status()},
          {"evicted", evicted_status()},
          {"registrations", registration_status()},
          {"places", place_status()},
          {"janitor", janitor_text(janitor_.state())},
          {"gate", gate_status()},
          {"stalls", stalls_status()},
          {"budgets", budget_status()},
          {"objects",
           {{"streams", sums[0]},
            {"events", sums[1]},
            {"modules", sums[2]},
            {"kernels", sums[3]},
            {"graphs", sums[4]},
            {"allocations", sums[5]},
            {"pinned", sums[6]},
            {"blocks", memory_.blocks()},
            {"regions", memory_.regions()},
            {"shares", memory_.shares().count()},
            {"spares", spares.segments},
            {"pools", pinned.left},
            {"fds", fds},
            {"settled", settled}}}};
}

}  // namespace tube::proxy
