// The address windows that a proxy and its function processes agree on.
//
// Device pointers and pinned host pointers sit inside kernel parameters and in the data kernels
// read, so they must mean the same in the proxy, in the function process and on the GPU. Both
// processes therefore reserve the same address range before anything else can land there: the proxy
// for the driver (cuMemAddressReserve honours hints in this region), the function process with an
// inaccessible mapping. There are four candidates; the client reports which are free in it and the
// proxy picks the first that it has or can get, while that has room (address_windows.h). A window
// is 16 TiB: the lower half for device memory of all GPUs, the upper half cut into one pinned slot
// per client.
//
// ThreadSanitizer keeps its own tables where the windows are and leaves programs the first half TiB
// (and the top of the address space, which the kernel hands out). Its builds, which only ever meet
// the simulated GPU, have windows of 64 GiB there.
#pragma once

#include <cstdint>

#include "base/sanitizer.h"

namespace tube::windows {

inline constexpr uint32_t kCandidates = 4;
inline constexpr uint64_t kWindowBytes =
    kThreadSanitizer ? 64ull << 30 : 0x1000'0000'0000ull;  // 16 TiB
inline constexpr uint32_t kMaxClients = 128;
inline constexpr uint64_t kPinnedSlotBytes = kWindowBytes / 2 / kMaxClients;  // 64 GiB
static_assert(kThreadSanitizer || kPinnedSlotBytes == 64ull << 30);
// Behind those of the clients there is one more slot, the host memory of the workflow's store,
// which every client that uses the store maps.
inline constexpr uint32_t kStoreSlot = kMaxClients;
inline constexpr uint64_t kDeviceBytes = kWindowBytes / 2 - kPinnedSlotBytes;  // 8 TiB less a slot

constexpr uint64_t device_base(uint32_t candidate) { return (candidate + 1) * kWindowBytes; }
constexpr uint64_t pinned_base(uint32_t candidate, uint32_t client_slot) {
  return device_base(candidate) + kDeviceBytes + client_slot * kPinnedSlotBytes;
}

}  // namespace tube::windows
