// What our libnvidia-ml.so.1 (nvml/) asks of the proxy, from inside the functions:
//
//   {"verb":"seen", "uuid": "GPU-...", "free_bytes": n, "total_bytes": n}
//     what the asking process is to be told of a GPU of which NVIDIA's library says that; with
//     "memory_bytes" the wish of a process that is no function yet
//   {"verb":"held", "uuid": "GPU-..."}
//     the functions that hold memory of that GPU
//
// Who asks is known from the connection; in another PID namespace than the proxy's it has no number
// there and is answered like a process that is no function yet. The numbers that come with the
// question change nothing but the answer.
#include <strings.h>

#include <nlohmann/json.hpp>

#include "proxy/server/budgets.h"
#include "proxy/server/server.h"

namespace tube::proxy {

using nlohmann::json;

namespace {

// false: the proxy has no such GPU.
bool find_gpu(const json& request, const json& uuids, uint32_t* gpu) {
  const auto wanted = request.find("uuid");
  if (wanted == request.end() || !wanted->is_string()) return false;
  const char* text = wanted->get_ref<const std::string&>().c_str();
  for (size_t i = 0; i < uuids.size(); ++i) {
    if (strcasecmp(uuids[i].get_ref<const std::string&>().c_str(), text) != 0) continue;
    *gpu = static_cast<uint32_t>(i);
    return true;
  }
  return false;
}

bool read_bytes(const json& request, const char* key, uint64_t* bytes) {
  const auto at = request.find(key);
  if (at == request.end() || !at->is_number_unsigned()) return false;
  *bytes = at->get<uint64_t>();
  return true;
}

}  // namespace

json Server::seen(const json& request, pid_t pid) {
  uint32_t gpu = 0;
  policies::GpuMemory memory;
  if (!find_gpu(request, uuids(), &gpu)) return refusal("the proxy has no such GPU");
  if (!read_bytes(request, "free_bytes", &memory.free_bytes) ||
      !read_bytes(request, "total_bytes", &memory.total_bytes))
    return refusal("\"free_bytes\" and \"total_bytes\" are missing");
  memory.free_bytes = memory_.promised().unpromised(gpu, memory.free_bytes);
  uint64_t wished = policies::kNoMemoryLimit;
  (void)read_bytes(request, "memory_bytes", &wished);
  memory = [&] {
    std::lock_guard lock(mutex_);
    for (const auto& [id, session] : sessions_)
      if (pid != 0 && session->client().pid == pid)
        return session->account().visible(gpu, 0, memory);
    return memory_.budgets().visible_to_new(gpu, wished, memory);
  }();
  return {{"ok", true}, {"free_bytes", memory.free_bytes}, {"total_bytes", memory.total_bytes}};
}

json Server::held(const json& request) {
  uint32_t gpu = 0;
  if (!find_gpu(request, uuids(), &gpu)) return refusal("the proxy has no such GPU");
  json functions = json::array();
  std::lock_guard lock(mutex_);
  for (const auto& [id, session] : sessions_) {
    const MemoryAccount& account = session->account();
    const uint64_t held = account.now(gpu).held_bytes, away = account.away_bytes(gpu);
    if (held > away) functions.push_back({{"pid", session->client().pid}, {"bytes", held - away}});
  }
  return {{"ok", true}, {"functions", std::move(functions)}};
}

}  // namespace tube::proxy
