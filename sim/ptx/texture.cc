// Reading textures: addressing, decoding, filtering. See texture.h for the rules.
#include "sim/ptx/texture.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "sim/ptx/exec.h"
#include "sim/ptx/half.h"

namespace tube::sim::ptx {
namespace {

constexpr int64_t kFraction = 256;  // filter weights in 1/256

// One texel, decoded: floats or integer bits, as the texture is read.
struct Texel {
  float f[4] = {};
  uint32_t u[4] = {};
};

float from_srgb(float c) {
  return c <= 0.04045f ? c / 12.92f : std::pow((c + 0.055f) / 1.055f, 2.4f);
}

class Reader {
 public:
  Reader(Launch& launch, const Texture& texture, const TextureLevel& level, uint32_t dimensions,
         uint64_t slice)
      : launch_(launch), t_(texture), level_(level), dimensions_(dimensions), slice_(slice) {}

  // Texel at whole coordinates, address modes applied. False: not readable.
  bool read(const int64_t (&index)[3], Texel* out) {
    const uint32_t size[3] = {level_.width, level_.height, level_.depth};
    uint64_t at[3] = {};
    for (uint32_t d = 0; d < dimensions_; ++d) {
      const int64_t i = wrap(index[d], size[d], t_.address[d]);
      if (i < 0) {
        *out = border();
        return true;
      }
      at[d] = static_cast<uint64_t>(i);
    }
    const uint64_t address = level_.address + (slice_ + at[2]) * level_.slice_bytes +
                             at[1] * level_.row_bytes + at[0] * t_.element_bytes();
    const std::byte* p = launch_.global(address, t_.element_bytes(), false);
    if (p == nullptr) {
      bad = address;
      return false;
    }
    decode(p, out);
    return true;
  }

  uint64_t bad = 0;

 private:
  // -1: outside, where the border (or nothing) is.
  int64_t wrap(int64_t i, int64_t n, Texture::Address mode) const {
    if (i >= 0 && i < n) return i;
    if (t_.buffer) return -1;
    // Repeating needs normalised coordinates; otherwise the edge is repeated.
    if (!t_.normalized_coordinates && mode != Texture::Address::kBorder)
      mode = Texture::Address::kClamp;
    switch (mode) {
      case Texture::Address::kWrap: return ((i % n) + n) % n;
      case Texture::Address::kClamp: return i < 0 ? 0 : n - 1;
      case Texture::Address::kMirror: {
        const int64_t m = ((i % (2 * n)) + 2 * n) % (2 * n);
        return m < n ? m : 2 * n - 1 - m;
      }
      case Texture::Address::kBorder: return -1;
    }
    return -1;
  }

  Texel border() const {
    Texel out;
    if (t_.buffer) return out;
    for (uint32_t c = 0; c < 4; ++c) {
      out.f[c] = t_.border[c];
      out.u[c] = std::bit_cast<uint32_t>(t_.border[c]);
    }
    return out;
  }

  void decode(const std::byte* p, Texel* out) const {
    *out = {};  // channels that are not there read zero
    for (uint32_t c = 0; c < t_.channels; ++c) {
      uint32_t bits = 0;
      std::memcpy(&bits, p + c * t_.component_bytes, t_.component_bytes);
      decode_component(bits, c, out);
    }
  }

  void decode_component(uint32_t bits, uint32_t c, Texel* out) const {
    const uint32_t width = t_.component_bytes * 8;
    switch (t_.component) {
      case Texture::Component::kFloat: out->f[c] = std::bit_cast<float>(bits); break;
      case Texture::Component::kHalf: out->f[c] = half_to_float(static_cast<uint16_t>(bits)); break;
      case Texture::Component::kUnsigned:
        out->u[c] = bits;
        out->f[c] = static_cast<float>(bits) / static_cast<float>((uint64_t{1} << width) - 1);
        if (t_.srgb && c < 3) out->f[c] = from_srgb(out->f[c]);
        break;
      case Texture::Component::kSigned: {
        const auto value = static_cast<int32_t>(bits << (32 - width)) >> (32 - width);
        out->u[c] = static_cast<uint32_t>(value);
        out->f[c] = std::max(
            static_cast<float>(value) / static_cast<float>((uint64_t{1} << (width - 1)) - 1),
            -1.0f);
        break;
      }
    }
  }

