// Kernels of the driver-API test programs that need no module state: this image may be shared among
// clients.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

extern "C" __global__ void vector_add(const float* a, const float* b, float* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = a[i] + b[i];
}

extern "C" __global__ void saxpy(float factor, const float* x, float* y, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = factor * x[i] + y[i];
}

extern "C" __global__ void fill(uint32_t* out, uint32_t value, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = value + i;
}

// out[i] = out[i] * factor + addend; a chain of these shows in which order launches ran.
extern "C" __global__ void step(uint32_t* data, uint32_t factor, uint32_t addend, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = data[i] * factor + addend;
}

// One thread spins over `rounds` of arithmetic, so that an order not enforced would show.
extern "C" __global__ void slow_step(uint32_t* data, uint32_t factor, uint32_t addend, int count,
                                     int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  uint32_t value = data[i];
  uint32_t noise = value;
  for (int round = 0; round < rounds; ++round) noise = noise * 1664525u + 1013904223u;
  data[i] = value * factor + addend + (noise == 0x12345678u && rounds < 0 ? 1 : 0);
}

// Sums per block, through shared memory, then warp shuffles; a fixed order, so floats come out the
// same everywhere.
extern "C" __global__ void block_sum(const float* in, float* out, int count) {
  extern __shared__ float partial[];
  int thread = threadIdx.x;
  int i = blockIdx.x * blockDim.x * 2 + thread;
  float sum =
      (i < count ? in[i] : 0.0f) + (i + (int)blockDim.x < count ? in[i + blockDim.x] : 0.0f);
  partial[thread] = sum;
  __syncthreads();
  for (int half = blockDim.x / 2; half >= 32; half /= 2) {
    if (thread < half) partial[thread] += partial[thread + half];
    __syncthreads();
  }
  if (thread < 32) {
    float value = partial[thread];
    for (int offset = 16; offset > 0; offset /= 2)
      value += __shfl_down_sync(0xffffffffu, value, offset);
    if (thread == 0) out[blockIdx.x] = value;
  }
}

extern "C" __global__ void atomic_sum(const int* in, int* sum, unsigned long long* sum64, int* low,
                                      int* high, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  atomicAdd(sum, in[i]);
  atomicAdd(sum64, (unsigned long long)(in[i] & 0xffff));
  atomicMin(low, in[i]);
  atomicMax(high, in[i]);
}

extern "C" __global__ void histogram(const unsigned char* in, unsigned* bins, int count) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    atomicAdd(&local[in[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (local[i] != 0) atomicAdd(&bins[i], local[i]);
}

extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
  const int tile = 16;
  __shared__ float as[tile][tile];
  __shared__ float bs[tile][tile];
  int row = blockIdx.y * tile + threadIdx.y;
  int column = blockIdx.x * tile + threadIdx.x;
  float sum = 0.0f;
  for (int k = 0; k < n; k += tile) {
    as[threadIdx.y][threadIdx.x] =
        row < n && k + (int)threadIdx.x < n ? a[row * n + k + threadIdx.x] : 0.0f;
    bs[threadIdx.y][threadIdx.x] =
        column < n && k + (int)threadIdx.y < n ? b[(k + threadIdx.y) * n + column] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < tile; ++i) sum = fmaf(as[threadIdx.y][i], bs[i][threadIdx.x], sum);
    __syncthreads();
  }
  if (row < n && column < n) c[row * n + column] = sum;
}

struct Mixed {
  char c;
  double d;
  short s;
  float f[3];
  long long l;
};
extern "C" __global__ void mixed_params(char c, Mixed m, short s, const int* in, double d,
                                        long long* out) {
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  out[0] = c;
  out[1] = m.c;
  out[2] = (long long)m.d;
  out[3] = m.s;
  out[4] = (long long)(m.f[0] + 2 * m.f[1] + 4 * m.f[2]);
  out[5] = m.l;
  out[6] = s;
  out[7] = in[1];
  out[8] = (long long)(d * 1000);
}

struct Big {
  int values[900];
};
extern "C" __global__ void big_params(Big big, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 900) out[i] = big.values[i] * 3 + 1;
}

extern "C" __global__ void fill_bytes(unsigned char* out, unsigned char start,
                                      unsigned long long count) {
  unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  if (i < count) out[i] = (unsigned char)(start + i);
}

