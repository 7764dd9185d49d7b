// The hook's one process-wide state, leaked on purpose: driver calls arrive until the last atexit
// handler has run.
//
// Life: kUninit until the first cuInit, which connects to the proxy; then kReady until the program
// exits (kDeinit, answers 4 without touching the socket), forks (the child answers 3), the proxy
// dies or a check of our own fails (kDead; said once, then every call answers the same code). The
// state word lies in a page that the kernel wipes in a forked child, so the check of it on every
// entry also catches a raw clone(2) and costs one load.
//
// Nothing happens before the first CUDA call, except the background start of the real driver that
// TUBE_PREINIT asks for (preinit.cc).
#pragma once

#include <atomic>
#include <cstdint>

#include "base/cuda_api.h"
#include "hook/process/connection.h"
#include "hook/process/lock.h"
#include "hook/process/objects.h"
#include "protocol/device_info.h"

namespace tube::hook {

enum class State : uint32_t {
  kUninit = 0,  // must be 0: what a wiped page reads
  kReady = 1,
  kDead = 2,
  kDeinit = 3,
  kNoDevice = 4,  // connected, and CUDA_VISIBLE_DEVICES leaves no GPU or makes no sense: cuInit
                  // failed, so calls answer 3
};

// Our choice where CUDA has no code of its own (docs/life-of-a-call.md): no proxy to connect to,
// and a proxy that died.
inline constexpr CUresult kNoProxy = CUDA_ERROR_SYSTEM_NOT_READY;
inline constexpr CUresult kProxyDied = CUDA_ERROR_DEVICE_UNAVAILABLE;

struct Context;

struct Process {
  constexpr Process() = default;

  std::atomic<std::atomic<uint32_t>*> state_word{
      nullptr};                         // in the wiped page; nullptr before the first cuInit
  std::atomic<int> init_pid{0};         // the process that called cuInit; another pid means a fork
  std::atomic<bool> exiting{false};     // the exit handler ran
  Lock init_lock;                       // rank 0: connecting
  CUresult init_result = CUDA_SUCCESS;  // kNoDevice: what cuInit answers, the first time and later

  Connection* connection = nullptr;  // made once, never freed
  Objects objects;

  bool launch_blocking = false;  // CUDA_LAUNCH_BLOCKING: a launch returns when its kernel is done

  // Devices the program sees: visible ordinal -> proxy ordinal.
  uint32_t device_count = 0;
  uint32_t devices[info::kMaxDevices] = {};
  Context* primaries[info::kMaxDevices] = {};  // by visible ordinal; made at connect

  State state() const {
    const std::atomic<uint32_t>* word = state_word.load(std::memory_order_acquire);
    return word == nullptr ? State::kUninit
                           : static_cast<State>(word->load(std::memory_order_acquire));
  }
  // Once the page is there.
  void set_state(State state) {
    state_word.load(std::memory_order_relaxed)
        ->store(static_cast<uint32_t>(state), std::memory_order_release);
  }
};

extern Process g_process;  // for process() alone
inline Process& process() { return g_process; }
inline Connection& connection() { return *process().connection; }
inline Objects& objects() { return process().objects; }

// For initialise() (objects/entry.h): what a failed check of our own (base/check.h) does. Calls
// fail and waits of other threads end from now on, as after the proxy's death; the program goes on.
// The caller may hold any lock.
void poison_connection(const char* condition, const char* file, int line);
// The page with the state word; false when out of memory.
bool make_state_page();
// The code for calls in the process's state; 0 when it is ready.
CUresult not_ready(Process& process);
// SUCCESS, or the error that ended the GPU's context; the first time it is one, logs who ended it.
CUresult sticky_error();
// SUCCESS while what was posted may come to its end as it should; else why it does not: the
// context's error, a proxy that stops, a session that was ended, a transport that failed. A proxy
// that died is noticed by whoever waits.
CUresult work_failure();
// The transport failed: logs once what died, moves to kDead, answers the code.
CUresult transport_failed(shared::WaitResult why);
// The calling thread belongs to a forked child of the process that called cuInit.
bool is_forked_child();

}  // namespace tube::hook
