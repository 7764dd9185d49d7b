#include "proxy/copy/inference_timer.h"

#include <algorithm>

#include "protocol/driver_table.gen.h"

namespace tube::proxy {

InferenceTimer::~InferenceTimer() {
  for (CUevent event : {begin_, end_})
    if (event != nullptr) (void)driver_.cuEventDestroy_v2(event);
}

void InferenceTimer::uploaded(CUstream stream) {
  CUcontext context = nullptr;
  if (driver_.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) return;
  if (begin_ == nullptr) {
    if (driver_.cuEventCreate(&begin_, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return;
    if (driver_.cuEventCreate(&end_, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return;
    context_ = context;
  }
  if (end_ == nullptr || context != context_) return;
  if (state_ == State::kTimed) look();
  if (state_ == State::kTimed) return;
  if (driver_.cuEventRecord(begin_, stream) == CUDA_SUCCESS) state_ = State::kUploaded;
}

void InferenceTimer::downloads(CUstream stream) {
  if (state_ != State::kUploaded) return;
  if (driver_.cuEventRecord(end_, stream) == CUDA_SUCCESS) state_ = State::kTimed;
}

// An eighth of each new value, so that a slow request now and then changes little.
void InferenceTimer::look() {
  float ms = 0;
  const CUresult error = driver_.cuEventElapsedTime_v2(&ms, begin_, end_);
  if (error == CUDA_ERROR_NOT_READY) return;
  state_ = State::kIdle;
  if (error != CUDA_SUCCESS || ms < 0) return;
  const auto sample = std::max<uint64_t>(1, static_cast<uint64_t>(double(ms) * 1e6));
  ns_ = ns_ == 0 ? sample : ns_ - ns_ / 8 + sample / 8;
  learnt_(ns_);
}

}  // namespace tube::proxy
