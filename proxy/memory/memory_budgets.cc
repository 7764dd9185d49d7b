#include "proxy/memory/memory_budgets.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace tube::proxy {

namespace {
// More than any GPU has: the driver says so itself. Without limits, the sums of such requests must
// not make others' fail.
constexpr uint64_t kMostBytes = uint64_t{1} << 48;
}  // namespace

bool BudgetCount::take(uint64_t bytes, bool idle) {
  uint64_t held = held_.load(std::memory_order_relaxed);
  do {
    const policies::MemoryBudget budget{held, limit_.load(std::memory_order_relaxed)};
    if (!budget.fits(bytes)) return false;
  } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
  count_of(idle).fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

// ---- charge ------------------------------------------------------------------------------------

MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept {
  if (this == &other) return *this;
  end();
  account_ = std::move(other.account_);
  gpu_ = other.gpu_;
  bytes_ = std::exchange(other.bytes_, 0);
  idle_ = std::exchange(other.idle_, false);
  away_ = std::exchange(other.away_, 0);
  return *this;
}

void MemoryCharge::join(MemoryCharge more) {
  if (account_ == nullptr) {
    *this = std::move(more);
    return;
  }
  bytes_ += std::exchange(more.bytes_, 0);
}

void MemoryCharge::set_idle(bool idle) {
  if (idle == idle_ || account_ == nullptr) return;
  idle_ = idle;
  account_->set_idle(gpu_, bytes_, idle, away_);
}

void MemoryCharge::leave_gpu(uint64_t bytes) {
  if (account_ == nullptr) return;
  away_ += bytes;
  account_->leave_gpu(gpu_, bytes, idle_);
}

bool MemoryCharge::return_to_gpu(uint64_t bytes, bool beyond_limit) {
  if (account_ == nullptr) return true;
  if (!account_->return_to_gpu(gpu_, bytes, idle_, beyond_limit)) return false;
  away_ -= bytes;
  return true;
}

void MemoryCharge::end() {
  if (account_ != nullptr) account_->give_back(gpu_, bytes_, idle_, away_);
  account_.reset();
  bytes_ = 0;
  idle_ = false;
  away_ = 0;
}

// ---- account -----------------------------------------------------------------------------------

MemoryAccount::MemoryAccount(MemoryBudgets& budgets, std::string name, int pid,
                             uint64_t limit_bytes)
    : budgets_(budgets), name_(std::move(name)), pid_(pid), starting_limit_(limit_bytes) {
  for (BudgetCount& gpu : gpus_) gpu.set_limit(limit_bytes);
}

CUresult MemoryAccount::charge(int gpu, uint64_t bytes, MemoryCharge* charge, bool counted) {
  const auto index = static_cast<uint32_t>(gpu);
  *charge = {};
  if (gpu < 0 || index >= gpus_.size()) return CUDA_ERROR_OUT_OF_MEMORY;
  bytes = std::min(bytes, kMostBytes);
  const auto again = [&] { return take(index, bytes, false, counted); };
  const uint64_t seen = budgets_.times_given_back();
  bool taken = again();
  // First what this function keeps itself, if its own limit is in the way, then everybody's.
  if (!taken && budgets_.make_room_ && !gpus_[index].fits(bytes))
    taken = budgets_.make_room_(index, this, seen, again);
  if (!taken && budgets_.make_room_ && gpus_[index].fits(bytes))
    taken = budgets_.make_room_(index, nullptr, seen, again);
  if (!taken) {
    const bool own = bytes > gpus_[index].now().room();
    // Otherwise the GPU's memory is promised to others: the caller makes room as for the driver.
    if (own || bytes > budgets_.now(index).room())
      refused(index, bytes, own ? "its" : "its workflow's",
              own ? gpus_[index].now() : budgets_.now(index));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *charge = MemoryCharge(shared_from_this(), index, bytes);
  return CUDA_SUCCESS;
}

bool MemoryAccount::charge_ahead(int gpu, uint64_t bytes, MemoryCharge* charge) {
  const auto index = static_cast<uint32_t>(gpu);
  if (gpu < 0 || index >= gpus_.size() || away_bytes(index) != 0) return false;
  if (!take(index, bytes, true, true)) return false;
  *charge = MemoryCharge(shared_from_this(), index, bytes, true);
  return true;
}

bool MemoryAccount::take(uint32_t gpu, uint64_t bytes, bool idle, bool counted) {
  if (!gpus_[gpu].take(bytes, idle)) return false;
  if (budgets_.gpus_[gpu].take(bytes, idle)) {
    if (!budgets_.has_room_ || budgets_.has_room_(gpu, counted ? 0 : bytes)) return true;
    budgets_.gpus_[gpu].give_back(bytes, idle);
  }
  gpus_[gpu].give_back(bytes, idle);
  return false;
}

void MemoryAccount::set_idle(uint32_t gpu, uint64_t bytes, bool idle, uint64_t away) {
  if (abandoned_.load(std::memory_order_relaxed)) return;
  gpus_[gpu].set_idle(bytes, idle);
  budgets_.gpus_[gpu].set_idle(bytes - away, idle);
}

void MemoryAccount::give_back(uint32_t gpu, uint64_t bytes, bool idle, uint64_t away) {
  if (abandoned_.load(std::memory_order_relaxed)) return;
  gpus_[gpu].give_back(bytes, idle);
  away_[gpu].fetch_sub(away, std::memory_order_relaxed);
  budgets_.gpus_[gpu].give_back(bytes - away, idle);
}

void MemoryAccount::leave_gpu(uint32_t gpu, uint64_t bytes, bool idle) {
  away_[gpu].fetch_add(bytes, std::memory_order_relaxed);
  budgets_.gpus_[gpu].give_back(bytes, idle);
}

bool MemoryAccount::return_to_gpu(uint32_t gpu, uint64_t bytes, bool idle, bool beyond_limit) {
  BudgetCount& workflow = budgets_.gpus_[gpu];
  if (beyond_limit) workflow.take_beyond(bytes, idle);
  else if (!workflow.take(bytes, idle)) return false;
  away_[gpu].fetch_sub(bytes, std::memory_order_relaxed);
  return true;
}

void MemoryAccount::refused(uint32_t gpu, uint64_t bytes, const char* whose,
                            const policies::MemoryBudget& limit) {
  budgets_.events().note({.what = "refused",
                          .name = name_,
                          .pid = pid_,
                          .gpu = gpu,
                          .bytes = bytes,
                          .why = std::string(whose) + " limit"});
  if (refusals_.fetch_add(1, std::memory_order_relaxed) != 0) return;
  log_info("function '%s' asks for %lu bytes of GPU %u: %s limit of %lu leaves %lu", name_.c_str(),
           bytes, gpu, whose, limit.limit_bytes, limit.room());
}

uint64_t MemoryAccount::times_given_back() const { return budgets_.times_given_back(); }

policies::MemoryBudget MemoryAccount::now(uint32_t gpu) const {
  return gpu < gpus_.size() ? gpus_[gpu].now() : policies::MemoryBudget{0, 0};
}

uint64_t MemoryAccount::room(uint32_t gpu) const {
  if (gpu >= gpus_.size()) return 0;
  return std::min(gpus_[gpu].now().room(), budgets_.now(gpu).room());
}

policies::GpuMemory MemoryAccount::visible(uint32_t gpu, uint64_t untrusted_kept,
                                           const policies::GpuMemory& gpu_memory) const {
  if (gpu >= gpus_.size()) return gpu_memory;
  policies::GpuMemory with_idle = budgets_.with_idle(gpu, gpu_memory);
  // What it has elsewhere comes back before its next work: to it this is not free.
  with_idle.free_bytes -= std::min(with_idle.free_bytes, away_bytes(gpu));
  policies::MemoryBudget workflow = budgets_.now(gpu);
  workflow.held_bytes += away_bytes(gpu);
  return policies::visible_memory(gpus_[gpu].now(), workflow, starting_limit_, untrusted_kept,
                                  with_idle);
}

void MemoryAccount::set_limit(uint32_t gpu, uint64_t bytes) {
  if (gpu < gpus_.size()) gpus_[gpu].set_limit(bytes);
}

// ---- proxy -------------------------------------------------------------------------------------

std::shared_ptr<MemoryAccount> MemoryBudgets::open(std::string name, uint64_t wished_bytes,
                                                   int pid) {
  return std::make_shared<MemoryAccount>(
      *this, std::move(name), pid, policies::starting_memory_limit(wished_bytes, function_limit()));
}

policies::GpuMemory MemoryBudgets::with_idle(uint32_t gpu, policies::GpuMemory gpu_memory) const {
  gpu_memory.free_bytes = std::min(gpu_memory.free_bytes + idle_bytes(gpu),
                                   std::max(gpu_memory.free_bytes, gpu_memory.total_bytes));
  return gpu_memory;
}

policies::GpuMemory MemoryBudgets::visible_to_new(uint32_t gpu, uint64_t wished_bytes,
                                                  const policies::GpuMemory& gpu_memory) const {
  const uint64_t limit = policies::starting_memory_limit(wished_bytes, function_limit());
  return policies::visible_memory({0, limit}, now(gpu), limit, 0, with_idle(gpu, gpu_memory));
}

void MemoryBudgets::set_limits(std::span<const uint64_t> limits_bytes) {
  for (size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    const size_t index = limits_bytes.size() == 1 ? 0 : gpu;
    gpus_[gpu].set_limit(index < limits_bytes.size() ? limits_bytes[index]
                                                     : policies::kNoMemoryLimit);
  }
}

}  // namespace tube::proxy
