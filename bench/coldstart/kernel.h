// What all programs of this bench compute: out[i] = a[i] * 3 + b[i] over kCount numbers, and how they check it.
#pragma once

#include <cstdint>

constexpr int kCount = 1 << 14;  // 64 KiB per array: one chunk of staging, not inline

inline uint32_t input_a(int i) { return static_cast<uint32_t>(i) * 2654435761u; }
inline uint32_t input_b(int i) { return static_cast<uint32_t>(i) ^ 0x5bd1e995u; }
inline uint32_t expected(int i) { return input_a(i) * 3 + input_b(i); }
