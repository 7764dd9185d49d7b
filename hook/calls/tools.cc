// Calls of debuggers and monitors: core dump settings, the driver's error log, budget
// notifications, checkpoints.
//
// What is bookkeeping natively is bookkeeping here. The error log holds one line per call that
// failed in this process: the driver's own lines say more about some and nothing about others, and
// they are written where the driver runs. A function process holds no GPU state, so there is
// nothing that a checkpoint of it could save.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <new>
#include <set>

#include "hook/objects/support.h"
#include "hook/process/error_log.h"
#include "protocol/coredump_settings.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

// The process's values, and those of the context last changed: programs that set them per context
// have one.
struct Coredump {
  Lock lock;  // rank 2
  CoredumpSettings global;
  CoredumpSettings local;
  Context* context = nullptr;
};
constinit Coredump g_coredump;

CoredumpSettings& settings_of(Coredump& c, bool for_context) {
  return for_context && c.context == current_context() ? c.local : c.global;
}

CUresult get_coredump(CUcoredumpSettings attribute, void* value, size_t* size, bool for_context) {
  Locked locked(g_coredump.lock);
  return settings_of(g_coredump, for_context).get(attribute, value, size, for_context);
}

bool own_pid(int pid) { return pid == static_cast<int>(getpid()); }

}  // namespace

CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  return get_coredump(attrib, value, size, true);
}
CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  return get_coredump(attrib, value, size, false);
}

CUresult cuCoredumpSetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  Locked locked(g_coredump.lock);
  if (g_coredump.context != current_context()) {
    g_coredump.context = current_context();
    g_coredump.local = g_coredump.global;
  }
  return g_coredump.local.set(attrib, value, size, true);
}

CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  Locked locked(g_coredump.lock);
  return g_coredump.global.set(attrib, value, size, false);
}

// ---- the error log ----

CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void* userData,
                                CUlogsCallbackHandle* callback_out) {
  if (callbackFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  void* handle = error_log().add_callback(callbackFunc, userData);
  if (handle == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (callback_out != nullptr) *callback_out = static_cast<CUlogsCallbackHandle>(handle);
  return CUDA_SUCCESS;
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  return error_log().remove_callback(callback) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogsCurrent(CUlogIterator* iterator_out, unsigned int) {
  if (iterator_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *iterator_out = error_log().end();
  return CUDA_SUCCESS;
}

CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size,
                            unsigned int flags) {
  if (buffer == nullptr || size == nullptr || flags != 0 || *size == 0)
    return CUDA_ERROR_INVALID_VALUE;
  return error_log().copy(iterator, buffer, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogsDumpToFile(CUlogIterator* iterator, const char* pathToFile, unsigned int) {
  if (pathToFile == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int fd = open(pathToFile, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  auto* text = new (std::nothrow) char[ErrorLog::kTextBytes + 1];
  size_t bytes = ErrorLog::kTextBytes + 1;
  bool written = text != nullptr && error_log().copy(iterator, text, &bytes);
  for (size_t done = 0; written && done < bytes;) {
    const ssize_t n = write(fd, text + done, bytes - done);
    if (n <= 0) written = false;
    else done += static_cast<size_t>(n);
  }
  delete[] text;
  close(fd);
  return written ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ---- notifications, checkpoints, profiler ----

// Budgets are set by drivers that share a display's memory; the driver for Linux has none to
// report. Registering works all the same, and nobody is ever called: a handle is all there is, a
// number that is given out once.
namespace {

constinit Lock g_notified_lock;  // leaf
std::set<uintptr_t>& registrations() {
  static auto* all = new std::set<uintptr_t>;
  return *all;
}
uintptr_t g_last_registration = 0;

}  // namespace

CUresult cuDeviceRegisterAsyncNotification(CUdevice device, CUasyncCallback callbackFunc, void*,
                                           CUasyncCallbackHandle* callback) {
  if (callbackFunc == nullptr || callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int32_t number = 0;
  if (const CUresult r = device_number(device, &number); r != CUDA_SUCCESS) return r;
  Locked locked(g_notified_lock);
  registrations().insert(++g_last_registration);
  *callback = reinterpret_cast<CUasyncCallbackHandle>(g_last_registration);
  return CUDA_SUCCESS;
}

CUresult cuDeviceUnregisterAsyncNotification(CUdevice device, CUasyncCallbackHandle callback) {
  if (callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int32_t number = 0;
  if (const CUresult r = device_number(device, &number); r != CUDA_SUCCESS) return r;
  Locked locked(g_notified_lock);
  return registrations().erase(reinterpret_cast<uintptr_t>(callback)) != 0
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

// The list is NvSciBuf's, a library that no Linux PC has; without one there is nothing to fill.
CUresult cuDeviceGetNvSciSyncAttributes(void* nvSciSyncAttrList, CUdevice, int) {
  if (nvSciSyncAttrList == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return unsupported("cuDeviceGetNvSciSyncAttributes",
                     "NvSciSync objects cannot cross a process boundary");
}

CUresult cuProfilerInitialize(const char*, const char*, CUoutput_mode) {
  return CUDA_ERROR_NOT_SUPPORTED;
}  // gone from drivers since CUDA 12

// Answers of a driver whose process is running and was never locked; locking is where it ends here.
CUresult cuCheckpointProcessGetState(int pid, CUprocessState* state) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!own_pid(pid)) return CUDA_ERROR_OPERATING_SYSTEM;
  *state = CU_PROCESS_STATE_RUNNING;
  return CUDA_SUCCESS;
}
CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int* tid) {
  if (tid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!own_pid(pid)) return CUDA_ERROR_OPERATING_SYSTEM;
  *tid = pid;  // the main thread: any would do for a process that is never restored
  return CUDA_SUCCESS;
}
CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs*) {
  return own_pid(pid) ? unsupported("cuCheckpointProcessLock", "the GPU's state is the proxy's")
                      : CUDA_ERROR_OPERATING_SYSTEM;
}
CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs*) {
  return own_pid(pid) ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_OPERATING_SYSTEM;
}
CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs*) {
  return own_pid(pid) ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_OPERATING_SYSTEM;
}
CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs*) {
  return own_pid(pid) ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace tube::hook
