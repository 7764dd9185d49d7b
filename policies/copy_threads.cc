#include "policies/copy_threads.h"

#include <algorithm>

namespace tube::policies {

uint32_t idle_cores(const HostLoad& load) {
  const uint64_t machine = std::max(load.machine_cores, load.usable_cores);
  const uint64_t others = load.runnable > 1 ? load.runnable - 1 : 0;
  const uint64_t here = (others * load.usable_cores + machine - 1) / std::max<uint64_t>(machine, 1);
  const uint64_t taken = here + 1;  // and the calling thread
  return load.usable_cores > taken ? static_cast<uint32_t>(load.usable_cores - taken) : 0;
}

uint32_t copy_helpers(uint64_t bytes, const HostLoad& load, std::optional<uint64_t> asked) {
  if (bytes < kLargeCopyBytes) return 0;
  if (asked.has_value())
    return static_cast<uint32_t>(
        std::min<uint64_t>(*asked == 0 ? 0 : *asked - 1, kMostCopyHelpers));
  const uint64_t worth = std::min<uint64_t>(bytes / kBytesPerHelper, kMostCopyHelpers);
  return static_cast<uint32_t>(std::min<uint64_t>(idle_cores(load) / 2, worth));
}

uint64_t next_piece(uint64_t done, uint64_t left, uint64_t largest) {
  const uint64_t wanted = std::min(done, left) / 4 / kSliceBytes * kSliceBytes;
  return std::min(left, std::clamp(wanted, kLeastPieceBytes, largest));
}

}  // namespace tube::policies
