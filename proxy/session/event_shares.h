// Events of several functions of this proxy: one driver event under an id of each of them.
//
// The handle that cuIpcGetEventHandle gives is the driver's own, so other proxies and programs
// without Tube can open it too. A function of the same proxy gets the very event: its record is the
// driver's, whoever made it. The event is destroyed when the last of its owners has destroyed it.
// Any thread; `mutex_` (rank 15), not held across driver calls that wait.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Driver;

class EventShares {
 public:
  EventShares();
  ~EventShares();
  EventShares(const EventShares&) = delete;
  EventShares& operator=(const EventShares&) = delete;

  using Handle = std::array<uint64_t, 8>;
  static_assert(sizeof(Handle) == sizeof(CUipcEventHandle));

  // The handle of an event of `session`; the same one again while it lives. The driver's errors.
  // Needs its context.
  CUresult share(const Driver& driver, uint64_t session, CUevent event, Handle* handle);
  // One more owner of the event that `handle` names here. CUDA_ERROR_NOT_FOUND: it is none of this
  // proxy's; CUDA_ERROR_INVALID_CONTEXT: it is the session's own.
  CUresult open(const Handle& untrusted_handle, uint64_t session, CUevent* event);
  // An owner is done with it. True: it was the only one, and destroys it. One load while nothing is
  // shared.
  bool let_go(CUevent event);

 private:
  struct Record {
    CUevent event = nullptr;
    uint64_t session = 0;
    uint32_t owners = 1;
  };
  std::atomic<uint32_t> count_{0};
  std::mutex mutex_;
  std::map<Handle, Record> records_;
  std::map<CUevent, Handle> by_event_;
};

}  // namespace tube::proxy
