#include "hook/objects/entry.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <unordered_set>

#include "base/check.h"
#include "base/env.h"
#include "base/log.h"
#include "hook/objects/device_output.h"
#include "hook/objects/thread.h"
#include "hook/process/error_log.h"
#include "hook/process/profilers.h"
#include "hook/process/start_trace.h"
#include "hook/process/visible_devices.h"
#include "protocol/hook_decls.gen.h"
#include "sharedmem/accessors.h"
#include "sharedmem/greeting.h"

namespace tube::hook {

namespace {

CUresult code_of(const Error& error) {
  if (error.code < shared::kRefusalBase) return kNoProxy;
  switch (static_cast<handshake::Refusal>(error.code - shared::kRefusalBase)) {
    case handshake::Refusal::kVersion: return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    case handshake::Refusal::kOutOfMemory: return CUDA_ERROR_OUT_OF_MEMORY;
    case handshake::Refusal::kGpu: return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case handshake::Refusal::kNone:
    case handshake::Refusal::kUid:
    case handshake::Refusal::kTooManyClients:
    case handshake::Refusal::kNoWindow:
    case handshake::Refusal::kStopping: return kNoProxy;
  }
  return kNoProxy;
}

CUresult connect_and_fill(Process& p) {
  Result<Connection*> connected = connect_to_proxy();
  if (!connected) {
    static Once said;
    if (said.first()) log_error("%s", connected.error().message.c_str());
    return code_of(connected.error());
  }
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  p.launch_blocking = blocking != nullptr && *blocking != '\0' && std::strcmp(blocking, "0") != 0;
  p.connection = *connected;
  set_expect_handler(poison_connection);
  say_not_injected();
  p.objects.start();
  p.device_count = choose_visible_devices(
      std::getenv("CUDA_VISIBLE_DEVICES"), std::getenv("CUDA_DEVICE_ORDER"),
      p.connection->device_infos, p.connection->info->device_count, p.devices);
  if (p.device_count == kBadVisibleDevices) {
    p.device_count = 0;
    p.init_result = CUDA_ERROR_INVALID_DEVICE;
  } else if (p.device_count == 0) {
    p.init_result = CUDA_ERROR_NO_DEVICE;
  }
  for (uint32_t i = 0; i < p.device_count; ++i) {
    if (const CUresult r = make_primary(i); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult initialise() {
  Process& p = process();
  if (p.state() == State::kReady) return CUDA_SUCCESS;
  if (p.exiting.load(std::memory_order_acquire)) return CUDA_ERROR_DEINITIALIZED;
  if (is_forked_child()) return CUDA_ERROR_NOT_INITIALIZED;
  if (env_flag(Env::kOff)) return CUDA_ERROR_NO_DEVICE;
  mark_start(StartMark::kInit);
  Locked locked(p.init_lock);
  if (p.state() == State::kNoDevice) return p.init_result;
  if (p.state() != State::kUninit) return not_ready(p);
  if (p.state_word == nullptr && !make_state_page()) return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult r = connect_and_fill(p); r != CUDA_SUCCESS) return r;
  p.init_pid.store(getpid(), std::memory_order_relaxed);
  const State state = p.device_count == 0 ? State::kNoDevice : State::kReady;
  p.set_state(state);
  mark_start(StartMark::kReady);
  return p.init_result;
}

CUresult guard(Needs needs) {
  if (needs == Needs::kNothing) return CUDA_SUCCESS;
  Process& p = process();
  if (p.state() != State::kReady) return not_ready(p);
  if (this_thread().in_callback) return CUDA_ERROR_NOT_PERMITTED;
  if (needs == Needs::kInit) return CUDA_SUCCESS;
  const bool broken = shared::client_load_sticky_error(p.connection->header()) != 0;
  const CUresult sticky = broken ? sticky_error() : CUDA_SUCCESS;
  const Context* context = current_context();
  if (context == nullptr) return needs == Needs::kHandle ? sticky : CUDA_ERROR_INVALID_CONTEXT;
  const std::atomic<bool>& usable = context->primary ? context->live : context->alive;
  if (!usable.load(std::memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return sticky;
}

void log_failed(const char* name, CUresult result) {
  if (result != CUDA_ERROR_NOT_READY) error_log().add(name, result);
  if (result == CUDA_ERROR_ASSERT) collect_assertion();
  const LogLevel level = result == CUDA_ERROR_NOT_READY ? LogLevel::kTrace : LogLevel::kDebug;
  if (!log_enabled(level)) return;
  const char* text = nullptr;
  (void)hook::cuGetErrorName(result, &text);
  log_debug("%s -> %s (%d)", name, text != nullptr ? text : "?", static_cast<int>(result));
}

CUresult unsupported(const char* name, const char* why) {
  // Rare path: a set behind a lock, leaked.
  static Lock* lock = new Lock;
  static auto* said = new std::unordered_set<const char*>;
  bool first;
  {
    Locked locked(*lock);
    first = said->insert(name).second;
  }
  if (first) {
    log_warn("%s is not supported%s%s; it answers CUDA_ERROR_NOT_SUPPORTED", name,
             why != nullptr && *why ? ": " : "", why == nullptr ? "" : why);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace tube::hook
