// The plain formats of CUDA arrays: what an element takes, which hook, proxy and simulated GPU must
// agree on.
#pragma once

#include <cstdint>

#include "base/cuda_api.h"

namespace tube {

// Bytes per element; 0 for a format without a plain layout (block compressed, planar video) or a
// wrong channel count. `format` is a number: it may come from outside and be no value of
// CUarray_format.
constexpr uint32_t array_element_bytes(uint32_t format, uint32_t channels) {
  const bool packed = channels == 1 || channels == 2 || channels == 4;
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return packed ? channels : 0;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return packed ? 2 * channels : 0;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return packed ? 4 * channels : 0;
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1: return channels == 1 ? 1 : 0;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2: return channels == 2 ? 2 : 0;
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4: return channels == 4 ? 4 : 0;
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1: return channels == 1 ? 2 : 0;
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2: return channels == 2 ? 4 : 0;
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4: return channels == 4 ? 8 : 0;
    default: return 0;
  }
}

}  // namespace tube
