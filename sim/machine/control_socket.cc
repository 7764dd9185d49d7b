// TUBE_SIM_CONTROL=PATH: a test in another process moves the clock of the copy engines. One
// connection at a time; a line asks, a line answers (sim/README.md). When the connection ends the
// clock is let go, so that a test that dies leaves no proxy hanging.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "sim/machine/control.h"
#include "sim/machine/engine.h"

namespace tube::sim {
namespace {

std::string number(uint64_t n) { return std::to_string(n) + "\n"; }

std::string step(uint64_t count) {
  uint64_t ended = 0;
  while (ended < count && tube_sim_step() != 0) ++ended;
  return number(ended);
}

// A line for each copy that ended behind the first `from`, and one with a dot.
std::string served(uint64_t from) {
  std::string text;
  TubeSimCopy c{};
  for (; from < tube_sim_served(from, &c, 1); ++from) {
    char line[192];
    std::snprintf(
        line, sizeof line, "%d %s %llu %llu %llu %llu %llu %llu\n", c.device,
        c.up != 0 ? "up" : "down", static_cast<unsigned long long>(c.context),
        static_cast<unsigned long long>(c.stream), static_cast<unsigned long long>(c.bytes),
        static_cast<unsigned long long>(c.ready_ns), static_cast<unsigned long long>(c.begin_ns),
        static_cast<unsigned long long>(c.end_ns));
    text += line;
  }
  return text + ".\n";
}

std::string answer(const std::string& line) {
  const size_t blank = line.find(' ');
  const std::string verb = line.substr(0, blank);
  const bool has_argument = blank != std::string::npos;
  const uint64_t n = has_argument ? std::strtoull(line.c_str() + blank, nullptr, 10) : 0;
  if (verb == "hold") tube_sim_hold(1);
  else if (verb == "run") tube_sim_hold(0);
  else if (verb == "step") return step(has_argument ? n : 1);
  else if (verb == "until") tube_sim_advance_to(n);
  else if (verb == "pending") return number(tube_sim_pending(-1, 0));
  else if (verb == "up" || verb == "down")
    return number(tube_sim_pending(static_cast<int>(n), verb == "up"));
  else if (verb == "wait") tube_sim_wait_for_pending(n);
  else if (verb == "served") return served(n);
  else if (verb != "now") return "?\n";
  return number(tube_sim_now());
}

bool send_all(int fd, const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

void converse(int fd) {
  std::string said;
  char block[4096];
  for (ssize_t n = 0; (n = ::recv(fd, block, sizeof block, 0)) > 0;) {
    said.append(block, static_cast<size_t>(n));
    for (size_t end = 0; (end = said.find('\n')) != std::string::npos; said.erase(0, end + 1))
      if (!send_all(fd, answer(said.substr(0, end)))) return;
  }
}

int listener = -1;  // written before its thread starts

void serve() {
  for (;;) {
    const int client = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0 && errno != EINTR && errno != ECONNABORTED) return;
    if (client < 0) continue;
    converse(client);
    ::close(client);
    tube_sim_hold(0);
  }
}

bool listen_at(int fd, const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(path) >= sizeof address.sun_path) return false;
  std::strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  return ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
         ::listen(fd, 4) == 0;
}

}  // namespace

void serve_control() {
  const char* path = std::getenv("TUBE_SIM_CONTROL");
  if (path == nullptr || *path == '\0') return;
  listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);  // open until the process ends
  if (listener >= 0 && listen_at(listener, path)) return start_thread(&serve);
  std::fprintf(stderr, "tube sim: TUBE_SIM_CONTROL=%s: %s\n", path, std::strerror(errno));
}

}  // namespace tube::sim
