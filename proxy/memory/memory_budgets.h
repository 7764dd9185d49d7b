// Who holds how much of each GPU's memory, and up to which limit: the one place where it is
// counted.
//
// A *charge* stands for memory that the driver gave for a function. It is taken before the driver
// is asked and goes back when the charge ends, once, wherever that is: a block of the memory map
// holds one, so does an array, and so does the memory of a graph's allocation node. What other
// processes have open therefore stays counted to the function that made it, until they closed it,
// also after that function's end. What a function opens or imports is counted to its maker alone.
//
// Counted are bytes as the driver takes them, for blocks (a slab of small allocations is one
// block); arrays, graphs' memory and the heap of malloc in kernels by what was asked for
// (docs/limits.md). Context, code and what else kernels use of their own are not in it:
// cuMemGetInfo of the GPU tells of these.
//
// Any thread, no lock: an account's and the proxy's numbers are atomics, taken by compare and
// exchange, so that a request which does not fit never makes another one fail. Limits can change at
// any time; who has more than a new limit keeps it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/cuda_api.h"
#include "policies/memory/memory_budget.h"
#include "protocol/device_info.h"
#include "proxy/memory/memory_events.h"

namespace tube::proxy {

// What is held of one GPU, and the limit. Idle memory (block_pool.h) is held, so that nothing is
// promised beyond the limit, and told apart, because it goes as soon as it is in anybody's way.
class BudgetCount {
 public:
  // Without what is idle.
  policies::MemoryBudget now() const {
    return {used_.load(std::memory_order_relaxed), limit_.load(std::memory_order_relaxed)};
  }
  uint64_t idle_bytes() const { return idle_.load(std::memory_order_relaxed); }
  // Both.
  uint64_t charged_bytes() const { return held_.load(); }
  void set_limit(uint64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  // False: it does not fit, nothing was taken.
  [[nodiscard]] bool take(uint64_t bytes, bool idle);
  // Whether take() would.
  bool fits(uint64_t bytes) const {
    return policies::MemoryBudget{held_.load(std::memory_order_relaxed),
                                  limit_.load(std::memory_order_relaxed)}
        .fits(bytes);
  }
  void give_back(uint64_t bytes, bool idle) {
    held_.fetch_sub(bytes, std::memory_order_relaxed);
    count_of(idle).fetch_sub(bytes, std::memory_order_relaxed);
  }
  // Whatever the limit.
  void take_beyond(uint64_t bytes, bool idle) {
    held_.fetch_add(bytes, std::memory_order_relaxed);
    count_of(idle).fetch_add(bytes, std::memory_order_relaxed);
  }
  void set_idle(uint64_t bytes, bool idle) {
    count_of(!idle).fetch_sub(bytes, std::memory_order_relaxed);
    count_of(idle).fetch_add(bytes, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t>& count_of(bool idle) { return idle ? idle_ : used_; }

  std::atomic<uint64_t> held_{0};  // both of the following
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> idle_{0};
  std::atomic<uint64_t> limit_{policies::kNoMemoryLimit};
};

class MemoryBudgets;
class MemoryCharge;

// One function's. Lives as long as anything is charged to it, which may be longer than its session.
class MemoryAccount : public std::enable_shared_from_this<MemoryAccount> {
 public:
  MemoryAccount(MemoryBudgets& budgets, std::string name, int pid, uint64_t limit_bytes);

  // What *charge stood for is given back first. CUDA_ERROR_OUT_OF_MEMORY when a limit is in the
  // way, which the log says the first time, or what others were promised. A GPU that no client can
  // see (info::kMaxDevices) has no memory for it. `counted`: as in the making
  // (PromisedMemory::Making).
  CUresult charge(int gpu, uint64_t bytes, MemoryCharge* charge, bool counted = false);
  // For memory that nobody has asked for yet, idle at once: nobody gives way to it, and no refusal
  // is counted. None while other memory of the function is away: all must fit at once.
  bool charge_ahead(int gpu, uint64_t bytes, MemoryCharge* charge);
  uint64_t idle_bytes(uint32_t gpu) const {
    return gpu < gpus_.size() ? gpus_[gpu].idle_bytes() : 0;
  }
  // The function's own count, and what its and its workflow's limit leave on a GPU.
  policies::MemoryBudget now(uint32_t gpu) const;
  uint64_t room(uint32_t gpu) const;
  // What the function is told of a GPU of which the driver says `gpu_memory`. `untrusted_kept`:
  // what it says to hold without need, which changes this answer alone.
  policies::GpuMemory visible(uint32_t gpu, uint64_t untrusted_kept,
                              const policies::GpuMemory& gpu_memory) const;
  uint64_t starting_limit() const { return starting_limit_; }
  // Of the function, for the log and the list of events; pid 0: the proxy's own.
  const std::string& name() const { return name_; }
  int pid() const { return pid_; }
  uint64_t times_given_back() const;
  // Requests that a limit refused.
  uint64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }
  // Whether the function's own limit allows so much more.
  bool own_fits(uint32_t gpu, uint64_t bytes) const {
    return gpu < gpus_.size() && gpus_[gpu].fits(bytes);
  }
  // Of what it holds, the bytes that were moved off the GPU (MemoryCharge::leave_gpu).
  uint64_t away_bytes(uint32_t gpu) const {
    return gpu < gpus_.size() ? away_[gpu].load(std::memory_order_relaxed) : 0;
  }
  void set_limit(uint32_t gpu, uint64_t bytes);
  // GPU work of the function does not end: what it holds stays taken, whatever becomes of the
  // charges.
  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }

 private:
  friend class MemoryCharge;
  bool take(uint32_t gpu, uint64_t bytes, bool idle, bool counted);
  void give_back(uint32_t gpu, uint64_t bytes, bool idle, uint64_t away);
  void set_idle(uint32_t gpu, uint64_t bytes, bool idle, uint64_t away);
  void leave_gpu(uint32_t gpu, uint64_t bytes, bool idle);
  bool return_to_gpu(uint32_t gpu, uint64_t bytes, bool idle, bool beyond_limit);
  void refused(uint32_t gpu, uint64_t bytes, const char* whose,
               const policies::MemoryBudget& limit);

  MemoryBudgets& budgets_;  // outlives all accounts: the memory map's
  const std::string name_;
  const int pid_;
  const uint64_t starting_limit_;
  std::array<BudgetCount, info::kMaxDevices> gpus_;
  std::array<std::atomic<uint64_t>, info::kMaxDevices> away_{};
  std::atomic<uint64_t> refusals_{0};
  std::atomic<bool> abandoned_{false};
};

// Moves with the memory that it stands for. An empty one stands for nothing.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  MemoryCharge(std::shared_ptr<MemoryAccount> account, uint32_t gpu, uint64_t bytes,
               bool idle = false)
      : account_(std::move(account)), gpu_(gpu), bytes_(bytes), idle_(idle) {}
  MemoryCharge(MemoryCharge&& other) noexcept { *this = std::move(other); }
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;
  ~MemoryCharge() { end(); }

