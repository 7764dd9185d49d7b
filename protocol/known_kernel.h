// What a proxy already knows about an image's kernels, sent with the answer to its load: looking
// one of them up then needs no answer. An entry is KnownKernel, then
// KernelParameter[parameter_count], then the name, padded to 8 bytes.
#pragma once

#include <cstdint>

#include "protocol/device_info.h"
#include "protocol/wire.gen.h"

namespace tube::wire {

struct KnownKernel {
  uint32_t entry_bytes;  // with everything that follows; a multiple of 8
  uint32_t name_bytes;   // without a NUL
  uint32_t parameter_count;
  uint32_t parameter_bytes;  // end of the last parameter
  uint32_t writes;           // wire::kKernelPrints, wire::kKernelAsserts
  uint32_t reserved;
  KernelAttribute attributes[info::kFunctionAttributeCount];  // CUfunction_attribute 0, 1, ...
};
static_assert(sizeof(KnownKernel) == 24 + info::kFunctionAttributeCount * 8);

}  // namespace tube::wire
