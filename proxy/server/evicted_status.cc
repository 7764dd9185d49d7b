// What the control socket says of memory: where each function's bytes are, what moved and why.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "proxy/server/budgets.h"
#include "proxy/server/server.h"

namespace tube::proxy {

using nlohmann::json;

namespace {

// `now_ns` is one moment for a whole answer, which is later than all that it tells of: or of two
// things close to each other, the second one could come first.
double ago_s(uint64_t at_ns, uint64_t now_ns) { return static_cast<double>(now_ns - at_ns) / 1e9; }

json moves_json(const std::vector<Evictor::Move>& moves, uint64_t now_ns) {
  json list = json::array();
  for (const Evictor::Move& move : moves)
    list.push_back({{"ago_s", ago_s(move.at_ns, now_ns)},
                    {"pid", move.pid},
                    {"name", move.name},
                    {"gpu", move.gpu},
                    {"bytes", move.bytes},
                    {"ms", static_cast<double>(move.took_ns) / 1e6},
                    {"to", move.to_gpu ? "gpu" : "host"},
                    {"why", move.why}});
  return list;
}

// Moves and all other events, the newest last.
json history_json(json moves, const std::vector<MemoryEvent>& events, uint64_t now_ns) {
  json list = json::array();
  for (json& move : moves) {
    move["what"] = move["to"] == json("gpu") ? "returned" : "evicted";
    move.erase("to");
    list.push_back(std::move(move));
  }
  for (const MemoryEvent& event : events)
    list.push_back({{"ago_s", ago_s(event.at_ns, now_ns)},
                    {"what", event.what},
                    {"pid", event.pid},
                    {"name", event.name},
                    {"gpu", event.gpu},
                    {"bytes", event.bytes},
                    {"times", event.times},
                    {"why", event.why}});
  std::stable_sort(list.begin(), list.end(), [](const json& a, const json& b) {
    return a["ago_s"].get<double>() > b["ago_s"].get<double>();
  });
  return list;
}

json counts_json(const Residency::Counts& counts) {
  return {{"evicted_bytes", counts.evicted_bytes.load(std::memory_order_relaxed)},
          {"returned_bytes", counts.returned_bytes.load(std::memory_order_relaxed)},
          {"returns", counts.returns.load(std::memory_order_relaxed)},
          {"stalled_ms", double(counts.stalled_ns.load(std::memory_order_relaxed)) / 1e6},
          {"longest_ms", double(counts.longest_ns.load(std::memory_order_relaxed)) / 1e6}};
}

json lazy_json(const Residency& residency) {
  const LazyBlocks::Counts& counts = residency.lazy().counts();
  return {{"by_address", residency.lazy().by_address()},
          {"departures", residency.counts().departures.load(std::memory_order_relaxed)},
          {"promised", counts.promised.load(std::memory_order_relaxed)},
          {"backed", counts.backed.load(std::memory_order_relaxed)},
          {"named", counts.named.load(std::memory_order_relaxed)},
          {"ended", counts.ended.load(std::memory_order_relaxed)}};
}

// Of one function on one GPU.
json place_json(const MemoryMap& memory, const Session& session, uint32_t gpu,
                const ModuleCache::Use& code) {
  const MemoryAccount& account = session.account();
  const policies::MemoryBudget budget = account.now(gpu);
  const uint64_t away = account.away_bytes(gpu);
  const uint64_t promised = memory.promised_bytes(session.client().id, static_cast<int>(gpu));
  uint64_t stay = 0;
  (void)memory.movable(session.client().id, static_cast<int>(gpu), &stay);
  const auto its_code = code.by_session.find(session.client().id);
  json place = budget_json(budget);
  place.update({{"gpu", gpu},
                {"backed_bytes", budget.held_bytes - std::min(budget.held_bytes, away + promised)},
                {"promised_bytes", promised},
                {"evicted_bytes", away},
                {"stays_bytes", stay},
                {"pool_bytes", account.idle_bytes(gpu)},
                {"code_bytes", its_code != code.by_session.end() ? its_code->second : 0}});
  return place;
}

}  // namespace

json Server::evicted_status() {
  const Evictor::Counts counts = evictor_.counts();
  const HostArena::Counts host = arena_.counts();
  const HostAhead::Counts ahead = ahead_.counts();
  return {{"limit_bytes", arena_.most_bytes()},
          {"pinned_bytes", host.held_bytes},
          {"used_bytes", host.used_bytes},
          {"wanted_bytes", ahead.wanted_bytes},
          {"settled", ahead.settled},
          {"made_ahead_bytes", host.made_ahead_bytes},
          {"made_on_request_bytes", host.made_on_request_bytes},
          {"policy", policies::eviction_order_name(evictor_.options().order)},
          {"evictions", counts.evictions},
          {"evicted_bytes", counts.evicted_bytes},
          {"returns", counts.returns},
          {"returned_bytes", counts.returned_bytes},
          {"waited", counts.waited},
          {"refused", counts.refused},
          {"waits_for_frees", posted_.waits()},
          {"waiting", counts.waiting}};
}

json Server::mem_functions(const std::vector<ModuleCache::Use>& code) {
  json functions = json::array();
  std::lock_guard lock(mutex_);
  for (const auto& [id, session] : sessions_) {
    json gpus = json::array();
    for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu)
      gpus.push_back(place_json(memory_, *session, gpu, code[gpu]));
    functions.push_back({{"pid", session->client().pid},
                         {"name", session->client().name},
                         {"reserved_bytes", memory_.reserved_bytes(id)},
                         {"pinned_bytes", session->pinned_bytes()},
                         {"moves", counts_json(session->residency().counts())},
                         {"lazy", lazy_json(session->residency())},
                         {"gpus", std::move(gpus)}});
  }
  return functions;
}

json Server::mem() {
  std::vector<ModuleCache::Use> code;
  json gpus = gpu_status();
  for (json& gpu : gpus) {
    const auto index = gpu["index"].get<uint32_t>();
    const ModuleCache::Use& use = code.emplace_back(modules_.use(index));
    const std::optional<uint64_t> context = gpus_[index].context_bytes;
    gpu["context_bytes"] = context ? json(*context) : json();
    gpu["code_bytes"] = use.total_bytes;
    gpu["kept_code_bytes"] = use.kept_bytes;
  }
  const PinnedPools::Counts pinned = pinned_.counts();
  const std::vector<Evictor::Move> moved = evictor_.history();
  const std::vector<MemoryEvent> events = memory_.budgets().events().list();
  const uint64_t now = now_ns();
  json moves = moves_json(moved, now);
  json history = history_json(moves, events, now);
  return {{"ok", true},
          {"gpus", std::move(gpus)},
          {"functions", mem_functions(code)},
          {"pinned", {{"held_bytes", pinned.held_bytes}, {"idle_bytes", pinned.idle_bytes}}},
          {"evicted", evicted_status()},
          {"moves", std::move(moves)},
          {"history", std::move(history)}};
}

}  // namespace tube::proxy
