#include "tools/tubectl/launcher.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/byte_size.h"
#include "base/driver_file.h"
#include "base/runtime_dir.h"
#include "base/unique_fd.h"
#include "tools/tubectl/control_client.h"
#include "tools/tubectl/detach.h"

namespace tube::ctl {
namespace {

constexpr int kReadyTimeoutMs = 120'000;
constexpr int kReadyFd = 3;  // in the proxy

std::vector<std::string> proxy_arguments(const ProxyOptions& options, const Layout& layout) {
  std::vector<std::string> arguments = {
      layout.tubed,    "--workflow", options.workflow,        "--backend",
      options.backend, "--ready-fd", std::to_string(kReadyFd)};
  auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {flag, value});
  };
  add("--gpus", options.gpus);
  add("--copy-policy", options.copy_policy);
  add("--memory", options.memory);
  add("--function-memory", options.function_memory);
  if (options.weight != 0) add("--weight", std::to_string(options.weight));
  add("--on-fault", options.on_fault);
  add("--profile", options.profile);
  if (options.slices) arguments.emplace_back("--slices");
  add("--share-store", options.share_store);
  if (options.verify_shared) arguments.emplace_back("--verify-shared");
  if (options.hang_timeout != 0) add("--hang-timeout", std::to_string(options.hang_timeout));
  const DriverSearch driver = search_driver();
  add("--driver", driver.found.empty() ? "" : driver.found.front());
  add("--sim", layout.sim_lib);
  return arguments;
}

// In the child: becomes a session leader's child, so that it never gets a terminal, and then the
// proxy. Does not return.
[[noreturn]] void become_proxy(char* const* argv, int log_fd, int ready_fd) {
  if (setsid() < 0 || fork() != 0) _exit(0);
  leave_limits_behind();
  int null_fd = open("/dev/null", O_RDWR);
  // Above the target numbers first: dup2 onto one of the sources would lose it.
  int log_high = fcntl(log_fd, F_DUPFD, 16), ready_high = fcntl(ready_fd, F_DUPFD, 16);
  dup2(null_fd, 0);
  dup2(log_high, 1);
  dup2(log_high, 2);
  dup2(ready_high, kReadyFd);
  close_range(kReadyFd + 1, ~0u, 0);
  if (chdir("/") != 0) _exit(1);
  execv(argv[0], argv);
  dprintf(2, "tubectl: cannot execute %s: %s\n", argv[0], strerror(errno));
  _exit(1);
}

