#include "proxy/copy/far_copies.h"

#include "base/scope_guard.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/current_context.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/ranges.h"

namespace tube::proxy {
namespace {

// Mapped by the proxy, for its GPU and that one's peers.
bool is_mapped_here(const Range& range) {
  return range.kind == RangeKind::kDevice || range.kind == RangeKind::kOpened ||
         range.kind == RangeKind::kStored;
}

}  // namespace

bool FarCopies::is_far(uint32_t gpu, const Range* range) const {
  return gpus_.count() > 1 && range != nullptr && is_mapped_here(*range) &&
         !gpus_.reaches(gpu, static_cast<uint32_t>(range->device));
}

CUresult FarCopies::stream_of(uint32_t gpu, CUstream* stream) {
  PlacedStream& placed = streams_[gpu];
  const CUresult error =
      placed.stream != nullptr ? CUDA_SUCCESS : placement_.make_stream(gpu, false, placed);
  *stream = placed.stream;
  return error;
}

CUresult FarCopies::make_there(uint32_t gpu, CUevent ready, CUevent* done,
                               const std::function<CUresult(CUstream)>& make) {
  const CurrentContext current(driver_, gpus_[gpu].context);
  CUstream there = nullptr;
  CUresult error = driver_.cuEventCreate(done, CU_EVENT_DISABLE_TIMING);
  if (error == CUDA_SUCCESS) error = stream_of(gpu, &there);
  if (error == CUDA_SUCCESS) error = driver_.cuStreamWaitEvent(there, ready, 0);
  if (error == CUDA_SUCCESS) error = make(there);
  return error != CUDA_SUCCESS ? error : driver_.cuEventRecord(*done, there);
}

CUresult FarCopies::on(uint32_t gpu, CUstream stream,
                       const std::function<CUresult(CUstream)>& make) {
  CUevent ready = nullptr;
  CUevent done = nullptr;
  const ScopeGuard events([&] {
    for (CUevent event : {ready, done}) {
      if (event != nullptr) driver_.cuEventDestroy_v2(event);
    }
  });
  CUresult error = driver_.cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING);
  if (error == CUDA_SUCCESS) error = driver_.cuEventRecord(ready, stream);
  if (error == CUDA_SUCCESS) error = make_there(gpu, ready, &done, make);
  return error != CUDA_SUCCESS ? error : driver_.cuStreamWaitEvent(stream, done, 0);
}

void FarCopies::end() {
  for (const auto& [gpu, placed] : streams_) {
    if (placed.stream != nullptr) driver_.cuStreamDestroy_v2(placed.stream);
  }
  streams_.clear();
}

}  // namespace tube::proxy
