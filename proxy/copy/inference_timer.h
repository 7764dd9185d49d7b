// How long a function computes: from the end of its last copy to the GPU to the point at which its
// stream comes to the next copy from the GPU. For functions with an SLO that do not say it
// (policies/link_share.h, FunctionNeeds::infer_ns).
//
// Two events that take the time on the GPU, one pair at a time; the result is looked at when the
// next request begins. Session thread only. Nothing waits.
#pragma once

#include <cstdint>
#include <functional>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Driver;

class InferenceTimer {
 public:
  // `learnt`: a new value, in nanoseconds.
  InferenceTimer(const Driver& driver, std::function<void(uint64_t ns)> learnt)
      : driver_(driver), learnt_(std::move(learnt)) {}
  ~InferenceTimer();
  InferenceTimer(const InferenceTimer&) = delete;
  InferenceTimer& operator=(const InferenceTimer&) = delete;

  // The stream's work so far ends with a copy to the GPU. Its context is current.
  void uploaded(CUstream stream);
  // A copy from the GPU is about to go to the stream.
  void downloads(CUstream stream);
  uint64_t ns() const { return ns_; }

 private:
  enum class State : uint8_t { kIdle, kUploaded, kTimed };
  void look();

  const Driver& driver_;
  const std::function<void(uint64_t)> learnt_;
  CUevent begin_ = nullptr, end_ = nullptr;
  CUcontext context_ = nullptr;  // of the events; copies of other GPUs are not timed
  State state_ = State::kIdle;
  uint64_t ns_ = 0;
};

}  // namespace tube::proxy
