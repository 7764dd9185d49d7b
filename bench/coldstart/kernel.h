// What all programs of this bench compute: out[i] = a[i] * 3 + b[i] over kCount numbers, and how
// they check it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <vector>

constexpr int kCount = 1 << 14;  // 64 KiB per array: one chunk of staging, not inline

inline uint32_t input_a(int i) { return static_cast<uint32_t>(i) * 2654435761u; }
inline uint32_t input_b(int i) { return static_cast<uint32_t>(i) ^ 0x5bd1e995u; }
inline uint32_t expected(int i) { return input_a(i) * 3 + input_b(i); }

// False, with the first wrong number on stderr.
inline bool as_expected(const std::vector<uint32_t>& out) {
  for (int i = 0; i < kCount; ++i) {
    if (out[i] == expected(i)) continue;
    fprintf(stderr, "element %d is %u instead of %u\n", i, out[i], expected(i));
    return false;
  }
  return true;
}
