// A driver of a few functions for the tests of the context gate: a stream that waits is an event
// that has not happened until the test says so. Each thread is a session of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "protocol/driver_table.gen.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"
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

class ContextGateTest : public ::testing::Test {
 protected:
  ContextGateTest() {
    g_over = g_capturing = false;
    g_unloads = g_waits = g_loads = g_limit = 0;
    g_context = 1;
    g_looks.clear();
    this_caller() = {};
    current_ = this;
    wrap_driver(driver_, gate());
    gate().set_patience(600'000);
  }
  // Every test's waits are over when it ends.
  ~ContextGateTest() override {
    g_over = true;
    gate().set_patience(600'000);
    EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
  }
  static Driver& driver() { return current_->driver_; }
  static ContextGate& gate() { return current_->gpus_.gate(); }
  static CUresult context_wide(const ContextGate::Call& call, GateSpan span = GateSpan::kItsGpus) {
    return gate().context_wide(this_caller(), "a call", call, span);
  }
  static CUresult first_use(const ContextGate::Call& call) {
    return gate().launch(this_caller(), LaunchGate::kFirstUse, call);
  }
  static bool if_open(const std::function<void()>& call, GateSpan span = GateSpan::kItsGpus) {
    return gate().if_open(this_caller(), call, span);
  }
  static CUresult wait() { return driver().cuStreamWaitValue32_v2(nullptr, 8, 1, 0); }
  static CUresult wait_on(CUdevice device) {
    t_device = device;
    const CUresult error = wait();
    t_device = 0;
    return error;
  }
  // From inside the gate: until `waiter` stands at it, which shows in calls that let it go first,
  // or has gone through.
  static void until_it_stands(CUdevice device = 0) {
    bool refused = false;
    while (!refused && g_waits == 0)
      std::thread([&] { t_device = device, refused = !if_open([] {}); }).join();
  }
  // `inside` runs what it is given inside the gate: a wait that comes meanwhile is submitted
  // behind.
  template <class Inside>
  static void expect_a_wait_stands_behind(Inside inside, CUdevice device = 0) {
    std::thread waiter;
    inside([&waiter, device] {
      waiter = std::thread([device] { wait_on(device); });
      until_it_stands(device);
      EXPECT_EQ(g_waits, 0);
      return CUDA_SUCCESS;
    });
    waiter.join();
    EXPECT_EQ(g_waits, 1);
  }

  Driver driver_ = make_driver();
  Gpus gpus_{driver_};
  static inline ContextGateTest* current_ = nullptr;
};

}  // namespace tube::proxy
