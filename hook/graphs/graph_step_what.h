// What a step of a graph does on the CPU, without its place: the key under which equal steps share
// one tag (graph_steps.cc).
//
// Compared bytewise, for CUDA's struct of a copy has 25 members. It also has padding, 4 bytes
// behind each memory type, in which programs have whatever was on their stack: it is zeroed, or
// each call with the same copy would get a tag of its own and none is ever given back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/cuda_api.h"
#include "protocol/wire.gen.h"

namespace tube::hook {

struct StepWhat {
  CUhostFn function;
  void* data;
  CUDA_MEMCPY3D copy;
  wire::StepDirection direction;
  uint32_t reserved;

  struct Less {
    bool operator()(const StepWhat& a, const StepWhat& b) const {
      const auto left = std::as_bytes(std::span(&a, 1)), right = std::as_bytes(std::span(&b, 1));
      return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end());
    }
  };
};

inline StepWhat what_of(CUhostFn function, void* data) {
  StepWhat what;
  std::memset(static_cast<void*>(&what), 0, sizeof what);
  what.function = function;
  what.data = data;
  return what;
}

inline StepWhat what_of(const CUDA_MEMCPY3D& copy, wire::StepDirection direction) {
  constexpr size_t kType = sizeof(CUmemorytype);
  static_assert(offsetof(CUDA_MEMCPY3D, srcHost) ==
                offsetof(CUDA_MEMCPY3D, srcMemoryType) + kType + 4);
  static_assert(offsetof(CUDA_MEMCPY3D, dstHost) ==
                offsetof(CUDA_MEMCPY3D, dstMemoryType) + kType + 4);
  StepWhat what;
  std::memset(static_cast<void*>(&what), 0, sizeof what);
  auto* bytes = reinterpret_cast<std::byte*>(&what.copy);
  std::memcpy(bytes, &copy, sizeof copy);
  std::memset(bytes + offsetof(CUDA_MEMCPY3D, srcMemoryType) + kType, 0, 4);
  std::memset(bytes + offsetof(CUDA_MEMCPY3D, dstMemoryType) + kType, 0, 4);
  what.direction = direction;
  return what;
}

}  // namespace tube::hook
