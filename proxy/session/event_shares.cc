#include "proxy/session/event_shares.h"

#include <cstring>

#include "protocol/driver_table.gen.h"
#include "proxy/memory/memory_shares.h"

namespace tube::proxy {

namespace {

constexpr uint64_t kOwnMagic = 0x3154564545425554ull;  // "TUBEEVT1"

// Where the driver cannot make events visible to other processes (some virtual machines), those of
// this proxy still can be.
bool only_here(CUresult error) {
  return error == CUDA_ERROR_NOT_SUPPORTED || error == CUDA_ERROR_MAP_FAILED ||
         error == CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace

EventShares::EventShares() = default;
EventShares::~EventShares() = default;

CUresult EventShares::share(const Driver& driver, uint64_t session, CUevent event, Handle* handle) {
  std::lock_guard lock(mutex_);
  if (auto known = by_event_.find(event); known != by_event_.end()) {
    if (records_[known->second].session != session)
      return CUDA_ERROR_INVALID_HANDLE;  // only its maker gives handles out
    *handle = known->second;
    return CUDA_SUCCESS;
  }
  CUipcEventHandle raw{};
  const CUresult error = driver.cuIpcGetEventHandle(&raw, event);
  if (error != CUDA_SUCCESS && !only_here(error)) return error;
  std::memcpy(handle->data(), &raw, sizeof(raw));
  if (error != CUDA_SUCCESS) *handle = {kOwnMagic, random_bits(), random_bits(), random_bits()};
  records_[*handle] = Record{event, session, 1};
  by_event_[event] = *handle;
  count_.fetch_add(1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult EventShares::open(const Handle& untrusted_handle, uint64_t session, CUevent* event) {
  std::lock_guard lock(mutex_);
  auto found = records_.find(untrusted_handle);
  if (found == records_.end())
    return untrusted_handle[0] == kOwnMagic ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_NOT_FOUND;
  if (found->second.session == session) return CUDA_ERROR_INVALID_CONTEXT;
  ++found->second.owners;
  *event = found->second.event;
  return CUDA_SUCCESS;
}

bool EventShares::let_go(CUevent event) {
  if (count_.load(std::memory_order_relaxed) == 0) return true;
  std::lock_guard lock(mutex_);
  auto known = by_event_.find(event);
  if (known == by_event_.end()) return true;
  auto record = records_.find(known->second);
  if (--record->second.owners != 0) return false;
  records_.erase(record);
  by_event_.erase(known);
  count_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

}  // namespace tube::proxy
