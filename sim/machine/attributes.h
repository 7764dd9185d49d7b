// The attributes of a device, and the limits of its multiprocessors.
#pragma once

#include "sim/machine/state.h"

namespace tube::sim {

// False for an id the driver does not know.
bool device_attribute(const Device& device, CUdevice_attribute attribute, int* value);

// Limits that launches and occupancy are computed with.
struct SmLimits {
  int max_threads = 2048;
  int max_blocks = 32;
  int registers = 65536;
  int shared_per_sm = 0;
  int shared_per_block = 49152;
  int shared_per_block_optin = 0;
  int reserved_shared = 1024;
};
SmLimits sm_limits(int sm);

}  // namespace tube::sim
