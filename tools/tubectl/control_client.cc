#include "tools/tubectl/control_client.h"

#include <dirent.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/runtime_dir.h"
#include "base/unique_fd.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

constexpr time_t kPatienceSeconds = 10;
constexpr time_t kPatienceOfManySeconds = 3;
constexpr size_t kLongestAnswer = 64u << 20;
constexpr int kQuestions = 3;  // of a proxy that hangs up

Answer failed(std::string error) { return {Reach::kFailed, {}, std::move(error), 0}; }

Answer not_running(const std::string& workflow) {
  return {Reach::kNotRunning,
          {},
          fmt::format("no proxy runs for workflow `{}`; start one with: tubectl proxy start -w {}",
                      workflow, workflow),
          0};
}

// Connects to `path`; the errno of the failure in `error_number`.
UniqueFd connect_to(const std::string& path, time_t patience_s, int& error_number) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  timeval timeout{patience_s, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  error_number = 0;
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    error_number = errno;
  return fd;
}

enum class Heard { kLine, kHangUp, kNothing };

// Sends the request and reads up to the first newline.
Heard ask_line(int fd, const std::string& request, std::string& line) {
  const ssize_t sent = send(fd, request.data(), request.size(), MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN) return Heard::kHangUp;
  if (sent != static_cast<ssize_t>(request.size())) return Heard::kNothing;
  char buffer[16384];
  while (line.size() < kLongestAnswer) {
    ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return Heard::kHangUp;
    if (got < 0) return Heard::kNothing;
    line.append(buffer, static_cast<size_t>(got));
    if (size_t end = line.find('\n'); end != line.npos) {
      line.resize(end);
      return Heard::kLine;
    }
  }
  return Heard::kNothing;
}

// Whether /proc says that the process is stopped by a signal, or by a debugger.
bool is_stopped(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  const size_t end = line.rfind(')');  // the name before it may hold anything
  return end != line.npos && end + 2 < line.size() &&
         (line[end + 2] == 'T' || line[end + 2] == 't');
}

// `hung_up`: the proxy did, without an answer.
Answer exchange(const UniqueFd& fd, const std::string& workflow, const Json& question,
                time_t patience_s, bool& hung_up) {
  Answer answer;
  hung_up = false;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) answer.pid = peer.pid;
  if (answer.pid != 0 && is_stopped(answer.pid)) {
    answer.error = fmt::format(
        "the proxy of workflow `{}` (pid {}) is stopped by a signal and so are its functions' CUDA "
        "calls; it goes on with: kill -CONT {}",
        workflow, answer.pid, answer.pid);
    return answer;
  }
  std::string line;
  const Heard heard = ask_line(fd.get(), question.dump() + "\n", line);
  hung_up = heard == Heard::kHangUp;
  if (heard != Heard::kLine) {
    answer.error =
        fmt::format("the proxy of workflow `{}` (pid {}) {} to `{}`{}; its log: {}/{}.log",
                    workflow, answer.pid, hung_up ? "hung up without an answer" : "gave no answer",
                    text(question, "verb"), hung_up ? "" : fmt::format(" within {} s", patience_s),
                    runtime_dir_path(), workflow);
    return answer;
  }
  answer.body = Json::parse(line, nullptr, false);
  if (answer.body.is_object()) {
    answer.reach = Reach::kAnswered;
  } else {
    answer.error = fmt::format(
        "what the proxy of workflow `{}` (pid {}) answered is not JSON: is it another version?",
        workflow, answer.pid);
  }
  return answer;
}

Answer ask_within(const std::string& workflow, const Json& request, time_t patience_s) {
  Result<std::string> folder = find_runtime_dir();
  if (!folder.ok())
    return folder.error().code == ENOENT ? not_running(workflow) : failed(folder.error().message);
  std::string path = control_socket_path(*folder, workflow);
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return failed(fmt::format(
        "socket path too long ({} bytes, at most {}): {}; set TUBE_DIR to a shorter folder",
        path.size(), sizeof(sockaddr_un::sun_path) - 1, path));
  }
  Answer answer;
  bool hung_up = true;
  // One that hangs up is ending, or has dropped this connection for another one.
  for (int question = 0; hung_up && question < kQuestions; ++question) {
    int error_number = 0;
    UniqueFd fd = connect_to(path, patience_s, error_number);
    if (error_number == ENOENT || error_number == ECONNREFUSED) return not_running(workflow);
    if (error_number != 0)
      return failed(fmt::format("cannot connect to {}: {}", path, strerror(error_number)));
    answer = exchange(fd, workflow, request, patience_s, hung_up);
  }
  return answer;
}

}  // namespace

Answer ask(const std::string& workflow, const std::string& verb) {
  return ask_with(workflow, Json{{"verb", verb}});
}

Answer ask_with(const std::string& workflow, const Json& request) {
  return ask_within(workflow, request, kPatienceSeconds);
}

std::vector<Answer> ask_all(const std::vector<std::string>& workflows, const std::string& verb) {
  std::vector<Answer> answers(workflows.size());
  std::vector<std::jthread> askers;
  askers.reserve(workflows.size());
  for (size_t i = 0; i < workflows.size(); ++i)
    askers.emplace_back([&, i] {
      answers[i] = ask_within(workflows[i], Json{{"verb", verb}}, kPatienceOfManySeconds);
    });
  askers.clear();  // joins
  return answers;
}

int report_unusable(const std::string& workflow, const Answer& answer) {
  if (answer.reach == Reach::kAnswered) {
    fmt::print(stderr, "tubectl: the proxy of workflow `{}` refused: {}\n", workflow,
               text(answer.body, "error", "no reason given"));
    return kExitProblem;
  }
  fmt::print(stderr, "tubectl: {}\n", answer.error);
  return answer.reach == Reach::kNotRunning ? kExitNotRunning : kExitProblem;
}

Result<std::vector<std::string>> known_workflows() {
  std::vector<std::string> names;
  Result<std::string> folder = find_runtime_dir();
  if (!folder.ok() && folder.error().code == ENOENT) return names;
  if (!folder.ok()) return folder.error();
  DIR* dir = opendir(folder->c_str());
  if (dir == nullptr) return errno_error(errno, *folder);
  while (const dirent* entry = readdir(dir)) {
    std::string name = entry->d_name;
    if (name.size() > 4 && name.ends_with(".ctl")) names.push_back(name.substr(0, name.size() - 4));
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

std::string text(const Json& object, const char* key, const std::string& otherwise) {
  auto at = object.is_object() ? object.find(key) : object.end();
  return at != object.end() && at->is_string() ? at->get<std::string>() : otherwise;
}

uint64_t number(const Json& object, const char* key, uint64_t otherwise) {
  auto at = object.is_object() ? object.find(key) : object.end();
  if (at == object.end() || !at->is_number()) return otherwise;
  if (at->is_number_unsigned()) return at->get<uint64_t>();
  double value = at->get<double>();
  return value > 0 ? static_cast<uint64_t>(value) : 0;
}

std::string limit_text(const Json& object, const char* key) {
  const uint64_t bytes = number(object, key);
  return bytes == 0 ? "-" : human_bytes(bytes);
}

Json functions_named(const Json& answer, const std::string& name) {
  const Json functions = answer.value("functions", Json::array());
  Json list = Json::array();
  for (const Json& function : functions)
    if (name.empty() || text(function, "name") == name) list.push_back(function);
  return list;
}

}  // namespace tube::ctl
