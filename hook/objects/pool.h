// A memory pool of the program, as the hook keeps it: a name with attributes and figures
// (calls/pool.cc, calls/pool_share.cc).
#pragma once

#include <cstdint>

#include "base/cuda_api.h"
#include "hook/process/objects.h"
#include "protocol/device_info.h"

namespace tube::hook {

struct Pool {
  Slot* slot = nullptr;
  uint32_t visible_device = 0;
  uint64_t release_threshold = 0;
  int32_t reuse[3] = {1, 1, 1};
  int32_t access[info::kMaxDevices] = {};  // CUmemAccess_flags by visible device, as asked for
  bool shareable = false;                  // made with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  bool imported = false;                   // another process's: nothing can be allocated from it
  uint64_t max_bytes = 0;                  // 0: as much as there is
  uint64_t used = 0, used_high = 0;        // bytes the program has from it
  uint64_t taken = 0, taken_high = 0;      // the same as it is taken from the proxy; never set back
  uint64_t asked_for = 0;                  // bytes that allocations under way may add to them
  uint64_t reserved = 0, reserved_high = 0;
};

// nullptr: no such pool.
Pool* find_pool(CUmemoryPool handle);
CUmemoryPool handle_of(const Pool* pool);
// nullptr: out of memory.
Pool* make_pool(uint32_t visible_device);

}  // namespace tube::hook
