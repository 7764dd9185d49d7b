// A driver of a few functions for the tests of the context gate: a stream that waits is an event
// that has not happened until the test says so. Each thread is a session of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "protocol/driver_table.gen.h"
#include "proxy/gpu/driver_wrappers.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {

inline std::atomic<bool> g_over{false};  // the stream's wait has passed
inline std::atomic<bool> g_capturing{false};
inline std::atomic<int> g_unloads{0}, g_waits{0}, g_events{0}, g_destroyed{0}, g_loads{0},
    g_limit{0};
inline std::atomic<uint64_t> g_context{1}, g_sessions{1000};
inline std::atomic<int> g_gpus{1};
inline thread_local CUdevice t_device = 0;

// How often each thread looked at an event.
class Looks {
 public:
  void add() {
    std::lock_guard lock(mutex_);
    ++looks_[std::this_thread::get_id()];
    changed_.notify_all();
  }
  void clear() {
    std::lock_guard lock(mutex_);
    looks_.clear();
  }
  // Until so many other threads have looked often, or one went on although it should not.
  template <class TooEarly>
  void wait_for(size_t threads, TooEarly too_early) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      size_t standing = 0;
      for (const auto& [thread, looks] : looks_)
        standing += thread != std::this_thread::get_id() && looks >= kOften;
      return standing >= threads || too_early();
    });
  }
  int of_this_thread() {
    std::lock_guard lock(mutex_);
    return looks_[std::this_thread::get_id()];
  }
  void something_happened() {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

 private:
  static constexpr int kOften = 3;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::thread::id, int> looks_;
};
inline Looks g_looks;

inline CUresult count(std::atomic<int>& calls) {
  ++calls;
  g_looks.something_happened();
  return CUDA_SUCCESS;
}

inline Driver make_driver() {
  Driver d = test::make_fake_driver();
  d.cuDeviceGetCount = [](int* count) { return *count = g_gpus, CUDA_SUCCESS; };
  d.cuCtxGetDevice = [](CUdevice* device) {
    if (this_caller().owner == policies::kGateProxy) this_caller().owner = ++g_sessions;
    return *device = t_device, CUDA_SUCCESS;
  };
  d.cuCtxGetCurrent = [](CUcontext* context) {
    return *context = reinterpret_cast<CUcontext>(g_context.load()), CUDA_SUCCESS;
  };
  d.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
  d.cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; };
  d.cuCtxFromGreenCtx = [](CUcontext* context, CUgreenCtx green) {
    return *context = reinterpret_cast<CUcontext>(green), CUDA_SUCCESS;
  };
  d.cuGreenCtxDestroy = [](CUgreenCtx) { return CUDA_SUCCESS; };
  d.cuEventCreate = [](CUevent* event, unsigned) {
    return *event = reinterpret_cast<CUevent>(++g_events), CUDA_SUCCESS;
  };
  d.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
  d.cuEventDestroy_v2 = [](CUevent) { return ++g_destroyed, CUDA_SUCCESS; };
  d.cuEventQuery = [](CUevent) {
    g_looks.add();
    return g_over.load() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  d.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = g_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  d.cuModuleUnload = [](CUmodule) { return count(g_unloads); };
  d.cuLibraryUnload = [](CUlibrary) { return count(g_unloads); };
  d.cuLibraryLoadData = [](CUlibrary* library, const void*, CUjit_option*, void**, unsigned int,
                           CUlibraryOption*, void**, unsigned int) {
    *library = reinterpret_cast<CUlibrary>(8);
    return count(g_loads);
  };
  d.cuKernelGetAttribute = [](int* value, CUfunction_attribute, CUkernel, CUdevice) {
    return *value = 48, CUDA_SUCCESS;
  };
  d.cuKernelSetAttribute = [](CUfunction_attribute, int, CUkernel, CUdevice) {
    return CUDA_SUCCESS;
  };
  d.cuCtxGetLimit = [](size_t* value, CUlimit) { return *value = 1024, CUDA_SUCCESS; };
  d.cuCtxSetLimit = [](CUlimit, size_t value) {
    return g_limit = static_cast<int>(value), CUDA_SUCCESS;
  };
  d.cuStreamWaitValue32_v2 = [](CUstream, CUdeviceptr address, cuuint32_t, unsigned) {
    ++g_waits;
    return address == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  return d;
}

}  // namespace tube::proxy
