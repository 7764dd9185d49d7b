// TUBE_PREINIT=1 (set by `tubectl run`): the real driver's cuInit, 100 to 210 ms, starts in a
// background thread when the program is loaded, so that a Python function has it behind it when its
// imports are done.
//
// This is the library's only constructor, and without this variable or TUBE_TRACE_START it does
// nothing. It starts no thread in programs of which it is not plain that they want the CUDA runtime
// (runtime_use.h): everything a function starts inherits the variable, compilers and shells too.
// The thread blocks all signals, opens no session with the proxy (a program may still fork before
// its first CUDA call); it only asks the control socket which GPUs the proxy has. The exit handler
// waits for it, because leaving while the driver starts is not safe.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/env.h"
#include "base/futex.h"
#include "base/runtime_dir.h"
#include "hook/process/real_driver.h"
#include "hook/process/runtime_use.h"
#include "hook/process/start_trace.h"
#include "sharedmem/socket.h"

namespace tube::hook {
namespace {

constinit uint32_t g_running = 0;  // futex: 1 while the thread runs
constinit int g_pid = 0;

constexpr uint64_t kExitWaitNs = 3'000'000'000;
constexpr int kStatusTimeoutMs = 1000;

bool will_start_the_driver() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return false;
  path[n] = 0;
  const char* name = std::strrchr(path, '/');
  return wants_the_runtime(name == nullptr ? path : name + 1);
}

// What the proxy says of itself on its control socket (its backend and GPUs among it), or "".
std::string ask_proxy() {
  const char* name = env_text(Env::kWorkflow);
  Result<std::string> folder = find_runtime_dir();
  if (!folder) return "";
  Result<UniqueFd> socket = shared::connect_unix(
      control_socket_path(*folder, name == nullptr ? "default" : name), SOCK_STREAM);
  if (!socket) return "";
  constexpr char kQuestion[] = "{\"verb\":\"ping\"}\n";
  if (send(socket->get(), kQuestion, sizeof kQuestion - 1, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof kQuestion - 1))
    return "";
  std::string answer;
  char buffer[4096];
  while (answer.find('\n') == std::string::npos) {
    pollfd p{socket->get(), POLLIN, 0};
    if (poll(&p, 1, kStatusTimeoutMs) <= 0) return "";
    const ssize_t n = recv(socket->get(), buffer, sizeof buffer, 0);
    if (n <= 0) return "";
    answer.append(buffer, static_cast<size_t>(n));
  }
  return answer;
}

// "GPU-..,GPU-.." of all uuids in the answer, in order.
std::string proxy_uuids(const std::string& status) {
  std::string list;
  for (size_t at = status.find("\"GPU-"); at != std::string::npos;
       at = status.find("\"GPU-", at + 1)) {
    const size_t end = status.find('"', at + 1);
    if (end == std::string::npos) break;
    list += (list.empty() ? "" : ",") + status.substr(at + 1, end - at - 1);
  }
  return list;
}

void* run(void*) {
  pthread_setname_np(pthread_self(), "tube-preinit");
  mark_start(StartMark::kDriverThread);
  const std::string status = ask_proxy();
  mark_start(StartMark::kDriverAsked);
  // The program's own choice wins: it is what it will be shown. The simulated GPU has no real
  // driver to start.
  const bool chosen = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  if (status.find("\"driver\"") != std::string::npos) {
    const std::string uuids = proxy_uuids(status);
    if (chosen || !uuids.empty()) (void)start_real_driver(chosen ? "" : uuids);
  }
  __atomic_store_n(&g_running, 0, __ATOMIC_RELEASE);
  futex_wake(&g_running, INT_MAX);
  return nullptr;
}

void wait_at_exit() { wait_for_early_start(); }

__attribute__((constructor)) void start_early() {
  begin_start_trace();
  const char* wanted = ::secure_getenv("TUBE_PREINIT");
  if (wanted == nullptr || std::strcmp(wanted, "1") != 0 || !will_start_the_driver()) return;
  g_pid = getpid();
  g_running = 1;
  std::atexit(wait_at_exit);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  if (pthread_create(&thread, nullptr, run, nullptr) == 0) pthread_detach(thread);
  else g_running = 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void wait_for_early_start() {
  if (getpid() != g_pid) return;  // a forked child has no such thread
  if (__atomic_load_n(&g_running, __ATOMIC_ACQUIRE) != 0) futex_wait(&g_running, 1, kExitWaitNs);
}

}  // namespace tube::hook
