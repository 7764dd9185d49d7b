#include "proxy/memory/pinned_pool.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/page.h"
#include "base/scope_guard.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/host_budget.h"
#include "sharedmem/segment.h"
#include "sharedmem/window_reservation.h"
#include "sharedmem/windows.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tube::proxy {

namespace {
constexpr uint64_t kLargeAlignment = 2u << 20;  // of what is as large as that
constexpr uint64_t kStep = 2u << 20;
constexpr uint64_t kSlice = 16u << 20;  // zeroed between two looks whether to go on

constexpr uint64_t alignment(uint64_t bytes) {
  return bytes >= kLargeAlignment ? kLargeAlignment : kPage;
}

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// Back to a plain reservation: the slot's addresses stay ours for the next client.
void reserve_slot(uint64_t base) {
  if (mmap(pointer(base), windows::kPinnedSlotBytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
    log_warn("the pinned slot at 0x%lx stays mapped: %s", base, std::strerror(errno));
}
}  // namespace

PinnedPool::PinnedPool(const Driver& driver, uint32_t window, uint64_t base, UniqueFd fd,
                       HostBudget* host, Registrations* registrations)
    : driver_(driver),
      host_(host),
      registrations_(registrations),
      window_(window),
      fd_(std::move(fd)),
      base_(base),
      space_(base, windows::kPinnedSlotBytes, kPage) {
  watch_.emplace();
}

PinnedPool::~PinnedPool() { close(); }

Result<std::shared_ptr<PinnedPool>> PinnedPool::open(const Driver& driver, uint32_t window,
                                                     uint32_t client_slot, HostBudget* host,
                                                     Registrations* registrations) {
  Result<UniqueFd> file =
      shared::create_memory_file("tube-pinned", windows::kPinnedSlotBytes, shared::Fill::kSparse);
  if (!file.ok()) return file.error();
  const uint64_t base = windows::pinned_base(window, client_slot);
  // Over our own reservation of the window's pinned half (MemoryMap::take_window).
  if (!shared::map_pinned_slot(base, file->get())) return errno_error(errno, "pinned slot: mmap");
  ScopeGuard unmap([base] { reserve_slot(base); });
  std::shared_ptr<PinnedPool> pool(
      new PinnedPool(driver, window, base, file.take(), host, registrations));
  unmap.dismiss();
  return pool;
}

// mutex_ is held.
void PinnedPool::publish() {
  uint64_t touched = 0;
  for (const auto& [bytes, address] : touched_) touched += bytes;
  const uint64_t largest = touched_.empty() ? 0 : touched_.rbegin()->first;
  touched_bytes_.store(touched, std::memory_order_relaxed);
  idle_bytes_.store(blocks_.idle_bytes() + touched, std::memory_order_relaxed);
  returnable_bytes_.store(blocks_.returnable_bytes() + touched, std::memory_order_relaxed);
  held_bytes_.store(blocks_.held_bytes() + touched, std::memory_order_relaxed);
  largest_run_.store(std::max(blocks_.largest_run(), largest), std::memory_order_relaxed);
}

uint64_t PinnedPool::take(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const uint64_t address = blocks_.take(bytes, alignment(bytes));
  publish();
  return address;
}

void PinnedPool::give(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  blocks_.give(address, bytes);
  publish();
}

// In steps, so that nobody waits long for the locks that the kernel holds meanwhile.
CUresult PinnedPool::populate(uint64_t address, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes; done += kStep) {
    const uint64_t step = std::min(kStep, bytes - done);
    if (fallocate(fd_.get(), 0, static_cast<off_t>(address + done - space_.base()),
                  static_cast<off_t>(step)) != 0) {
      log_warn("pinned memory: %lu bytes: %s", bytes, std::strerror(errno));
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    // fallocate took the pages, so a failure here (old kernels) only means that they are mapped one
    // by one later.
    (void)madvise(pointer(address + done), step, MADV_POPULATE_WRITE);
  }
  return CUDA_SUCCESS;
}

CUresult PinnedPool::register_now(uint64_t address, uint64_t bytes) {
  return add_registration(registrations_, driver_, Registrant::kPinned, 0, pointer(address), bytes,
                          Registrations::kMapped, Registrations::Need::kNow);
}

// False: the bytes may still be there.
bool PinnedPool::punch(uint64_t address, uint64_t bytes) {
  if (bytes == 0) return true;
  const int answer =
      fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(address - space_.base()), static_cast<off_t>(bytes));
  if (answer != 0)
    log_warn("pinned memory: no hole for %lu bytes: %s", bytes, std::strerror(errno));
  return answer == 0;
}

void PinnedPool::finish_work() {
  {
    std::lock_guard lock(mutex_);
    --working_;
  }
  worked_.notify_all();
}

// New addresses, filled without the lock; on success mutex_ is held by the time `keep` is called.
CUresult PinnedPool::with_place(uint64_t bytes, const Fill& fill, const Keep& keep) {
  uint64_t address = 0;
  {
    std::lock_guard lock(mutex_);
    if (use_ != Use::kClient || base_ == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    address = space_.allocate(bytes, alignment(bytes));
    if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    ++working_;
  }
  const ScopeGuard worked([this] { finish_work(); });
  const bool fits = take_host(host_, HostUse::kPinned, bytes);
  CUresult error = fits ? populate(address, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
  if (error == CUDA_SUCCESS && fill) error = fill(address);
  if (error != CUDA_SUCCESS && fits) {
    (void)punch(address, bytes);
    give_host(host_, HostUse::kPinned, bytes);
  }
  std::lock_guard lock(mutex_);
  if (error != CUDA_SUCCESS) {
    space_.free(address, bytes);
    return error;
  }
  keep(address);
  publish();
  return CUDA_SUCCESS;
}

CUresult PinnedPool::make(uint64_t bytes, uint64_t* taken) {
  return with_place(
      bytes, [&](uint64_t address) { return register_now(address, bytes); },
      [&](uint64_t address) {
        blocks_.add(address, bytes);
        *taken = blocks_.take(bytes, alignment(bytes));
      });
}

CUresult PinnedPool::touch(uint64_t bytes) {
  return with_place(bytes, {}, [&](uint64_t address) { touched_.emplace(bytes, address); });
}

uint64_t PinnedPool::largest_touched(uint64_t bytes) const {
  std::lock_guard lock(mutex_);
  const auto above = touched_.upper_bound({bytes, UINT64_MAX});
  return above == touched_.begin() ? 0 : std::prev(above)->first;
}

// Of a block that was taken out of touched_.
bool PinnedPool::end_registration(uint64_t address, uint64_t bytes, CUresult error) {
  std::lock_guard lock(mutex_);
  if (error == CUDA_SUCCESS) blocks_.add(address, bytes);
  else touched_.emplace(bytes, address);
  publish();
  return error == CUDA_SUCCESS;
}

uint64_t PinnedPool::take_registering(uint64_t bytes) {
  std::pair<uint64_t, uint64_t> block;
  {
    std::unique_lock lock(mutex_);
    worked_.wait(lock, [&] { return in_hand_bytes_ < bytes; });
    if (const uint64_t address = blocks_.take(bytes, alignment(bytes)); address != 0) {
      publish();
      return address;
    }
    if (use_ != Use::kClient || base_ == 0) return 0;
    const auto found = touched_.lower_bound({bytes, 0});
    if (found == touched_.end()) return 0;
    block = *found;
    touched_.erase(found);
    ++working_;
  }
  const ScopeGuard worked([this] { finish_work(); });
  const CUresult error = register_now(block.second, block.first);
  return end_registration(block.second, block.first, error) ? take(bytes) : 0;
}

PinnedPool::Ahead PinnedPool::register_ahead(uint64_t bytes, uint64_t owner) {
  uint64_t address = 0;
  {
    std::lock_guard lock(mutex_);
    if (use_ != Use::kClient || base_ == 0) return Ahead::kRefused;
    const auto found = touched_.lower_bound({bytes, 0});
    if (found == touched_.end() || found->first != bytes) return Ahead::kNotWanted;
    address = found->second;
  }
  bool claimed = false;
  const auto claim = [&] {
    std::lock_guard lock(mutex_);
    claimed = use_ == Use::kClient && base_ != 0 && touched_.erase({bytes, address}) != 0;
    if (claimed) in_hand_bytes_ = bytes;
    working_ += claimed;
    return claimed;
  };
  const CUresult error =
      add_registration(registrations_, driver_, Registrant::kPinned, owner, pointer(address), bytes,
                       Registrations::kMapped, Registrations::Need::kAhead, claim);
  if (!claimed) return Ahead::kNotWanted;
  const ScopeGuard worked([this] {
    {
      std::lock_guard lock(mutex_);
      in_hand_bytes_ = 0;
    }
    finish_work();
  });
  return end_registration(address, bytes, error) ? Ahead::kMade : Ahead::kRefused;
}

void PinnedPool::look() {
  std::lock_guard lock(mutex_);
  (void)watch_->alive(fd_.get(), true);
}

void PinnedPool::leave(bool reusable, uint64_t now_ns) {
  std::lock_guard lock(mutex_);
  use_ = reusable ? Use::kLeft : Use::kEnding;
  if (!reusable && working_ == 0) fd_.reset();
  left_ns_ = now_ns;
  blocks_.give_all();
  publish();
}

void PinnedPool::abandon() {
  std::lock_guard lock(mutex_);
  use_ = Use::kEnding;
  base_ = 0;
  if (working_ == 0) fd_.reset();
}

// By their addresses. mutex_ is held.
std::vector<PinnedBlocks::Block> PinnedPool::all_blocks() const {
  std::vector<PinnedBlocks::Block> all = blocks_.all();
  for (const auto& [bytes, address] : touched_) all.push_back({address, bytes});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.base < b.base; });
  return all;
}

// Stops when the pool is about to end.
bool PinnedPool::zero(const std::vector<PinnedBlocks::Block>& blocks) {
  uint64_t at = space_.base();
  for (const auto& [base, bytes] : blocks) {
    if (!punch(at, base - at)) return false;
    at = base + bytes;
    for (uint64_t done = 0; done < bytes; done += kSlice) {
      {
        std::lock_guard lock(mutex_);
        if (use_ != Use::kLeft) return false;
      }
      std::memset(pointer(base + done), 0, std::min(kSlice, bytes - done));
    }
  }
  return punch(at, space_.base() + windows::kPinnedSlotBytes - at);
}

bool PinnedPool::wipe() {
  std::vector<PinnedBlocks::Block> blocks;
  {
    std::lock_guard lock(mutex_);
    if (use_ != Use::kLeft || base_ == 0 || watch_->alive(fd_.get(), true)) return false;
    blocks = all_blocks();
    wiping_ = true;
    ++working_;
  }
  const ScopeGuard worked([this] { finish_work(); });
  const bool wiped = zero(blocks);
  std::lock_guard lock(mutex_);
  wiping_ = false;
  if (wiped && use_ == Use::kLeft) use_ = Use::kReady;
  return wiped;
}

bool PinnedPool::ready() const {
  std::lock_guard lock(mutex_);
  return use_ == Use::kReady;
}

bool PinnedPool::reusable() const {
  std::lock_guard lock(mutex_);
  return use_ == Use::kLeft || use_ == Use::kReady;
}

bool PinnedPool::empty() const {
  std::lock_guard lock(mutex_);
  return blocks_.empty() && touched_.empty() && working_ == 0;
}

void PinnedPool::begin() {
  std::lock_guard lock(mutex_);
  use_ = Use::kClient;
  left_ns_ = 0;
  watch_.emplace();
}

uint64_t PinnedPool::left_ns() const {
  std::lock_guard lock(mutex_);
  return left_ns_;
}

void PinnedPool::settle() {
  std::unique_lock lock(mutex_);
  use_ = Use::kEnding;
  worked_.wait(lock, [this] { return working_ == 0; });
  fd_.reset();
}

void PinnedPool::unregister(uint64_t address) {
  const CUresult error =
      remove_registration(registrations_, driver_, Registrant::kPinned, pointer(address));
  if (error != CUDA_SUCCESS)
    log_warn("pinned memory at 0x%lx stays registered: %s", address,
             result_text(driver_, error).c_str());
}

void PinnedPool::close() {
  settle();
  std::vector<PinnedBlocks::Block> blocks;
  uint64_t slot = 0, pages = 0;
  {
    std::lock_guard lock(mutex_);
    slot = std::exchange(base_, 0);
    if (slot == 0) return;
    blocks = blocks_.all();
    pages = held_bytes() + leaving_bytes();
    blocks_ = {};
    touched_.clear();
    publish();
  }
  for (const auto& [base, bytes] : blocks) unregister(base);
  reserve_slot(slot);
  give_host(host_, HostUse::kPinned, pages);
}

void PinnedPool::unregister_idle(uint64_t bytes) {
  std::vector<PinnedBlocks::Block> idle;
  {
    std::lock_guard lock(mutex_);
    if (wiping_ || base_ == 0) return;
    uint64_t sum = 0;
    for (; !touched_.empty() && sum < bytes; touched_.erase(std::prev(touched_.end()))) {
      const auto& [size, base] = *touched_.rbegin();
      unregistered_.push_back({base, size});
      leaving_bytes_ += size;
      sum += size;
    }
    if (sum < bytes) idle = blocks_.remove_idle(bytes - sum);
    for (const auto& [base, size] : idle) leaving_bytes_ += size;
    publish();
    ++working_;
  }
  const ScopeGuard worked([this] { finish_work(); });
  for (const auto& [base, size] : idle) unregister(base);
  std::lock_guard lock(mutex_);
  unregistered_.insert(unregistered_.end(), idle.begin(), idle.end());
}

void PinnedPool::release_unregistered() {
  std::vector<PinnedBlocks::Block> gone;
  {
    std::lock_guard lock(mutex_);
    gone.swap(unregistered_);
    if (base_ == 0 || !fd_.valid()) return;
    ++working_;
  }
  const ScopeGuard worked([this] { finish_work(); });
  for (const auto& [base, bytes] : gone) (void)punch(base, bytes);
  std::lock_guard lock(mutex_);
  for (const auto& [base, bytes] : gone) {
    space_.free(base, bytes);
    leaving_bytes_ -= bytes;
    give_host(host_, HostUse::kPinned, bytes);
  }
}

}  // namespace tube::proxy
