// GPU memory that functions were promised and that nothing stands behind yet: how much of each GPU,
// and whether the driver still has it.
//
//   room = free(then) - promised(then) - making(then) - (charged(now) - charged(then))
//
// `then` is the last question to the driver, at most kFreeMemoryFreshNs ago: the question costs a
// system call. A promise is charged (proxy/memory/memory_budgets.h) like memory that is there, so
// what was promised, made and given back since is in the last term. A request is counted here
// before it is charged: whenever another thread asks the driver in between, it is taken off once,
// or twice, but never not at all. Twice makes a room that is too small; then the driver is asked
// again.
//
// Without promises nobody waits and the driver is not asked. Any thread; `mutex_` (rank 22) guards
// the answers, one thread asks at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "protocol/device_info.h"

namespace tube::proxy {

struct Driver;
class Gpus;

class PromisedMemory {
 public:
  // `charged`: the bytes of a GPU that are charged by now.
  PromisedMemory(const Driver& driver, const Gpus& gpus,
                 std::function<uint64_t(uint32_t gpu)> charged)
      : driver_(driver), gpus_(gpus), charged_(std::move(charged)) {}

  uint64_t bytes(int gpu) const { return promised_[index(gpu)].load(); }
  void add(int gpu, uint64_t bytes) { promised_[index(gpu)].fetch_add(bytes); }
  void remove(int gpu, uint64_t bytes) { promised_[index(gpu)].fetch_sub(bytes); }

  // For as long as memory is asked of the driver; from before it is charged.
  class Making {
   public:
    Making(PromisedMemory& promised, int gpu, uint64_t bytes)
        : making_(promised.making_[index(gpu)]), bytes_(bytes) {
      making_.fetch_add(bytes_);
    }
    ~Making() { making_.fetch_sub(bytes_); }
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

   private:
    std::atomic<uint64_t>& making_;
    const uint64_t bytes_;
  };

  // Whether all that is charged by now leaves what was promised. `uncounted`: bytes of it that are
  // neither counted here nor taken.
  bool has_room(uint32_t gpu, uint64_t uncounted);
  // Whether a request that is counted and charged by now may begin as a promise.
  bool may_promise(int gpu);
  // Of what the driver says to be free, what nobody was promised.
  uint64_t unpromised(uint32_t gpu, uint64_t free_bytes) const;

 private:
  struct Seen {
    uint64_t at_ns = 0;
    int64_t room = 0;
    int64_t charged = 0;
  };
  static uint32_t index(int gpu) {
    const auto at = static_cast<uint32_t>(gpu);
    return at < info::kMaxDevices ? at : info::kMaxDevices;  // a GPU of no client
  }
  int64_t charged(uint32_t gpu) const;
  bool ask(uint32_t gpu, Seen* seen) const;
  template <class Enough>
  bool enough(uint32_t gpu, uint64_t uncounted, Enough enough);

  const Driver& driver_;
  const Gpus& gpus_;
  const std::function<uint64_t(uint32_t gpu)> charged_;
  std::array<std::atomic<uint64_t>, info::kMaxDevices + 1> promised_{}, making_{};
  std::mutex mutex_;
  std::array<Seen, info::kMaxDevices> seen_;
};

}  // namespace tube::proxy
