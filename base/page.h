#pragma once

#include <cstdint>

namespace tube {

inline constexpr uint64_t kPage = 4096;  // bytes, of the machine's memory

}  // namespace tube
