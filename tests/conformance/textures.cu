// Kernels that read textures and read and write surfaces by handle, one access per thread, results
// in global memory.
#include <cuda_runtime.h>
#include <cstdint>

namespace {
__device__ int thread() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }
}  // namespace

extern "C" __global__ void fetch_1d_float(cudaTextureObject_t t, const int* at, float* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex1Dfetch<float>(t, at[i]);
}
extern "C" __global__ void fetch_1d_uint4(cudaTextureObject_t t, const int* at, uint4* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex1Dfetch<uint4>(t, at[i]);
}
extern "C" __global__ void tex_1d_float(cudaTextureObject_t t, const float* x, float* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex1D<float>(t, x[i]);
}
extern "C" __global__ void tex_2d_float(cudaTextureObject_t t, const float2* at, float* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex2D<float>(t, at[i].x, at[i].y);
}
extern "C" __global__ void tex_2d_float4(cudaTextureObject_t t, const float2* at, float4* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex2D<float4>(t, at[i].x, at[i].y);
}
extern "C" __global__ void tex_2d_uint(cudaTextureObject_t t, const float2* at, unsigned* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex2D<unsigned>(t, at[i].x, at[i].y);
}
extern "C" __global__ void tex_2d_int(cudaTextureObject_t t, const float2* at, int* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex2D<int>(t, at[i].x, at[i].y);
}
extern "C" __global__ void tex_2d_uchar4(cudaTextureObject_t t, const float2* at, uchar4* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex2D<uchar4>(t, at[i].x, at[i].y);
}
extern "C" __global__ void tex_3d_float(cudaTextureObject_t t, const float4* at, float* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex3D<float>(t, at[i].x, at[i].y, at[i].z);
}
extern "C" __global__ void tex_1d_layered(cudaTextureObject_t t, const float2* at, float* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex1DLayered<float>(t, at[i].x, static_cast<int>(at[i].y));
}
extern "C" __global__ void tex_2d_layered(cudaTextureObject_t t, const float4* at, float* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex2DLayered<float>(t, at[i].x, at[i].y, static_cast<int>(at[i].z));
}
extern "C" __global__ void tex_cube(cudaTextureObject_t t, const float4* at, float* out, int count) {
  int i = thread();
  if (i < count) out[i] = texCubemap<float>(t, at[i].x, at[i].y, at[i].z);
}
extern "C" __global__ void tex_cube_layered(cudaTextureObject_t t, const float4* at, float* out, int count) {
  int i = thread();
  if (i < count) out[i] = texCubemapLayered<float>(t, at[i].x, at[i].y, at[i].z, static_cast<int>(at[i].w));
}
extern "C" __global__ void tex_2d_level(cudaTextureObject_t t, const float4* at, float* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex2DLod<float>(t, at[i].x, at[i].y, at[i].z);
}
extern "C" __global__ void tex_2d_gradient(cudaTextureObject_t t, const float4* at, float* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex2DGrad<float>(t, at[i].x, at[i].y, make_float2(at[i].z, 0.0f), make_float2(0.0f, at[i].w));
}
extern "C" __global__ void tex_2d_gather(cudaTextureObject_t t, const float2* at, float4* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex2Dgather<float4>(t, at[i].x, at[i].y, 0);
}
extern "C" __global__ void tex_2d_gather_green(cudaTextureObject_t t, const float2* at, float4* out, int count) {
  int i = thread();
  if (i < count) out[i] = tex2Dgather<float4>(t, at[i].x, at[i].y, 1);
}
extern "C" __global__ void texture_size(cudaTextureObject_t t, unsigned* out) {
  unsigned width, height;
  asm volatile("txq.width.b32 %0, [%1];" : "=r"(width) : "l"(t));
  asm volatile("txq.height.b32 %0, [%1];" : "=r"(height) : "l"(t));
  out[0] = width;
  out[1] = height;
}

// ---- surfaces

// Coordinates x are bytes. `mode` of the boundary is a compile-time choice.

