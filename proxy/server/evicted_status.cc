// What the control socket says of memory: where each function's bytes are, what moved and why.
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "proxy/server/budgets.h"
#include "proxy/server/server.h"

namespace tube::proxy {

using nlohmann::json;

namespace {

json moves_json(const std::vector<Evictor::Move>& moves) {
  json list = json::array();
  for (const Evictor::Move& move : moves)
    list.push_back({{"ago_s", static_cast<double>(now_ns() - move.at_ns) / 1e9},
                    {"pid", move.pid},
                    {"name", move.name},
                    {"gpu", move.gpu},
                    {"bytes", move.bytes},
                    {"ms", static_cast<double>(move.took_ns) / 1e6},
                    {"to", move.to_gpu ? "gpu" : "host"},
                    {"why", move.why}});
  return list;
}

json counts_json(const Residency::Counts& counts) {
  return {{"evicted_bytes", counts.evicted_bytes.load(std::memory_order_relaxed)},
          {"returned_bytes", counts.returned_bytes.load(std::memory_order_relaxed)},
          {"returns", counts.returns.load(std::memory_order_relaxed)},
          {"stalled_ms", double(counts.stalled_ns.load(std::memory_order_relaxed)) / 1e6},
          {"longest_ms", double(counts.longest_ns.load(std::memory_order_relaxed)) / 1e6}};
}

// Of one function on one GPU.
json place_json(const MemoryMap& memory, const Session& session, uint32_t gpu) {
  const MemoryAccount& account = session.account();
  const uint64_t held = account.now(gpu).held_bytes, away = account.away_bytes(gpu);
  uint64_t stay = 0;
  (void)memory.movable(session.client().id, static_cast<int>(gpu), &stay);
  return {{"gpu", gpu},
          {"held_bytes", held},
          {"evicted_bytes", away},
          {"stays_bytes", stay},
          {"pool_bytes", account.idle_bytes(gpu)}};
}

}  // namespace

json Server::evicted_status() {
  const Evictor::Counts counts = evictor_.counts();
  const HostArena::Counts host = arena_.counts();
  return {{"limit_bytes", arena_.most_bytes()},
          {"pinned_bytes", host.held_bytes},
          {"used_bytes", host.used_bytes},
          {"policy", policies::eviction_order_name(evictor_.options().order)},
          {"evictions", counts.evictions},
          {"evicted_bytes", counts.evicted_bytes},
          {"returns", counts.returns},
          {"returned_bytes", counts.returned_bytes},
          {"waited", counts.waited},
          {"refused", counts.refused},
          {"waiting", counts.waiting}};
}

json Server::mem() {
  json functions = json::array();
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, session] : sessions_) {
      json gpus = json::array();
      for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu)
        gpus.push_back(place_json(memory_, *session, gpu));
      functions.push_back({{"pid", session->client().pid},
                           {"name", session->client().name},
                           {"pinned_bytes", session->pinned_bytes()},
                           {"moves", counts_json(session->residency().counts())},
                           {"gpus", std::move(gpus)}});
    }
  }
  return {{"ok", true},
          {"gpus", gpu_status()},
          {"functions", std::move(functions)},
          {"evicted", evicted_status()},
          {"moves", moves_json(evictor_.history())}};
}

}  // namespace tube::proxy
