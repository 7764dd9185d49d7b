#include "proxy/settled_contexts.h"

#include <algorithm>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "proxy/empty_kernel.gen.h"

namespace tube::proxy {

namespace {

constexpr uint32_t kRoom = 256;   // made ahead at a time
constexpr uint32_t kMargin = 32;  // what is destroyed with work on its way keeps its place
constexpr uint32_t kMost = 256;   // empty kernels on their way; a stream takes about a thousand launches before the next one waits

}  // namespace

SettledContexts::Prepared* SettledContexts::of(CUcontext context) {
  const auto found = std::find_if(prepared_.begin(), prepared_.end(), [context](const Prepared& p) { return p.context == context; });
  return found == prepared_.end() ? nullptr : &*found;
}

CUresult SettledContexts::prepare(const Driver& driver, CUdevice device, CUcontext context) {
  CUmodule module = nullptr;
  CUfunction empty = nullptr;
  CUstream stream = nullptr;
  CUresult error = driver.cuModuleLoadData(&module, kEmptyKernelImage);
  if (error == CUDA_SUCCESS) error = driver.cuModuleGetFunction(&empty, module, "tube_empty");
  if (error == CUDA_SUCCESS) error = driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  Prepared& made = prepared_.emplace_back();
  made.device = device;
  made.context = context;
  if (error == CUDA_SUCCESS) {
    made.empty = empty;
    made.stream = stream;
    settle(driver, device);
  }
  make_room(driver, context);
  return error;
}

void SettledContexts::settle(const Driver& driver, CUdevice device) {
  const auto found = std::find_if(prepared_.begin(), prepared_.end(), [device](const Prepared& p) { return p.device == device; });
  if (found == prepared_.end() || found->empty == nullptr) return;
  // The current one may be a green context's.
  if (driver.cuCtxPushCurrent_v2(found->context) != CUDA_SUCCESS) return;
  if (++found->launched > kMost) {
    if (driver.cuStreamQuery(found->stream) == CUDA_ERROR_NOT_READY) (void)driver.cuStreamSynchronize(found->stream);
    found->launched = 1;
  }
  (void)driver.cuLaunchKernel(found->empty, 1, 1, 1, 1, 1, 1, 0, found->stream, nullptr, nullptr);
  CUcontext ignored = nullptr;
  (void)driver.cuCtxPopCurrent_v2(&ignored);
}

bool SettledContexts::take_place(CUcontext context) {
  Prepared* prepared = of(context);
  if (prepared == nullptr) return true;
  std::lock_guard lock(mutex_);
  if (prepared->taken + kMargin >= prepared->room) return false;
  ++prepared->taken;
  return true;
}

void SettledContexts::cancel_place(CUcontext context) {
  Prepared* prepared = of(context);
  if (prepared == nullptr) return;
  std::lock_guard lock(mutex_);
  --prepared->taken;
}

void SettledContexts::placed(CUcontext context, const void* handle) {
  Prepared* prepared = of(context);
  if (prepared == nullptr) return;
  std::lock_guard lock(mutex_);
  places_[handle] = prepared;
}

void SettledContexts::gone(const void* handle) {
  std::lock_guard lock(mutex_);
  const auto found = places_.find(handle);
  if (found == places_.end()) return;
  --found->second->taken;
  places_.erase(found);
}

// So many streams more than there are, and away with them: instances find their places as well.
void SettledContexts::make_room(const Driver& driver, CUcontext context) {
  Prepared* prepared = of(context);
  if (prepared == nullptr) return;
  std::lock_guard growing(growing_);
  uint32_t taken = 0;
  {
    std::lock_guard lock(mutex_);
    if (prepared->room != 0 && prepared->taken + kMargin < prepared->room) return;  // somebody else did
    taken = prepared->taken;
  }
  std::vector<CUstream> streams;
  CUstream stream = nullptr;
  while (streams.size() < kRoom && driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) streams.push_back(stream);
  for (CUstream made : streams) (void)driver.cuStreamDestroy_v2(made);
  std::lock_guard lock(mutex_);
  // Where no more can be made, who wants one is told so by the driver.
  prepared->room = taken + std::max(static_cast<uint32_t>(streams.size()), kMargin + 1);
}

}  // namespace tube::proxy
