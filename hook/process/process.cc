#include "hook/process/process.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "base/check.h"
#include "base/env.h"
#include "base/log.h"
#include "hook/process/error_log.h"
#include "hook/process/real_driver.h"
#include "hook/process/start_trace.h"
#include "sharedmem/accessors.h"

namespace tube::hook {

constinit Process g_process;

namespace {

constexpr int kNobody = -1;  // a pid that is never ours

// The program ends: other threads and later exit handlers may still call. Nothing may touch the
// socket any more.
void at_exit() {
  Process& p = g_process;
  p.exiting.store(true, std::memory_order_release);
  if (p.state() != State::kUninit) p.set_state(State::kDeinit);
  if (tracing_start()) wait_for_early_start();
  write_start_trace();
}

// fork(2) without exec: this process answers 3 from now on. Its copy of the socket goes, so that
// the proxy sees the parent's death even while the child lives; the memory stays as it is.
void in_forked_child() {
  Process& p = g_process;
  error_log().in_forked_child();
  if (p.state() != State::kUninit) p.set_state(State::kUninit);
  // Another thread was inside cuInit: what it had made by then is unknown, so this process has no
  // CUDA.
  if (!p.init_lock.try_lock()) p.init_pid.store(kNobody, std::memory_order_relaxed);
  else p.init_lock.unlock();
  if (p.connection == nullptr) return;
  if (p.connection->socket_is_ours()) p.connection->socket.reset();
  else (void)p.connection->socket.release();
}

}  // namespace

bool make_state_page() {
  const long page = sysconf(_SC_PAGESIZE);
  void* memory = mmap(nullptr, static_cast<size_t>(page), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  madvise(memory, static_cast<size_t>(page),
          MADV_WIPEONFORK);  // old kernels: the atfork handler does it for fork(2)
  g_process.state_word.store(new (memory) std::atomic<uint32_t>(0), std::memory_order_release);
  pthread_atfork(nullptr, nullptr, in_forked_child);
  std::atexit(at_exit);
  return true;
}

void poison_connection(const char* condition, const char* file, int line) {
  Process& p = g_process;
  Connection* c = p.connection;
  if (c == nullptr || p.exiting.load(std::memory_order_acquire) || is_forked_child()) return;
  uint32_t none = 0;
  if (!c->failure.compare_exchange_strong(none, CUDA_ERROR_UNKNOWN, std::memory_order_acq_rel))
    return;
  c->stop.store(true, std::memory_order_release);
  p.set_state(State::kDead);
  log_error(
      "bug in Tube: %s:%d: this does not hold: %s; every CUDA call now fails; start the program "
      "again",
      file, line, condition);
}

CUresult not_ready(Process& p) {
  if (p.exiting.load(std::memory_order_acquire)) return CUDA_ERROR_DEINITIALIZED;
  switch (p.state()) {
    case State::kReady: return CUDA_SUCCESS;
    case State::kUninit: return CUDA_ERROR_NOT_INITIALIZED;  // a forked child's wiped page, too
    case State::kDead:
      return static_cast<CUresult>(p.connection->failure.load(std::memory_order_acquire));
    case State::kDeinit: return CUDA_ERROR_DEINITIALIZED;
    case State::kNoDevice: return CUDA_ERROR_NOT_INITIALIZED;
  }
  return CUDA_ERROR_NOT_INITIALIZED;
}

bool is_forked_child() {
  const int pid = g_process.init_pid.load(std::memory_order_relaxed);
  return pid != 0 && pid != getpid();
}

CUresult sticky_error() {
  Connection& c = *g_process.connection;
  const uint32_t sticky = shared::client_load_sticky_error(c.header());
  static Once said;
  if (sticky == 0 || !said.first()) return static_cast<CUresult>(sticky);
  char why[abi::kFaultTextBytes] = {};
  const std::string_view told = shared::client_load_fault(c.segment.fault_text());
  for (size_t i = 0; i < told.size() && i + 1 < sizeof(why); ++i)
    why[i] = told[i] >= ' ' && told[i] != 127 ? told[i] : '?';
  log_error("%s; every CUDA call of this program now fails (%u): start it again",
            why[0] != '\0' ? why : "the GPU's context that all functions share is dead", sticky);
  return static_cast<CUresult>(sticky);
}

CUresult work_failure() {
  Process& p = g_process;
  Connection& c = *p.connection;
  const uint32_t sticky = shared::client_load_sticky_error(c.header());
  if (sticky != 0) return static_cast<CUresult>(sticky);
  if (p.state() == State::kDead)
    return static_cast<CUresult>(c.failure.load(std::memory_order_acquire));
  switch (shared::client_load_proxy_state(c.header())) {
    case abi::ProxyState::kStopping: return transport_failed(shared::WaitResult::kStopping);
    case abi::ProxyState::kPoisoned: return transport_failed(shared::WaitResult::kSticky);
    default: return CUDA_SUCCESS;
  }
}

CUresult transport_failed(shared::WaitResult why) {
  Process& p = g_process;
  Connection& c = *p.connection;
  if (p.exiting.load(std::memory_order_acquire)) return CUDA_ERROR_DEINITIALIZED;
  const CUresult sticky = sticky_error();
  const bool poisoned = shared::client_load_proxy_state(c.header()) == abi::ProxyState::kPoisoned;
  if (why == shared::WaitResult::kSticky && !poisoned && sticky != CUDA_SUCCESS) return sticky;

  CUresult code = kProxyDied;
  if (why == shared::WaitResult::kStopping) code = CUDA_ERROR_DEINITIALIZED;
  if (poisoned) code = CUDA_ERROR_UNKNOWN;
  uint32_t none = 0;
  if (!c.failure.compare_exchange_strong(none, code, std::memory_order_acq_rel))
    return static_cast<CUresult>(none);
  p.set_state(State::kDead);
  const char* workflow = c.info->workflow;
  const int pid = c.info->proxy_pid;
  if (poisoned) {
    log_error(
        "the proxy of workflow '%s' (pid %d) ended this program's session (reason %u, its log says "
        "more); "
        "every CUDA call now fails",
        workflow, pid, static_cast<uint32_t>(shared::client_load_poison_reason(c.header())));
  } else if (why == shared::WaitResult::kStopping) {
    log_error(
        "the proxy of workflow '%s' (pid %d) was stopped; every CUDA call now fails; start the "
        "program again",
        workflow, pid);
  } else {
    log_error(
        "the proxy of workflow '%s' (pid %d) died; every CUDA call now fails; start the program "
        "again "
        "(`tubectl status` shows what runs)",
        workflow, pid);
  }
  return code;
}

}  // namespace tube::hook