// Exact in IEEE arithmetic: the same bits on the simulated and on a real GPU.
extern "C" __global__ void exact_math(const float* in, const int* ints, uint32_t* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float x = in[i];
  int k = ints[i];
  uint32_t* row = out + (size_t)i * 16;
  row[0] = __float_as_uint(__fdiv_rn(x, 3.7f));
  row[1] = __float_as_uint(__fsqrt_rn(fabsf(x)));
  row[2] = __float_as_uint(fmaf(x, x, -x));
  double d = (double)x * (double)k;
  row[3] = (uint32_t)__double_as_longlong(d);
  row[4] = (uint32_t)(__double_as_longlong(fma(d, 1.000001, 0.5)) >> 32);
  row[5] = (uint32_t)__half_as_ushort(__float2half_rn(x));
  row[6] = (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(x));
  row[7] = (uint32_t)__clz(k) + 100u * __popc(k) + 10000u * __ffs(k);
  row[8] = __brev(k);
  row[9] = __umulhi((unsigned)k, 0xdeadbeefu);
  row[10] = __byte_perm(k, ~k, 0x3715);
  row[11] = (uint32_t)(k / (1 + (i & 63))) ^ (uint32_t)(k % (1 + (i & 31)));
  row[12] = __funnelshift_l(k, i, i & 31);
  row[13] =
      (uint32_t)(((unsigned long long)(unsigned)k * 0x123456789abcdefull) / (unsigned)(i + 3));
  row[14] = (uint32_t)(int)rintf(x * 1000.0f);
  half2 h = __hfma2(__floats2half2_rn(x, x * 0.5f), __floats2half2_rn(2.0f, 3.0f),
                    __floats2half2_rn(0.25f, -0.125f));
  row[15] = *reinterpret_cast<uint32_t*>(&h);
}

extern "C" __global__ void warp_ops(const int* in, int* out) {
  int lane = threadIdx.x & 31;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int value = in[i];
  int* row = out + (size_t)i * 8;
  row[0] = __shfl_xor_sync(0xffffffffu, value, 5);
  row[1] = __shfl_up_sync(0xffffffffu, value, 3);
  row[2] = __shfl_sync(0xffffffffu, value, (lane * 7) & 31, 16);
  row[3] = (int)__ballot_sync(0xffffffffu, value & 1);
  row[4] =
      __any_sync(0xffffffffu, value > 1000000) * 2 + __all_sync(0xffffffffu, value >= -2147483647);
  if (lane & 1) {
    row[5] = __shfl_xor_sync(0xaaaaaaaau, value, 2);
  } else {
    row[5] = (int)__popc(__activemask() & 0x55555555u) >= 1;
  }
  __syncwarp();
  int prefix = value;
  for (int offset = 1; offset < 32; offset *= 2) {
    int other = __shfl_up_sync(0xffffffffu, prefix, offset);
    if (lane >= offset) prefix += other;
  }
  row[6] = prefix;
  row[7] = (int)__match_any_sync(0xffffffffu, value & 3);
}

__device__ __noinline__ int collatz(int value, int depth) {
  if (value == 1 || depth > 60) return depth;
  return collatz(value & 1 ? 3 * value + 1 : value / 2, depth + 1);
}
extern "C" __global__ void control_flow(const int* in, int* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  int value = in[i] & 1023;
  int local[8];
  for (int k = 0; k < 8; ++k) local[k] = value * (k + 1);
  switch (value % 7) {
    case 0: value += local[value & 7]; break;
    case 1: value -= local[(value + 1) & 7]; break;
    case 2: value ^= 0x55; break;
    case 3: value = collatz((value & 63) + 1, 0); break;
    case 4:
      while (value > 10) value /= 3;
      break;
    case 5: value = local[(i * 5) & 7]; break;
    default: value = -value;
  }
  out[i] = value;
}

// Writes through whatever address it is given; with a bad one the context faults.
extern "C" __global__ void poke(uint32_t* where, uint32_t value) { *where = value; }

extern "C" __global__ void __launch_bounds__(256) bounded(int* out) {
  out[threadIdx.x] = threadIdx.x;
}

extern "C" __global__ void __launch_bounds__(1024) dynamic_shared(int* out, int words) {
  extern __shared__ int room[];
  for (int i = threadIdx.x; i < words; i += blockDim.x) room[i] = i * 7;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = room[words - 1] + room[words / 2];
}