  Launch& launch_;
  const Texture& t_;
  const TextureLevel& level_;
  uint32_t dimensions_;
  uint64_t slice_;
};

// A coordinate in elements. What is not a number, or far outside, stays within what 64-bit
// arithmetic holds.
double to_elements(const Texture& t, float coordinate, uint32_t size, Texture::Address mode) {
  double u = std::isfinite(coordinate) ? static_cast<double>(coordinate) : 0.0;
  if (t.normalized_coordinates) {
    if (mode == Texture::Address::kWrap) u -= std::floor(u);
    u *= size;
  }
  return std::clamp(u, -1e12, 1e12);
}

// Where filtering starts along one dimension: the lower texel and the weight of the one above.
struct Tap {
  int64_t low = 0;
  int64_t weight = 0;  // of 256
};

Tap tap(double u) {
  const auto fixed = static_cast<int64_t>(std::floor((u - 0.5) * kFraction + 0.5));
  return {fixed >> 8, fixed & (kFraction - 1)};
}

struct Place {
  const TextureLevel* level;
  uint32_t dimensions;
  uint64_t slice;
  float at[3];
};

// The face that a direction meets and the coordinates on it, by the table of the CUDA programming
// guide.
uint32_t cube_face(const float (&v)[3], float* s, float* t) {
  const float x = v[0], y = v[1], z = v[2], ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  uint32_t face;
  float m, u, w;
  if (ax >= ay && ax >= az) {
    face = x >= 0 ? 0 : 1, m = ax, u = x >= 0 ? -z : z, w = -y;
  } else if (ay >= az) {
    face = y >= 0 ? 2 : 3, m = ay, u = x, w = y >= 0 ? z : -z;
  } else {
    face = z >= 0 ? 4 : 5, m = az, u = z >= 0 ? x : -x, w = -y;
  }
  *s = m == 0 ? 0.5f : (u / m + 1.0f) * 0.5f;
  *t = m == 0 ? 0.5f : (w / m + 1.0f) * 0.5f;
  return face;
}

Place place_of(const Texture& t, const TexturePoint& p, uint32_t level) {
  Place place{&t.levels[level], p.dimensions, 0, {p.at[0], p.at[1], p.at[2]}};
  const uint32_t per_layer = p.cube ? 6 : 1;
  if (p.layered && t.layers != 0)
    place.slice = std::min(p.layer, t.layers / per_layer - 1) * per_layer;
  // A GPU reads a line as an image of one row, at its upper edge: with a border half of it is mixed
  // in.
  if (p.dimensions == 1 && !t.buffer) {
    place.dimensions = 2;
    place.at[1] = 0;
  }
  if (!p.cube) return place;
  place.slice += cube_face(p.at, &place.at[0], &place.at[1]);
  place.dimensions = 2;
  return place;
}

bool filter(Reader& reader, const Place& place, const double (&u)[3], Texel* out) {
  Tap taps[3];
  for (uint32_t d = 0; d < place.dimensions; ++d) taps[d] = tap(u[d]);
  double sum[4] = {};
  for (uint32_t corner = 0; corner < 1u << place.dimensions; ++corner) {
    int64_t index[3] = {};
    double weight = 1;
    for (uint32_t d = 0; d < place.dimensions; ++d) {
      const bool high = (corner >> d & 1) != 0;
      index[d] = taps[d].low + (high ? 1 : 0);
      weight *= static_cast<double>(high ? taps[d].weight : kFraction - taps[d].weight) / kFraction;
    }
    if (weight == 0) continue;
    Texel texel;
    if (!reader.read(index, &texel)) return false;
    for (int c = 0; c < 4; ++c) sum[c] += weight * static_cast<double>(texel.f[c]);
  }
  for (int c = 0; c < 4; ++c) out->f[c] = static_cast<float>(sum[c]);
  return true;
}

void elements_of(const Texture& t, const Place& place, double (&u)[3]) {
  const uint32_t size[3] = {place.level->width, place.level->height, place.level->depth};
  for (uint32_t d = 0; d < place.dimensions; ++d)
    u[d] = to_elements(t, place.at[d], size[d], t.address[d]);
}

bool sample_level(Launch& launch, const Texture& t, const TexturePoint& p, uint32_t level,
                  Texel* out, uint64_t* bad) {
  const Place place = place_of(t, p, level);
  Reader reader(launch, t, *place.level, place.dimensions, place.slice);
  bool good;
  if (p.integer) {
    const int64_t index[3] = {p.index[0], p.index[1], p.index[2]};
    good = reader.read(index, out);
  } else {
    double u[3] = {};
    elements_of(t, place, u);
    if (t.linear_filter && t.reads_float()) {
      good = filter(reader, place, u, out);
    } else {
      const int64_t index[3] = {static_cast<int64_t>(std::floor(u[0])),
                                static_cast<int64_t>(std::floor(u[1])),
                                static_cast<int64_t>(std::floor(u[2]))};
      good = reader.read(index, out);
    }
  }
  if (!good) *bad = reader.bad;
  return good;
}

}  // namespace

bool sample(Launch& launch, const Texture& t, const TexturePoint& p, uint32_t (&out)[4],
            uint64_t* bad) {
  const auto last = static_cast<float>(t.levels.size() - 1);
  float level = std::isnan(p.level) ? 0 : p.level;
  if (t.levels.size() > 1)
    level = std::clamp(level + t.bias, t.lowest_level, std::max(t.lowest_level, t.highest_level));
  level = std::clamp(level, 0.0f, last);
  Texel low, high;
  if (!t.linear_mipmap || t.levels.size() == 1) {
    if (!sample_level(launch, t, p, static_cast<uint32_t>(std::min(std::floor(level + 0.5f), last)),
                      &low, bad))
      return false;
  } else {
    const auto below = static_cast<uint32_t>(std::floor(level));
    const auto weight = std::floor((level - static_cast<float>(below)) * kFraction) / kFraction;
    if (!sample_level(launch, t, p, below, &low, bad)) return false;
    if (weight > 0) {
      if (!sample_level(launch, t, p, below + 1, &high, bad)) return false;
      for (int c = 0; c < 4; ++c) low.f[c] = low.f[c] * (1 - weight) + high.f[c] * weight;
    }
  }
  for (int c = 0; c < 4; ++c)
    out[c] = t.reads_float() ? std::bit_cast<uint32_t>(low.f[c]) : low.u[c];
  return true;
}

bool gather(Launch& launch, const Texture& t, const TexturePoint& p, uint32_t component,
            uint32_t (&out)[4], uint64_t* bad) {
  const Place place = place_of(t, p, 0);
  Reader reader(launch, t, *place.level, 2, place.slice);
  double u[3] = {};
  elements_of(t, place, u);
  const int64_t x = tap(u[0]).low, y = tap(u[1]).low;
  static constexpr int kCorner[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
  for (int i = 0; i < 4; ++i) {
    Texel texel;
    if (!reader.read({x + kCorner[i][0], y + kCorner[i][1], 0}, &texel)) {
      *bad = reader.bad;
      return false;
    }
    out[i] = t.reads_float() ? std::bit_cast<uint32_t>(texel.f[component]) : texel.u[component];
  }
  return true;
}

const Texture* Launch::texture(uint64_t handle) {
  for (const auto& [known, texture] : textures)
    if (known == handle) return texture.get();
  std::shared_ptr<const Texture> found = memory.texture(handle);
  if (found == nullptr) return nullptr;
  textures.emplace_back(handle, found);
  return found.get();
}

}  // namespace tube::sim::ptx
