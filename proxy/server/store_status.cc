// What `tubectl store` shows.
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "proxy/server/server.h"

namespace tube::proxy {
namespace {

const char* state_name(abi::StoreState state) {
  switch (state) {
    case abi::StoreState::kFree: return "free";
    case abi::StoreState::kReserved: return "reserved";
    case abi::StoreState::kSealed: return "sealed";
    case abi::StoreState::kDoomed: return "deleted";
  }
  return "";
}

}  // namespace

nlohmann::json Server::store_status() {
  const Store::Counts c = store_.counts();
  nlohmann::json objects = nlohmann::json::array();
  const uint64_t now = now_ns();
  for (const Store::Seen& seen : store_.objects()) {
    const abi::StoreBody& body = seen.body;
    objects.push_back({{"name", std::string(body.name, body.name_bytes)},
                       {"group", std::string(body.group)},
                       {"state", state_name(seen.state)},
                       {"bytes", body.bytes},
                       {"place", body.device < 0 ? "host" : "gpu " + std::to_string(body.device)},
                       {"maker", seen.maker},
                       {"holders", seen.claims},
                       {"consumers", seen.consumers},
                       {"consumed", seen.consumed},
                       {"loans", seen.loans},
                       {"copies", seen.copies},
                       {"put_on", body.place == 0 ? "host" : "gpu"},
                       {"moves", seen.moves},
                       {"why", seen.why},
                       {"age_ns", now - body.created_ns}});
    if (!seen.changed_by.empty()) objects.back()["changed_by"] = seen.changed_by;
    if (seen.turn != policies::kNoTurn) objects.back()["turn"] = seen.turn;
  }
  return {{"ok", true},
          {"objects", std::move(objects)},
          {"counts",
           {{"objects", c.objects},
            {"deleted_held", c.doomed},
            {"clients", c.members},
            {"gpu_bytes", c.gpu_bytes},
            {"host_bytes", c.host_bytes},
            {"idle_bytes", c.idle_bytes},
            {"host_held_bytes", c.host_held_bytes},
            {"spare_events", c.events},
            {"reserved", c.reserved},
            {"sealed", c.sealed},
            {"claimed", c.claimed},
            {"deleted", c.deleted},
            {"consumed", c.consumed},
            {"expired", c.expired},
            {"aborted", c.aborted},
            {"left", c.left},
            {"left_bytes", c.left_bytes},
            {"returned", c.returned},
            {"returned_bytes", c.returned_bytes},
            {"fetched", c.fetched},
            {"fetched_bytes", c.fetched_bytes},
            {"imported", c.imported},
            {"lent", c.lent},
            {"changed", c.changed}}}};
}

}  // namespace tube::proxy