extern "C" __global__ void surface_fill_1d(cudaSurfaceObject_t s, unsigned first, int count) {
  int i = thread();
  if (i < count) surf1Dwrite<unsigned>(first + i, s, i * 4);
}
extern "C" __global__ void surface_fill_2d(cudaSurfaceObject_t s, unsigned first, int width, int height) {
  int i = thread();
  if (i < width * height) surf2Dwrite<unsigned>(first + i, s, (i % width) * 4, i / width);
}
extern "C" __global__ void surface_fill_3d(cudaSurfaceObject_t s, unsigned first, int width, int height, int depth) {
  int i = thread();
  if (i < width * height * depth) surf3Dwrite<unsigned>(first + i, s, (i % width) * 4, i / width % height, i / width / height);
}
extern "C" __global__ void surface_fill_layer(cudaSurfaceObject_t s, unsigned first, int width, int height, int layer) {
  int i = thread();
  if (i < width * height) surf2DLayeredwrite<unsigned>(first + i, s, (i % width) * 4, i / width, layer);
}
extern "C" __global__ void surface_fill_1d_layer(cudaSurfaceObject_t s, unsigned first, int width, int layer) {
  int i = thread();
  if (i < width) surf1DLayeredwrite<unsigned>(first + i, s, i * 4, layer);
}
extern "C" __global__ void surface_fill_face(cudaSurfaceObject_t s, unsigned first, int width, int face) {
  int i = thread();
  if (i < width * width) surfCubemapwrite<unsigned>(first + i, s, (i % width) * 4, i / width, face);
}
extern "C" __global__ void surface_copy_uchar4(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height) {
  int i = thread();
  if (i >= width * height) return;
  uchar4 c = surf2Dread<uchar4>(from, (i % width) * 4, i / width);
  surf2Dwrite(make_uchar4(c.w, c.z, c.y, c.x), to, (i % width) * 4, i / width);
}
extern "C" __global__ void surface_copy_float4(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height) {
  int i = thread();
  if (i >= width * height) return;
  float4 c = surf2Dread<float4>(from, (i % width) * 16, i / width);
  surf2Dwrite(make_float4(c.x + 1, c.y * 2, -c.z, c.w), to, (i % width) * 16, i / width);
}
extern "C" __global__ void surface_bytes(cudaSurfaceObject_t s, unsigned char* out, int width) {
  int i = thread();
  if (i >= width) return;
  out[i] = surf1Dread<unsigned char>(s, i);
  surf1Dwrite(static_cast<unsigned char>(255 - i), s, i);
}
extern "C" __global__ void surface_shorts(cudaSurfaceObject_t s, ushort2* out, int width) {
  int i = thread();
  if (i >= width) return;
  out[i] = surf1Dread<ushort2>(s, i * 4);
}
extern "C" __global__ void surface_read_2d(cudaSurfaceObject_t s, const int2* at, unsigned* clamped, unsigned* zeroed, int count) {
  int i = thread();
  if (i >= count) return;
  clamped[i] = surf2Dread<unsigned>(s, at[i].x * 4, at[i].y, cudaBoundaryModeClamp);
  zeroed[i] = surf2Dread<unsigned>(s, at[i].x * 4, at[i].y, cudaBoundaryModeZero);
}
extern "C" __global__ void surface_write_outside(cudaSurfaceObject_t s, int x, int y, unsigned value, int clamp) {
  if (clamp) surf2Dwrite<unsigned>(value, s, x * 4, y, cudaBoundaryModeClamp);
  else surf2Dwrite<unsigned>(value, s, x * 4, y, cudaBoundaryModeZero);
}
extern "C" __global__ void surface_read_trap(cudaSurfaceObject_t s, int x, int y, unsigned* out) {
  out[0] = surf2Dread<unsigned>(s, x * 4, y);
}
extern "C" __global__ void surface_sum(cudaSurfaceObject_t s, int x, int count) {
  int i = thread();
  if (i < count) asm volatile("sured.b.add.2d.u32.trap [%0, {%1, %2}], %3;" ::"l"(s), "r"(x * 4), "r"(0), "r"(i));
}
extern "C" __global__ void surface_size(cudaSurfaceObject_t s, unsigned* out) {
  unsigned width, height;
  asm volatile("suq.width.b32 %0, [%1];" : "=r"(width) : "l"(s));
  asm volatile("suq.height.b32 %0, [%1];" : "=r"(height) : "l"(s));
  out[0] = width;
  out[1] = height;
}
