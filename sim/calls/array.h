// CUDA arrays and mipmapped arrays: plain pitched memory, rows one behind the other, slices (or
// layers) one behind the other.
#pragma once

#include "sim/machine/state.h"

namespace tube::sim {

// A mipmapped array: levels are arrays that it owns and that share one allocation.
struct Mipmap {
  Context* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  uint64_t base = 0;  // in the address map
  std::vector<std::unique_ptr<Array>> levels;
};

// All of these with the lock held.
// Arrays and mipmapped arrays of a context that ends; their memory goes with the context's ranges.
void forget_arrays(State& s, const Context* context);

}  // namespace tube::sim
