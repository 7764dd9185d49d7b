#include "nvml/proxy_view.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <string>

#include <nlohmann/json.hpp>

#include "base/env.h"
#include "base/runtime_dir.h"
#include "base/unique_fd.h"

namespace tube::nvml {
namespace {

using nlohmann::json;

constexpr time_t kTimeoutSeconds = 1;
constexpr size_t kLongestAnswer = 1u << 20;

UniqueFd connect_to_proxy() {
  const char* workflow = env_text(Env::kWorkflow);
  const Result<std::string> folder = find_runtime_dir();
  if (env_flag(Env::kOff) || !folder.ok()) return {};
  const std::string path = control_socket_path(*folder, workflow != nullptr ? workflow : "default");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return {};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval timeout{kTimeoutSeconds, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return {};
  return fd;
}

// A JSON object, or none.
json exchange(int fd, const json& question) {
  const std::string request = question.dump() + "\n";
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size()))
    return {};
  std::string line;
  char buffer[8192];
  while (line.size() < kLongestAnswer && (line.empty() || line.back() != '\n')) {
    const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {};
    line.append(buffer, static_cast<size_t>(got));
  }
  json answer = json::parse(line, nullptr, false);
  if (!answer.is_object() || !answer.contains("ok") || answer["ok"] != json(true)) return {};
  return answer;
}

bool take(const json& object, const char* key, uint64_t* value) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_number_unsigned()) return false;
  *value = at->get<uint64_t>();
  return true;
}

}  // namespace

bool ask_seen(const char* uuid, Seen* seen) {
  const UniqueFd fd = connect_to_proxy();
  if (!fd.valid()) return false;
  json question = {{"verb", "seen"},
                   {"uuid", uuid},
                   {"free_bytes", seen->free_bytes},
                   {"total_bytes", seen->total_bytes}};
  // What this program would wish for, if it is no function yet.
  if (const auto wished = env_byte_limit(Env::kMemory)) question["memory_bytes"] = *wished;
  const json answer = exchange(fd.get(), question);
  Seen now{};
  if (!take(answer, "free_bytes", &now.free_bytes) ||
      !take(answer, "total_bytes", &now.total_bytes) || now.free_bytes > now.total_bytes)
    return false;
  *seen = now;
  return true;
}

bool ask_holders(const char* uuid, Holders* holders) {
  const UniqueFd fd = connect_to_proxy();
  if (!fd.valid()) return false;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
    holders->proxy_pid = static_cast<uint32_t>(peer.pid);
  const json answer = exchange(fd.get(), {{"verb", "held"}, {"uuid", uuid}});
  const auto functions = answer.find("functions");
  if (functions == answer.end() || !functions->is_array()) return false;
  for (const json& function : *functions) {
    uint64_t pid = 0, bytes = 0;
    if (!function.is_object() || !take(function, "pid", &pid) || !take(function, "bytes", &bytes))
      return false;
    holders->functions.push_back({static_cast<uint32_t>(pid), bytes});
  }
  return true;
}

}  // namespace tube::nvml
