// The machine's page: what mappings, and what is pinned of them, are whole multiples of.
#pragma once

#include <cstdint>

namespace tube {

inline constexpr uint64_t kPage = 4096;  // bytes

}  // namespace tube
