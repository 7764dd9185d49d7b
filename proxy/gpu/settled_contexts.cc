#include "proxy/gpu/settled_contexts.h"

#include <algorithm>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "proxy/empty_kernel.gen.h"

namespace tube::proxy {

namespace {

constexpr uint32_t kRoom = 256;      // made ahead at a time
constexpr uint32_t kFew = 128;       // more is made from here on, when no stream waits; what is
                                     // destroyed with work on its way keeps its place a while
constexpr uint32_t kGreenRoom = 64;  // of a green context
constexpr uint32_t kMost = 256;      // empty kernels on their way; a stream takes about a thousand
                                     // launches before the next one stands

// Makes so many streams, and away with them: instances find their places as well.
uint32_t stretch(const Driver& driver, uint32_t count) {
  std::vector<CUstream> streams;
  CUstream stream = nullptr;
  while (streams.size() < count &&
         driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS)
    streams.push_back(stream);
  for (CUstream made : streams) (void)driver.cuStreamDestroy_v2(made);
  return static_cast<uint32_t>(streams.size());
}

}  // namespace

SettledContexts::Prepared* SettledContexts::of(CUcontext context) {
  const auto found = std::find_if(prepared_.begin(), prepared_.end(),
                                  [context](const Prepared& p) { return p.context == context; });
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
    launch(driver, made);
  }
  make_room(driver, context);
  return error;
}

void SettledContexts::settle(const Driver& driver, CUdevice device) {
  for (Prepared& prepared : prepared_) {
    if (prepared.device == device) launch(driver, prepared);
  }
}

void SettledContexts::launch(const Driver& driver, Prepared& prepared) {
  if (prepared.empty == nullptr) return;
  // The current one may be a green context's.
  if (driver.cuCtxPushCurrent_v2(prepared.context) != CUDA_SUCCESS) return;
  if (prepared.launched.load() >= kMost &&
      driver.cuStreamQuery(prepared.stream) != CUDA_ERROR_NOT_READY)
    prepared.launched = 0;
  if (prepared.launched.load() < kMost) {
    ++prepared.launched;
    (void)driver.cuLaunchKernel(prepared.empty, 1, 1, 1, 1, 1, 1, 0, prepared.stream, nullptr,
                                nullptr);
  }
  CUcontext ignored = nullptr;
  (void)driver.cuCtxPopCurrent_v2(&ignored);
}

SettledContexts::Place SettledContexts::take_place(CUcontext context) {
  Prepared* prepared = of(context);
  if (prepared == nullptr) return Place::kTaken;
  std::lock_guard lock(mutex_);
  if (prepared->taken >= prepared->room) return Place::kNone;
  ++prepared->taken;
  return prepared->taken + kFew > prepared->room ? Place::kTakenOfFew : Place::kTaken;
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

bool SettledContexts::gone(const void* handle) {
  std::lock_guard lock(mutex_);
  const auto found = places_.find(handle);
  if (found == places_.end()) return false;
  --found->second->taken;
  places_.erase(found);
  return true;
}

void SettledContexts::make_room(const Driver& driver, CUcontext context) {
  Prepared* prepared = of(context);
  if (prepared == nullptr) return;
  std::lock_guard growing(prepared->growing);
  uint32_t taken = 0;
  {
    std::lock_guard lock(mutex_);
    if (prepared->room != 0 && prepared->taken + kFew <= prepared->room)
      return;  // somebody else did
    taken = prepared->taken;
  }
  const uint32_t made = stretch(driver, kRoom);
  std::lock_guard lock(mutex_);
  // Where no more can be made, who wants one is told so by the driver.
  prepared->room = std::max(prepared->room, taken + std::max(made, 1u));
}

void SettledContexts::make_first_room(const Driver& driver) { (void)stretch(driver, kGreenRoom); }

}  // namespace tube::proxy