  uint64_t bytes() const { return bytes_; }
  // Whether the memory is held ready and given back before any request fails (block_pool.h): then
  // it counts as free.
  void set_idle(bool idle);
  bool idle() const { return idle_; }
  // So much of the memory is moved to the host: it stays charged to its function, and no longer
  // counts for the workflow, which has a limit of what is on the GPU.
  void leave_gpu(uint64_t bytes);
  // It comes back. False: the workflow's limit is in the way; with `beyond_limit` it is not asked.
  [[nodiscard]] bool return_to_gpu(uint64_t bytes, bool beyond_limit);
  uint64_t away_bytes() const { return away_; }
  // `more` of the same account and GPU comes to this one.
  void join(MemoryCharge more);

 private:
  void end();

  std::shared_ptr<MemoryAccount> account_;
  uint32_t gpu_ = 0;
  uint64_t bytes_ = 0;
  bool idle_ = false;
  uint64_t away_ = 0;  // of the bytes
};

// A proxy's: the workflow's count and limits, and what each of its functions may start with.
class MemoryBudgets {
 public:
  // The account of a function whose program wishes for that limit (policies::kNoMemoryLimit: none).
  std::shared_ptr<MemoryAccount> open(std::string name, uint64_t wished_bytes, int pid = 0);

  policies::MemoryBudget now(uint32_t gpu) const { return gpus_[gpu].now(); }
  uint64_t idle_bytes(uint32_t gpu) const { return gpus_[gpu].idle_bytes(); }
  // What a function with this wish would be told of a GPU if it started now
  // (MemoryAccount::visible).
  policies::GpuMemory visible_to_new(uint32_t gpu, uint64_t wished_bytes,
                                     const policies::GpuMemory& gpu_memory) const;
  // What became of memory lately.
  MemoryEvents& events() { return events_; }
  // With what is idle; without what is away.
  uint64_t charged_bytes(uint32_t gpu) const { return gpus_[gpu].charged_bytes(); }
  // How often idle memory was given back.
  uint64_t times_given_back() const { return given_back_.load(); }
  void idle_given_back() { given_back_.fetch_add(1); }
  // How idle memory is given back when a limit is in the way: of that account alone, or of all;
  // true once `again` is. `seen`: times_given_back() before the first attempt. Before any session.
  using MakeRoom = std::function<bool(uint32_t gpu, const MemoryAccount* of, uint64_t seen,
                                      const std::function<bool()>& again)>;
  void on_shortage(MakeRoom make_room) { make_room_ = std::move(make_room); }
  // Whether all that is charged leaves what others were promised of the GPU (promised_memory.h),
  // where so many bytes are charged and neither counted there nor taken. Before any session.
  using HasRoom = std::function<bool(uint32_t gpu, uint64_t uncounted)>;
  void ask_room(HasRoom has_room) { has_room_ = std::move(has_room); }
  void set_limit(uint32_t gpu, uint64_t bytes) { gpus_[gpu].set_limit(bytes); }
  // One for all GPUs, or one for each; what is missing has none.
  void set_limits(std::span<const uint64_t> limits_bytes);
  // Of functions to come.
  uint64_t function_limit() const { return function_limit_.load(std::memory_order_relaxed); }
  void set_function_limit(uint64_t bytes) {
    function_limit_.store(bytes, std::memory_order_relaxed);
  }

 private:
  friend class MemoryAccount;
  // What the driver says is free, and what is idle, which is as good.
  policies::GpuMemory with_idle(uint32_t gpu, policies::GpuMemory gpu_memory) const;

  std::array<BudgetCount, info::kMaxDevices> gpus_;
  std::atomic<uint64_t> function_limit_{policies::kNoMemoryLimit};
  std::atomic<uint64_t> given_back_{0};
  MemoryEvents events_;
  MakeRoom make_room_;
  HasRoom has_room_;
};

}  // namespace tube::proxy