std::string last_line(const std::string& path, off_t from) {
  std::ifstream file(path);
  file.seekg(from);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

// Waits for the byte that says "accepting"; the pipe's hang-up says that the proxy died first.
Status wait_ready(int fd, const std::string& log_path, off_t log_start) {
  pollfd waiting{fd, POLLIN, 0};
  int got;
  do {
    got = poll(&waiting, 1, kReadyTimeoutMs);
  } while (got < 0 && errno == EINTR);
  char byte;
  if (got == 0)
    return Error{ETIMEDOUT, fmt::format("the proxy did not accept within {} s; its log: {}",
                                        kReadyTimeoutMs / 1000, log_path)};
  if (read(fd, &byte, 1) == 1) return {};
  std::string reason = last_line(log_path, log_start);
  if (const size_t mark = reason.find("Z tube: "); mark != reason.npos) reason.erase(0, mark + 2);
  return Error{ECHILD, fmt::format("the proxy ended at start: {} (log: {})",
                                   reason.empty() ? "it said nothing" : reason, log_path)};
}

Status spawn_and_wait(const ProxyOptions& options, const Layout& layout,
                      const std::string& log_path) {
  UniqueFd log_fd(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log_fd.valid()) return errno_error(errno, log_path);
  off_t log_start = lseek(log_fd.get(), 0, SEEK_END);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_error(errno, "pipe");
  UniqueFd ready(ends[0]), ready_writer(ends[1]);

  std::vector<std::string> arguments = proxy_arguments(options, layout);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  pid_t child = fork();
  if (child < 0) return errno_error(errno, "fork");
  if (child == 0) become_proxy(argv.data(), log_fd.get(), ready_writer.get());
  ready_writer.reset();
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return wait_ready(ready.get(), log_path, log_start);
}

// Whether a proxy whose limits are `has` (one for each GPU) was started with `asked`, or might have
// been. A text that the command line has not checked is no reason to refuse.
bool same_limits(const std::string& asked, const std::string& has) {
  const Result<std::vector<uint64_t>> wanted = parse_byte_limits(asked);
  const Result<std::vector<uint64_t>> there = parse_byte_limits(has);
  if (asked.empty() || !wanted.ok() || !there.ok()) return true;
  for (size_t gpu = 0; gpu < there->size(); ++gpu) {
    const size_t index = wanted->size() == 1 ? 0 : gpu;
    if ((index < wanted->size() ? (*wanted)[index] : UINT64_MAX) != (*there)[gpu]) return false;
  }
  return true;
}

// Code 0 when the proxy that runs is of this version and what was asked for. The version comes
// first, since another one may not say what it has.
Error not_as_asked(const ProxyOptions& options, const Json& ping) {
  if (const std::string version = text(ping, "version"); version != TUBE_VERSION)
    return {1, fmt::format("the proxy of workflow `{0}` is version {1}, this is {2}; end it with: "
                           "tubectl proxy stop -w {0}",
                           options.workflow, version, TUBE_VERSION)};
  const std::string backend = text(ping, "backend", options.backend);
  const std::string gpus = text(ping, "gpus_asked", options.gpus);
  const std::string copy_policy = text(ping, "copy_policy", options.copy_policy);
  std::string differs;
  if (options.backend != "auto" && options.backend != backend)
    differs = fmt::format("runs on the {}, not with --backend {}",
                          backend == "sim" ? "simulated GPU" : "NVIDIA driver", options.backend);
  else if (!options.gpus.empty() && options.gpus != gpus)
    differs = fmt::format("runs with {}, not with --gpus {}",
                          gpus.empty() ? "all GPUs" : "--gpus " + gpus, options.gpus);
  else if (!options.copy_policy.empty() && options.copy_policy != copy_policy)
    differs = fmt::format("runs with --copy-policy {}, not {}", copy_policy, options.copy_policy);
  else if (!options.on_fault.empty() &&
           options.on_fault != text(ping, "on_fault", options.on_fault))
    differs =
        fmt::format("runs with --on-fault {}, not {}", text(ping, "on_fault"), options.on_fault);
  else if (options.slices && !ping.value("slices", true)) differs = "was started without --slices";
  else if (!same_limits(options.memory, text(ping, "memory")) ||
           !same_limits(options.function_memory, text(ping, "function_memory")))
    return {1,
            fmt::format("the proxy of workflow `{0}` runs with other limits of memory; change them "
                        "with: tubectl limit -w {0} --memory SIZE --each SIZE",
                        options.workflow)};
  if (differs.empty()) return {0, ""};
  return {1, fmt::format("the proxy of workflow `{0}` {1}; use another workflow, or end it with: "
                         "tubectl proxy stop -w {0}",
                         options.workflow, differs)};
}

}  // namespace

Result<Started> find_proxy(const ProxyOptions& options) {
  const Answer answer = ask(options.workflow, "ping");
  if (answer.reach == Reach::kNotRunning) return Error{ENOENT, answer.error};
  if (answer.reach == Reach::kFailed) return Error{1, answer.error};
  if (!answer.ok())
    return errorf("the proxy of workflow `%s` refused: %s", options.workflow.c_str(),
                  text(answer.body, "error", "no reason given").c_str());
  if (Error differs = not_as_asked(options, answer.body); differs.code != 0) return differs;
  return Started{true, answer.pid, text(answer.body, "version"), text(answer.body, "backend"),
                 fmt::format("{}/{}.log", runtime_dir_path(), options.workflow)};
}

Result<Started> ensure_proxy(const ProxyOptions& options, const Layout& layout) {
  Result<std::string> folder = make_runtime_dir();
  if (!folder.ok()) return folder.error();
  std::string log_path = fmt::format("{}/{}.log", *folder, options.workflow);
  Result<Started> started = find_proxy(options);
  if (started.ok() || started.error().code != ENOENT) return started;
  if (layout.tubed.empty())
    return errorf(
        "the proxy's program `tubed` was not found beside tubectl; point at it with TUBE_TUBED");

  std::string lock_path = fmt::format("{}/{}.lock", *folder, options.workflow);
  UniqueFd lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return errno_error(errno, lock_path);
  while (flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return errno_error(errno, lock_path);
  }
  started = find_proxy(options);
  if (started.ok() || started.error().code != ENOENT) return started;
  const Status spawned = spawn_and_wait(options, layout, log_path);
  started = find_proxy(options);
  // One that others started (a service) may have been first: then it is the proxy.
  if (!spawned.ok() && !started.ok() && started.error().code == ENOENT) return spawned.error();
  if (!spawned.ok()) return started;
  if (!started.ok() && started.error().code == ENOENT)
    return errorf("the proxy said it was ready but does not answer; its log: %s", log_path.c_str());
  if (started.ok()) started->already_running = false;
  return started;
}

}  // namespace tube::ctl
