// The program's own cuMemAddressReserve ranges (calls/vmm.cc). Any thread.
#pragma once

#include <cstdint>

namespace tube::hook {

// The reservation that holds the address. False: none does.
bool reservation_of(uint64_t address, uint64_t* base, uint64_t* bytes);

}  // namespace tube::hook
