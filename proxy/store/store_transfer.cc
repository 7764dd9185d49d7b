#include "proxy/store/store_transfer.h"

#include <chrono>

#include "protocol/driver_table.gen.h"
#include "proxy/copy/copy_engine.h"
#include "proxy/gpu/current_context.h"
#include "proxy/memory/memory_map.h"

namespace tube::proxy {
namespace {

constexpr std::chrono::microseconds kNap{50};  // between looks at the end of the last chunk

}  // namespace

CUresult StoreTransfer::on_stream(const StorePiece& from, const StorePiece& to, uint64_t bytes) {
  CUstream stream = nullptr;
  CUresult error = driver_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (error != CUDA_SUCCESS) return error;
  error = driver_.cuMemcpyAsync(to.address, from.address, bytes, stream);
  const CUresult end = driver_.cuStreamSynchronize(stream);
  (void)driver_.cuStreamDestroy_v2(stream);
  return error != CUDA_SUCCESS ? error : end;
}

CUresult StoreTransfer::by_lane(int gpu, bool to_gpu, const StorePiece& from, const StorePiece& to,
                                uint64_t bytes) {
  const auto told = std::make_shared<Told>();
  CopyLink& link = engine_->link(static_cast<uint32_t>(gpu), to_gpu);
  LaneCopy part;
  part.dst = to.address;
  part.src = from.address;
  part.bytes = bytes;
  part.function = kShare;
  part.told = [told] {
    std::lock_guard lock(told->mutex);
    told->over = true;
    told->changed.notify_all();
  };
  const std::shared_ptr<LaneJob> job = link.add(std::move(part));
  if (!engine_->wake()) {  // nobody would send it
    link.take_back(*job);
    return on_stream(from, to, bytes);
  }
  const auto nap = [&] {
    std::unique_lock lock(told->mutex);
    (void)told->changed.wait_for(lock, kNap, [&] { return told->over; });
  };
  while (!job->over()) nap();
  if (job->error() != CUDA_SUCCESS) {
    while (!link.quiet(*job)) std::this_thread::sleep_for(kNap);
    return job->error();
  }
  if (job->end() == nullptr) return CUDA_SUCCESS;
  CUresult error;
  while ((error = driver_.cuEventQuery(job->end())) == CUDA_ERROR_NOT_READY)
    std::this_thread::sleep_for(kNap);
  link.give(job->end());
  return error;
}

CUresult StoreTransfer::copy(const StorePiece& from, const StorePiece& to, uint64_t bytes) {
  const int gpu = from.device >= 0 ? from.device : to.device;
  const CurrentContext current(driver_, map_.context(static_cast<uint32_t>(gpu)));
  const bool with_host = from.device < 0 || to.device < 0;
  if (engine_ == nullptr || !with_host) return on_stream(from, to, bytes);
  return by_lane(gpu, from.device < 0, from, to, bytes);
}

}  // namespace tube::proxy
