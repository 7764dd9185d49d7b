#include "proxy/store/store_streams.h"

#include <algorithm>
#include <utility>

#include "protocol/driver_table.gen.h"

namespace tube::proxy {

CUstream StoreStreams::make() {
  CUstream stream = nullptr;
  return driver_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS ? stream : nullptr;
}

CUstream StoreStreams::of_all(int gpu) {
  Gpu& here = gpus_[static_cast<size_t>(gpu)];
  {
    std::lock_guard lock(mutex_);
    if (here.shared != nullptr) return here.shared;
  }
  CUstream made = make();
  CUstream shared = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (here.shared == nullptr) std::swap(here.shared, made);
    shared = here.shared;
  }
  if (made != nullptr) (void)driver_.cuStreamDestroy_v2(made);
  return shared;
}

CUstream StoreStreams::of_one(int gpu) {
  Gpu& here = gpus_[static_cast<size_t>(gpu)];
  {
    std::lock_guard lock(mutex_);
    const auto idle = std::find_if(here.own.begin(), here.own.end(), [&](const Own& own) {
      return !own.taken && driver_.cuStreamQuery(own.stream) == CUDA_SUCCESS;
    });
    if (idle != here.own.end()) {
      idle->taken = true;
      return idle->stream;
    }
    if (here.own.size() >= kMost) return nullptr;
  }
  const CUstream made = make();
  if (made == nullptr) return nullptr;
  std::lock_guard lock(mutex_);
  here.own.push_back({made, true});
  return made;
}

void StoreStreams::done(int gpu, CUstream stream) {
  std::lock_guard lock(mutex_);
  for (Own& own : gpus_[static_cast<size_t>(gpu)].own) own.taken &= own.stream != stream;
}

void StoreStreams::close() {
  std::lock_guard lock(mutex_);
  for (Gpu& gpu : gpus_) {
    if (gpu.shared != nullptr) (void)driver_.cuStreamDestroy_v2(gpu.shared);
    for (const Own& own : gpu.own) (void)driver_.cuStreamDestroy_v2(own.stream);
    gpu = Gpu{};
  }
}

}  // namespace tube::proxy
