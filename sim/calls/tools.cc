// Calls of debuggers and monitors: core dump settings, the error log, budget notifications,
// checkpoints.
//
// The error log is the place for the driver's remarks about a call that failed; the simulator makes
// none but one, to callbacks: which kernel ended a context, and at which address.
#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include "protocol/coredump_settings.h"
#include "sim/machine/error_log.h"
#include "sim/machine/state.h"

namespace tube::sim {
namespace {

struct Tools {
  std::mutex mutex;  // leaf
  CoredumpSettings global;
  std::unordered_map<Context*, CoredumpSettings> local;
  std::vector<void*> notified;
};

Tools& tools() {
  static auto* t = new Tools;  // leaked: calls come from exit handlers
  return *t;
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  SIM_ENTER_CONTEXT(context);
  std::lock_guard guard(tools().mutex);
  auto it = tools().local.find(context);
  return (it == tools().local.end() ? tools().global : it->second).get(attrib, value, size, true);
}
SIM_API CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void* value,
                                              size_t* size) {
  std::lock_guard guard(tools().mutex);
  return tools().global.get(attrib, value, size, false);
}
SIM_API CUresult cuCoredumpSetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  SIM_ENTER_CONTEXT(context);
  std::lock_guard guard(tools().mutex);
  return tools()
      .local.try_emplace(context, tools().global)
      .first->second.set(attrib, value, size, true);
}
SIM_API CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void* value,
                                              size_t* size) {
  std::lock_guard guard(tools().mutex);
  return tools().global.set(attrib, value, size, false);
}

SIM_API CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void* userData,
                                        CUlogsCallbackHandle* callback_out) {
  if (callbackFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  void* const handle = add_log_callback(callbackFunc, userData);
  if (callback_out != nullptr) *callback_out = static_cast<CUlogsCallbackHandle>(handle);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  return remove_log_callback(callback) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuLogsCurrent(CUlogIterator* iterator_out, unsigned int) {
  if (iterator_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *iterator_out = 0;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuLogsDumpToMemory(CUlogIterator*, char* buffer, size_t* size,
                                    unsigned int flags) {
  if (buffer == nullptr || size == nullptr || flags != 0 || *size == 0)
    return CUDA_ERROR_INVALID_VALUE;
  *size = 0;  // and nothing written, not even an end
  return CUDA_SUCCESS;
}
SIM_API CUresult cuLogsDumpToFile(CUlogIterator*, const char* pathToFile, unsigned int) {
  if (pathToFile == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int fd = open(pathToFile, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  close(fd);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetNvSciSyncAttributes(void* nvSciSyncAttrList, CUdevice, int) {
  SIM_ENTER(kInit);
  return nvSciSyncAttrList == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API CUresult cuDeviceRegisterAsyncNotification(CUdevice device, CUasyncCallback callbackFunc,
                                                   void*, CUasyncCallbackHandle* callback) {
  SIM_ENTER(kInit);
  if (callbackFunc == nullptr || callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  void* handle = new char;
  std::lock_guard guard(tools().mutex);
  tools().notified.push_back(handle);  // and never is: there are no budgets here
  *callback = static_cast<CUasyncCallbackHandle>(handle);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuDeviceUnregisterAsyncNotification(CUdevice device,
                                                     CUasyncCallbackHandle callback) {
  SIM_ENTER(kInit);
  if (callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(tools().mutex);
  return std::erase(tools().notified, static_cast<void*>(callback)) != 0 ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}

// Answers of a driver whose process is running and was never locked.
static CUresult checkpoint(int pid, CUresult own) {
  return pid == static_cast<int>(getpid()) ? own : CUDA_ERROR_OPERATING_SYSTEM;
}
SIM_API CUresult cuCheckpointProcessGetState(int pid, CUprocessState* state) {
  SIM_ENTER(kInit);
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult r = checkpoint(pid, CUDA_SUCCESS);
  if (r == CUDA_SUCCESS) *state = CU_PROCESS_STATE_RUNNING;
  return r;
}
SIM_API CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int* tid) {
  SIM_ENTER(kInit);
  if (tid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult r = checkpoint(pid, CUDA_SUCCESS);
  if (r == CUDA_SUCCESS) *tid = pid;
  return r;
}
SIM_API CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs*) {
  SIM_ENTER(kInit);
  return checkpoint(pid, CUDA_ERROR_NOT_SUPPORTED);
}
SIM_API CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs*) {
  SIM_ENTER(kInit);
  return checkpoint(pid, CUDA_ERROR_ILLEGAL_STATE);
}
SIM_API CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs*) {
  SIM_ENTER(kInit);
  return checkpoint(pid, CUDA_ERROR_ILLEGAL_STATE);
}
SIM_API CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs*) {
  SIM_ENTER(kInit);
  return checkpoint(pid, CUDA_ERROR_ILLEGAL_STATE);
}
