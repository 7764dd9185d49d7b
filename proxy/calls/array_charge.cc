#include "proxy/calls/array_charge.h"

#include <algorithm>
#include <cstring>

#include "base/cuda_api.h"
#include "protocol/array_format.h"

namespace tube::proxy {
namespace {

template <class D>
void read(const unsigned char* bytes, D* descriptor) {
  std::memcpy(descriptor, bytes, sizeof(*descriptor));
}

// The driver's structs, with a number in the place of the enumeration.
struct Flat {
  uint64_t width, height;
  uint32_t format, channels;
};
struct Deep {
  uint64_t width, height, depth;
  uint32_t format, channels, flags, padding;
};
static_assert(sizeof(Flat) == sizeof(CUDA_ARRAY_DESCRIPTOR));
static_assert(sizeof(Deep) == sizeof(CUDA_ARRAY3D_DESCRIPTOR));

uint64_t element_bytes(const ArrayShape& shape) {
  if (const uint32_t plain = array_element_bytes(shape.format, shape.channels)) return plain;
  const bool compressed =
      shape.format >= CU_AD_FORMAT_BC1_UNORM && shape.format <= CU_AD_FORMAT_BC7_UNORM_SRGB;
  return compressed ? 1 : 4;
}

uint64_t times(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

}  // namespace

ArrayShape array_shape(const unsigned char (&untrusted_descriptor)[24]) {
  Flat flat;
  read(untrusted_descriptor, &flat);
  return {flat.width, flat.height, 0, flat.format, flat.channels, 0};
}

ArrayShape array_shape(const unsigned char (&untrusted_descriptor)[40]) {
  Deep deep;
  read(untrusted_descriptor, &deep);
  return {deep.width, deep.height, deep.depth, deep.format, deep.channels, deep.flags};
}

uint64_t array_bytes(const ArrayShape& shape, uint32_t levels) {
  if ((shape.flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) return 0;
  const bool layered = (shape.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  uint64_t width = shape.width, height = shape.height, depth = shape.depth, sum = 0;
  for (uint32_t level = 0; level < std::min(levels, 64u); ++level) {
    const uint64_t elements =
        times(times(std::max<uint64_t>(width, 1), std::max<uint64_t>(height, 1)),
              std::max<uint64_t>(depth, 1));
    if (__builtin_add_overflow(sum, times(elements, element_bytes(shape)), &sum)) return UINT64_MAX;
    if (width <= 1 && height <= 1 && (layered || depth <= 1)) break;
    width /= 2;
    height /= 2;
    if (!layered) depth /= 2;
  }
  return sum;
}

}  // namespace tube::proxy
