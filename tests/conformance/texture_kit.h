// What the cases of textures share: descriptions, owned arrays and objects, kernels that read.
#pragma once

#include "tests/conformance/case.h"

namespace texture_kit {

struct Array {
  CUarray handle = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  explicit Array(const CUDA_ARRAY3D_DESCRIPTOR& d) : shape(d) { CU(cuArray3DCreate(&handle, &d)); }
  ~Array() { CU(cuArrayDestroy(handle)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
};

inline void fill(CUarray array, const void* data, size_t row_bytes, size_t rows, size_t slices) {
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = data;
  c.srcPitch = row_bytes;
  c.srcHeight = rows;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = array;
  c.WidthInBytes = row_bytes;
  c.Height = rows;
  c.Depth = slices;
  CU(cuMemcpy3D(&c));
}

template <typename T>
inline Array* filled(CUDA_ARRAY3D_DESCRIPTOR d, const std::vector<T>& data) {
  auto* a = new Array(d);
  const size_t rows = d.Height == 0 ? 1 : d.Height, slices = d.Depth == 0 ? 1 : d.Depth;
  fill(a->handle, data.data(), data.size() * sizeof(T) / rows / slices, rows, slices);
  return a;
}

inline CUDA_RESOURCE_DESC of_array(CUarray a) {
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_ARRAY;
  r.res.array.hArray = a;
  return r;
}
inline CUDA_RESOURCE_DESC of_mipmap(CUmipmappedArray m) {
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  r.res.mipmap.hMipmappedArray = m;
  return r;
}
inline CUDA_RESOURCE_DESC of_linear(CUdeviceptr p, CUarray_format format, unsigned channels, size_t bytes) {
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_LINEAR;
  r.res.linear.devPtr = p;
  r.res.linear.format = format;
  r.res.linear.numChannels = channels;
  r.res.linear.sizeInBytes = bytes;
  return r;
}
inline CUDA_RESOURCE_DESC of_pitch(CUdeviceptr p, CUarray_format format, unsigned channels, size_t width, size_t height, size_t pitch) {
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_PITCH2D;
  r.res.pitch2D.devPtr = p;
  r.res.pitch2D.format = format;
  r.res.pitch2D.numChannels = channels;
  r.res.pitch2D.width = width;
  r.res.pitch2D.height = height;
  r.res.pitch2D.pitchInBytes = pitch;
  return r;
}

inline CUDA_TEXTURE_DESC point(CUaddress_mode mode = CU_TR_ADDRESS_MODE_CLAMP, unsigned flags = 0) {
  CUDA_TEXTURE_DESC t{};
  t.addressMode[0] = t.addressMode[1] = t.addressMode[2] = mode;
  t.flags = flags;
  return t;
}
inline CUDA_TEXTURE_DESC linear(CUaddress_mode mode = CU_TR_ADDRESS_MODE_CLAMP, unsigned flags = 0) {
  CUDA_TEXTURE_DESC t = point(mode, flags);
  t.filterMode = CU_TR_FILTER_MODE_LINEAR;
  return t;
}

struct Texture {
  CUtexObject handle = 0;
  Texture(const CUDA_RESOURCE_DESC& r, const CUDA_TEXTURE_DESC& t, const CUDA_RESOURCE_VIEW_DESC* v = nullptr) {
    CU(cuTexObjectCreate(&handle, &r, &t, v));
  }
  ~Texture() { CU(cuTexObjectDestroy(handle)); }
  Texture(const Texture&) = delete;
  Texture& operator=(const Texture&) = delete;
};

inline CUDA_ARRAY3D_DESCRIPTOR shape(size_t w, size_t h = 0, size_t d = 0, unsigned flags = 0, CUarray_format f = CU_AD_FORMAT_FLOAT, unsigned channels = 1) {
  return {w, h, d, f, channels, flags};
}

inline std::vector<float> ramp(size_t count, float first = 0, float step = 1) {
  std::vector<float> v(count);
  for (size_t i = 0; i < count; ++i) v[i] = first + step * static_cast<float>(i);
  return v;
}

struct F2 { float x, y; };
struct F4 { float x, y, z, w; };

// Runs `kernel(texture, coordinates, out, count)` and gives back what it read.
template <typename Out, typename In>
inline std::vector<Out> read(const Module& m, const char* kernel, CUtexObject t, const std::vector<In>& at) {
  DeviceArray<In> where(at);
  DeviceArray<Out> out(at.size());
  LAUNCH(m.function(kernel), {static_cast<unsigned>((at.size() + 63) / 64)}, {64}, 0, nullptr, t, where.pointer, out.pointer, static_cast<int>(at.size()));
  return out.read();
}

inline void print(const char* name, const std::vector<float>& v) {
  printf("%s:", name);
  for (float x : v) printf(" %g", static_cast<double>(x));
  printf("\n");
}
template <typename T>
inline void print_whole(const char* name, const std::vector<T>& v) {
  printf("%s:", name);
  for (T x : v) printf(" %lld", static_cast<long long>(x));
  printf("\n");
}

}  // namespace texture_kit
