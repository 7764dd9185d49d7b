// The device list as one program sees it.
#pragma once

#include <string>

#include "sim/machine/state.h"

namespace tube::sim {

// Makes State::devices from the topology: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are applied
// here.
void make_devices(State& s, const TopologySpec& spec, std::string* error);

// Can the context of device `a` touch memory of `b` after cuCtxEnablePeerAccess?
bool peer_capable(const State& s, const Device& a, const Device& b);

}  // namespace tube::sim
