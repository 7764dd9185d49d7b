#include "proxy/session/more_chunks.h"

#include <pthread.h>

#include <utility>

#include "base/result.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/contained.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/host_budget.h"
#include "proxy/memory/spare_segments.h"

namespace tube::proxy {

CUresult MoreChunks::ask(std::string* why) {
  switch (state_.load(std::memory_order_acquire)) {
    case State::kThere: return CUDA_SUCCESS;
    case State::kMaking: return CUDA_ERROR_NOT_READY;
    case State::kRefused: *why = std::exchange(why_, {}); return error_;
    case State::kNone: break;
  }
  state_.store(State::kMaking, std::memory_order_relaxed);
  if (contained("the thread that makes staging chunks", [this] {
        thread_ = std::thread([this] {
          pthread_setname_np(pthread_self(), "tube-chunks");
          make();
        });
      }))
    return CUDA_ERROR_NOT_READY;
  error_ = CUDA_ERROR_OUT_OF_MEMORY;
  state_.store(State::kRefused, std::memory_order_relaxed);
  return error_;
}

void MoreChunks::finish() {
  if (thread_.joinable()) thread_.join();
}

void MoreChunks::make() {
  CUresult error = CUDA_ERROR_OUT_OF_MEMORY;
  const bool fits = take_host(host_, HostUse::kSegments, abi::kMoreChunksBytes);
  const bool done = fits && contained("the making of staging chunks", [&] {
                      if (Status status = segment_.allocate_more_chunks(); !status.ok()) {
                        why_ = status.error().message;
                        return;
                      }
                      error = driver_.cuCtxSetCurrent(gpus_[0].context);
                      if (error == CUDA_SUCCESS)
                        error =
                            register_more_chunks(driver_, segment_, &gpus_.registrations(), owner_);
                      if (error != CUDA_SUCCESS)
                        why_ = "the driver refuses the memory: " + result_text(driver_, error);
                    });
  error_ = done ? error : CUDA_ERROR_OUT_OF_MEMORY;
  if (fits && error_ != CUDA_SUCCESS) give_host(host_, HostUse::kSegments, abi::kMoreChunksBytes);
  state_.store(error_ == CUDA_SUCCESS ? State::kThere : State::kRefused, std::memory_order_release);
}

}  // namespace tube::proxy
