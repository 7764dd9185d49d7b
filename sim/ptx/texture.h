// What a texture or surface handle means to the interpreter, and how a texture is read.
//
// Addresses are device addresses: each texel is asked of the launch's Memory, so memory that went
// away faults as any access does. Filtering follows the CUDA programming guide's appendix on
// texture fetching: coordinates become fixed-point numbers with eight fraction bits, so filter
// weights are multiples of 1/256, and sums are taken in float.
#pragma once

#include <cstdint>
#include <vector>

namespace tube::sim::ptx {

struct Launch;

struct TextureLevel {
  uint64_t address = 0;
  uint32_t width = 1, height = 1, depth = 1;  // elements, rows, slices
  uint64_t row_bytes = 0, slice_bytes = 0;    // to the next row; to the next slice, layer or face
};

struct Texture {
  enum class Component : uint8_t { kUnsigned, kSigned, kHalf, kFloat };
  enum class Address : uint8_t { kWrap, kClamp, kMirror, kBorder };  // values of CUaddress_mode

  std::vector<TextureLevel> levels;  // at least one
  uint32_t layers = 0;  // of 1D or 2D layered ones and cubemaps (six per cube); 0: not layered
  bool cube = false;
  bool buffer = false;  // linear memory: fetched by index, outside of it reads zero
  Component component = Component::kFloat;
  uint32_t component_bytes = 4;
  uint32_t channels = 1;
  bool normalized_read = false;  // integers are read as floats in [0, 1] or [-1, 1]
  bool srgb = false;
  bool normalized_coordinates = false;
  bool linear_filter = false, linear_mipmap = false;
  Address address[3] = {};
  float bias = 0, lowest_level = 0, highest_level = 0;
  float border[4] = {};

  uint32_t element_bytes() const { return component_bytes * channels; }
  bool reads_float() const {
    return normalized_read || component == Component::kHalf || component == Component::kFloat;
  }
};

// Where to read, one lane.
struct TexturePoint {
  float at[3] = {};  // coordinates, where `integer` is false
  int32_t index[3] = {};
  bool integer = false;  // unnormalised and unfiltered
  uint32_t dimensions = 2;
  uint32_t layer = 0;
  bool layered = false;
  bool cube = false;
  float level = 0;  // of detail, before bias and clamp
};

// Four 32-bit results as registers take them. False: memory behind a texel cannot be read, *bad
// says where.
bool sample(Launch& launch, const Texture& texture, const TexturePoint& point, uint32_t (&out)[4],
            uint64_t* bad);
// The four texels that a bilinear filter would read, one component of each, counter-clockwise from
// (0, 1) as tld4 has them.
bool gather(Launch& launch, const Texture& texture, const TexturePoint& point, uint32_t component,
            uint32_t (&out)[4], uint64_t* bad);

}  // namespace tube::sim::ptx
