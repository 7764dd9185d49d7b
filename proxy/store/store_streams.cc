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

// At the limit also one that waits for a later seal of the same stream: that is better than to wait
// for nobody knows whom. mutex_ is held.
StoreStreams::Own* StoreStreams::find(Gpu& here, const SealedOn& sealed) {
  const auto first = [&](const auto& fits) -> Own* {
    const auto found = std::find_if(here.own.begin(), here.own.end(),
                                    [&](const Own& own) { return !own.taken && fits(own); });
    return found == here.own.end() ? nullptr : &*found;
  };
  const auto same = [&](const Own& own) { return own.last.stream == sealed.stream; };
  Own* found = first([&](const Own& own) { return same(own) && own.last.number <= sealed.number; });
  if (found == nullptr)
    found =
        first([&](const Own& own) { return driver_.cuStreamQuery(own.stream) == CUDA_SUCCESS; });
  return found == nullptr && here.own.size() >= kMost ? first(same) : found;
}

CUstream StoreStreams::of_seal(int gpu, const SealedOn& sealed) {
  Gpu& here = gpus_[static_cast<size_t>(gpu)];
  {
    std::lock_guard lock(mutex_);
    if (Own* own = find(here, sealed); own != nullptr) {
      own->taken = true;
      if (own->last.stream != sealed.stream || own->last.number < sealed.number) own->last = sealed;
      return own->stream;
    }
    if (here.own.size() >= kMost) return nullptr;
  }
  const CUstream made = make();
  if (made == nullptr) return nullptr;
  std::lock_guard lock(mutex_);
  here.own.push_back({made, true, sealed});
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
