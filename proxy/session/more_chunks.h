// The later staging chunks of one client: made when it asks for them, beside its other calls.
//
// Their pages take tens of milliseconds, most of it zeroing, and then they are registered with the
// driver. A thread does it and ends; the client goes on with the first chunks and asks again. A
// spare segment of an earlier client may have them from the start.
//
// Session thread, but for what make() does.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "base/cuda_api.h"
#include "sharedmem/segment.h"

namespace tube::proxy {

struct Driver;
class Gpus;
class HostBudget;

class MoreChunks {
 public:
  // All outlive it.
  MoreChunks(const Driver& driver, Gpus& gpus, shared::Segment& segment)
      : driver_(driver), gpus_(gpus), segment_(segment) {}
  // finish() was called, or they were never asked for.
  ~MoreChunks() { finish(); }
  MoreChunks(const MoreChunks&) = delete;
  MoreChunks& operator=(const MoreChunks&) = delete;

  // What counts their pages, and whose session it is; before ask().
  void count_in(HostBudget* host, uint64_t owner) {
    host_ = host;
    owner_ = owner;
  }
  // The segment has them already.
  void there() { state_.store(State::kThere, std::memory_order_relaxed); }
  bool are_there() const { return state_.load(std::memory_order_acquire) == State::kThere; }
  // Success: they are there. CUDA_ERROR_NOT_READY: they are being made. Everything else stays so:
  // the driver's code, or CUDA_ERROR_OUT_OF_MEMORY; the first such answer says *why.
  CUresult ask(std::string* why);
  // Nobody makes them any more when this returns: before the segment goes.
  void finish();

 private:
  enum class State : uint8_t { kNone, kMaking, kThere, kRefused };
  void make();

  const Driver& driver_;
  Gpus& gpus_;
  shared::Segment& segment_;
  HostBudget* host_ = nullptr;
  uint64_t owner_ = 0;
  std::atomic<State> state_{State::kNone};
  CUresult error_ = CUDA_SUCCESS;  // kRefused; written before the state
  std::string why_;                // the same
  std::thread thread_;
};

}  // namespace tube::proxy
