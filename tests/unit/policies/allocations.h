// How often this test program has called operator new.
#pragma once

#include <cstdint>

namespace tube::policies {
uint64_t allocations();
}
