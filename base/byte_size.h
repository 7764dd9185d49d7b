// Sizes as people write them: 4G, 512M, 1048576. Any thread; no state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tube {

// A whole number above 0, in bytes or followed by one of K, M, G, T (powers of 1024; small letters
// are the same). Anything else, also what 64 bits do not hold, is an error in words.
Result<uint64_t> parse_byte_size(std::string_view text);

// The same for a limit: `none` is UINT64_MAX.
Result<uint64_t> parse_byte_limit(std::string_view text);

// One limit for all GPUs, or one for each with commas between them: 20G,none,10G.
Result<std::vector<uint64_t>> parse_byte_limits(std::string_view text);

// What parse_byte_limit reads again: the number in bytes, or none.
std::string byte_limit_text(uint64_t limit_bytes);
std::string byte_limits_text(const std::vector<uint64_t>& limits_bytes);

}  // namespace tube
