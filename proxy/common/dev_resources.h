// Parts of GPUs for green contexts. The driver's structs hold what is the driver's business, so the
// client names them by number. No call destroys one, so equal ones are kept once
// (calls/green.cc). A session's; its thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cuda_api.h"

namespace tube::proxy {

struct DevResources {
  struct Description {
    std::vector<uint64_t> resources;  // their numbers
    CUdevResourceDesc handle = nullptr;
  };
  std::vector<CUdevResource> resources;
  std::vector<Description> descriptions;
};

}  // namespace tube::proxy
