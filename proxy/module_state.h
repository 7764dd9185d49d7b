// What the proxy keeps about a client's libraries, modules and kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/cuda_api.h"
#include "proxy/image_store.h"
#include "proxy/objects.h"

namespace tube::proxy {

struct ModuleState final : ObjectState {
  std::shared_ptr<const Image> image;  // the driver may read it until the unload
  std::vector<uint64_t> globals;       // bases of the variables the client asked for, in Ranges
};

struct KernelParameter {  // as tubeGetKernel's reply carries it
  uint32_t offset;
  uint32_t size;
};

struct KernelState final : ObjectState {
  CUfunction function = nullptr;       // a CUkernel cast, or a module's function: both launch
  bool is_library_kernel = false;
  const std::string* name = nullptr;   // interned
  uint32_t parameter_count = 0;
  uint32_t parameter_bytes = 0;        // end of the last parameter
  uint32_t writes = 0;                 // wire::kKernelPrints, wire::kKernelAsserts
};

}  // namespace tube::proxy
