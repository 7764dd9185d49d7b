// What the cases of arrays share: descriptors, owned arrays, descriptions of copies.
#pragma once

#include "tests/conformance/case.h"

namespace array_kit {

inline CUDA_ARRAY_DESCRIPTOR flat(size_t width, size_t height, CUarray_format format = CU_AD_FORMAT_FLOAT, unsigned channels = 1) {
  return {width, height, format, channels};
}

inline CUDA_ARRAY3D_DESCRIPTOR deep(size_t width, size_t height, size_t depth, unsigned flags = 0, CUarray_format format = CU_AD_FORMAT_FLOAT,
                             unsigned channels = 1) {
  return {width, height, depth, format, channels, flags};
}

inline void show(const CUDA_ARRAY_DESCRIPTOR& d) {
  printf("%zu x %zu, format %#x, %u channels\n", d.Width, d.Height, static_cast<unsigned>(d.Format), d.NumChannels);
}
inline void show(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  printf("%zu x %zu x %zu, format %#x, %u channels, flags %#x\n", d.Width, d.Height, d.Depth, static_cast<unsigned>(d.Format), d.NumChannels,
         d.Flags);
}

struct Array {
  CUarray handle = nullptr;
  explicit Array(const CUDA_ARRAY_DESCRIPTOR& d) { CU(cuArrayCreate(&handle, &d)); }
  explicit Array(const CUDA_ARRAY3D_DESCRIPTOR& d) { CU(cuArray3DCreate(&handle, &d)); }
  ~Array() { CU(cuArrayDestroy(handle)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
};

struct Mipmap {
  CUmipmappedArray handle = nullptr;
  Mipmap(const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned levels) { CU(cuMipmappedArrayCreate(&handle, &d, levels)); }
  ~Mipmap() { CU(cuMipmappedArrayDestroy(handle)); }
  Mipmap(const Mipmap&) = delete;
  Mipmap& operator=(const Mipmap&) = delete;
  CUarray level(unsigned i) const {
    CUarray a = nullptr;
    CU(cuMipmappedArrayGetLevel(&a, handle, i));
    return a;
  }
};

inline std::vector<uint32_t> numbers(size_t count, uint32_t first = 0) {
  std::vector<uint32_t> v(count);
  for (size_t i = 0; i < count; ++i) v[i] = first + static_cast<uint32_t>(i);
  return v;
}

template <typename T>
inline void print(const char* name, const std::vector<T>& v) {
  printf("%s:", name);
  for (T x : v) printf(" %u", static_cast<unsigned>(x));
  printf("\n");
}

inline void create_and_show(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  CUarray a = nullptr;
  CUresult r = cuArray3DCreate(&a, &d);
  printf("%zu x %zu x %zu flags %#x -> %s\n", d.Width, d.Height, d.Depth, d.Flags, code_name(r));
  if (r == CUDA_SUCCESS) CU(cuArrayDestroy(a));
}

// A 2D copy between host memory and an array.
inline CUDA_MEMCPY2D to_array(CUarray a, const void* host, size_t pitch, size_t width_bytes, size_t height) {
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = host;
  c.srcPitch = pitch;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = a;
  c.WidthInBytes = width_bytes;
  c.Height = height;
  return c;
}
inline CUDA_MEMCPY2D from_array(void* host, CUarray a, size_t pitch, size_t width_bytes, size_t height) {
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  c.srcArray = a;
  c.dstMemoryType = CU_MEMORYTYPE_HOST;
  c.dstHost = host;
  c.dstPitch = pitch;
  c.WidthInBytes = width_bytes;
  c.Height = height;
  return c;
}

inline CUDA_MEMCPY3D to_array_3d(CUarray a, const void* host, size_t row_bytes, size_t height, size_t depth) {
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = host;
  c.srcPitch = row_bytes;
  c.srcHeight = height;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = a;
  c.WidthInBytes = row_bytes;
  c.Height = height;
  c.Depth = depth;
  return c;
}
inline CUDA_MEMCPY3D from_array_3d(void* host, CUarray a, size_t row_bytes, size_t height, size_t depth) {
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  c.srcArray = a;
  c.dstMemoryType = CU_MEMORYTYPE_HOST;
  c.dstHost = host;
  c.dstPitch = row_bytes;
  c.dstHeight = height;
  c.WidthInBytes = row_bytes;
  c.Height = height;
  c.Depth = depth;
  return c;
}

}  // namespace array_kit
