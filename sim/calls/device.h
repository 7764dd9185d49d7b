// The device list as one program sees it, and the table of its attributes.
#pragma once

#include <string>

#include "sim/machine/state.h"

namespace tube::sim {

// Makes State::devices from the topology: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are applied
// here.
void make_devices(State& s, const TopologySpec& spec, std::string* error);

// False for an id the driver does not know.
bool device_attribute(const Device& device, CUdevice_attribute attribute, int* value);

// Can the context of device `a` touch memory of `b` after cuCtxEnablePeerAccess?
bool peer_capable(const State& s, const Device& a, const Device& b);

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
