// How a device of NVML's is named where both sides know it.
#pragma once

#include "nvml/nvml_abi.h"

namespace tube::nvml {

inline constexpr unsigned kUuidBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

// "GPU-..." of a handle of the real library; false: it has none to tell.
bool read_uuid(nvmlDevice_t device, char uuid[kUuidBytes]);

}  // namespace tube::nvml
