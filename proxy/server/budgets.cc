// Limits of memory on the control socket: what they are, and the verb that changes them.
//
//   {"verb":"limit"}                                        what holds now
//   {"verb":"limit", "memory_bytes": n}                     the workflow's, on every GPU
//   {"verb":"limit", "pid": n, "memory_bytes": n}           that function's, on every GPU
//   {"verb":"limit", "each_bytes": n}                       what functions to come may take at most
//   {"verb":"limit", ..., "gpu": n}                         the first two on that GPU only
//
// A limit of null is none. The answer holds what is so afterwards. Who may ask is the operator: his
// word stands above what a program wished for and what functions are allowed by default.
#include "proxy/server/budgets.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "proxy/server/server.h"

namespace tube::proxy {

using nlohmann::json;

namespace {

json limit_json(uint64_t bytes) { return bytes == policies::kNoMemoryLimit ? json() : json(bytes); }

// False: what stands there is no limit.
bool read_limit(const json& request, const char* key, uint64_t* bytes) {
  const json& value = request[key];
  if (value.is_null()) {
    *bytes = policies::kNoMemoryLimit;
    return true;
  }
  if (!value.is_number_unsigned() || value.get<uint64_t>() == 0) return false;
  *bytes = value.get<uint64_t>();
  return true;
}

const char* const kNoLimit = "a limit is a number of bytes above 0, or null for none";

// The GPUs that a request is about, as [*first, *end).
bool read_gpus(const json& request, uint32_t count, uint32_t* first, uint32_t* end) {
  *first = 0;
  *end = count;
  if (!request.contains("gpu")) return true;
  const json& gpu = request["gpu"];
  if (!gpu.is_number_unsigned() || gpu.get<uint64_t>() >= count) return false;
  *first = gpu.get<uint32_t>();
  *end = *first + 1;
  return true;
}

}  // namespace

json refusal(const std::string& text) { return {{"ok", false}, {"error", text}}; }

json budget_json(const policies::MemoryBudget& budget) {
  return {{"held_bytes", budget.held_bytes}, {"limit_bytes", limit_json(budget.limit_bytes)}};
}

namespace {

// Of an account, or of all of them together.
template <class Budgets>
json each_gpu(const Budgets& budgets, uint32_t count) {
  json gpus = json::array();
  for (uint32_t gpu = 0; gpu < count; ++gpu) {
    gpus.push_back(budget_json(budgets.now(gpu)));
    gpus.back()["gpu"] = gpu;
    if (const uint64_t idle = budgets.idle_bytes(gpu)) gpus.back()["pool_bytes"] = idle;
  }
  return gpus;
}

}  // namespace

json Server::memory_of(const Session& session) {
  json gpus = each_gpu(session.account(), gpus_.count());
  for (json& gpu : gpus) {
    if (const uint64_t away = session.account().away_bytes(gpu["gpu"].get<uint32_t>()))
      gpu["evicted_bytes"] = away;
  }
  return gpus;
}

json Server::memory_status() {
  const MemoryBudgets& budgets = memory_.budgets();
  return {{"gpus", each_gpu(budgets, gpus_.count())},
          {"function_limit_bytes", limit_json(budgets.function_limit())}};
}

std::vector<uint64_t> Server::memory_limits() {
  std::vector<uint64_t> limits;
  for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu)
    limits.push_back(memory_.budgets().now(gpu).limit_bytes);
  return limits;
}

json Server::limit_workflow(const json& request) {
  uint64_t bytes = 0;
  uint32_t first = 0, end = 0;
  if (!read_limit(request, "memory_bytes", &bytes)) return refusal(kNoLimit);
  if (!read_gpus(request, gpus_.count(), &first, &end))
    return refusal("there is no such GPU; the proxy has " + std::to_string(gpus_.count()));
  for (uint32_t gpu = first; gpu < end; ++gpu) memory_.budgets().set_limit(gpu, bytes);
  return {{"ok", true}};
}

json Server::limit_function(const json& request) {
  const json& pid = request["pid"];
  // 0 is what the kernel says of a process in a PID namespace that is not ours.
  if (!pid.is_number_unsigned() || pid.get<uint64_t>() == 0)
    return refusal("\"pid\" is no process number");
  uint64_t bytes = 0;
  uint32_t first = 0, end = 0;
  if (request.contains("memory_bytes") && !read_limit(request, "memory_bytes", &bytes))
    return refusal(kNoLimit);
  if (!read_gpus(request, gpus_.count(), &first, &end))
    return refusal("there is no such GPU; the proxy has " + std::to_string(gpus_.count()));
  json found;
  std::lock_guard lock(mutex_);
  for (const auto& [id, session] : sessions_) {
    if (session->stopping() || static_cast<uint64_t>(session->client().pid) != pid.get<uint64_t>())
      continue;
    if (request.contains("memory_bytes")) {
      for (uint32_t gpu = first; gpu < end; ++gpu) session->account().set_limit(gpu, bytes);
    }
    found = {{"pid", pid}, {"name", session->client().name}, {"gpus", memory_of(*session)}};
  }
  if (found.is_null())
    return refusal("no function with process number " + pid.dump() + " runs under this proxy");
  return {{"ok", true}, {"function", found}};
}

json Server::limit(const json& request) {
  if (request.contains("each_bytes")) {
    uint64_t bytes = 0;
    if (!read_limit(request, "each_bytes", &bytes)) return refusal(kNoLimit);
    memory_.budgets().set_function_limit(bytes);
  }
  json answer = {{"ok", true}};
  if (request.contains("pid")) answer = limit_function(request);
  else if (request.contains("memory_bytes")) answer = limit_workflow(request);
  if (answer["ok"] == json(true)) answer["memory"] = memory_status();
  return answer;
}

}  // namespace tube::proxy
