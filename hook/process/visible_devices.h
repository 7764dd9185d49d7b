// CUDA_VISIBLE_DEVICES, which natively lives inside libcuda: which of the proxy's GPUs the program
// sees, in which order.
//
// Entries are ordinals of the proxy (CUDA_DEVICE_ORDER=PCI_BUS_ID: counted along the bus) or UUIDs
// ("GPU-" and at least the beginning of the hexadecimal form), separated by commas. As in the
// driver (measured on an H200) the list is all of one kind and ends before the first entry of the
// other kind or that names no GPU; unset gives all, empty gives none; a GPU named twice, or another
// word in CUDA_DEVICE_ORDER, is an error of cuInit.
#pragma once

#include <cstdint>

#include "protocol/device_info.h"

namespace tube::hook {

// cuInit answers CUDA_ERROR_INVALID_DEVICE.
inline constexpr uint32_t kBadVisibleDevices = ~0u;

// Fills `chosen` (room for kMaxDevices) with proxy ordinals; returns how many, or
// kBadVisibleDevices. `text`, `order_by` nullptr: unset.
uint32_t choose_visible_devices(const char* text, const char* order_by,
                                const info::DeviceInfo* devices, uint32_t count, uint32_t* chosen);
// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" of 16 bytes, into 41 chars.
void format_uuid(const uint8_t uuid[16], char out[41]);

}  // namespace tube::hook
