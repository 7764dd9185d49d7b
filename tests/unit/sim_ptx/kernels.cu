// Kernels of many kinds, compiled by nvcc to PTX at several targets and debug levels;
// kernels_test.cc checks each.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdio>

namespace cg = cooperative_groups;

extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void reduce_sum(const int* in, int* out, int n) {
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    sum += in[i];
  for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, offset);
  __shared__ int part[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) part[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    sum = lane < static_cast<int>(blockDim.x / 32) ? part[lane] : 0;
    for (int offset = 16; offset > 0; offset >>= 1)
      sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane == 0) atomicAdd(out, sum);
  }
}

extern "C" __global__ void matmul_tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float ta[16][16], tb[16][17];
  const int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  float sum = 0;
  for (int t = 0; t < n / 16; ++t) {
    ta[threadIdx.y][threadIdx.x] = a[y * n + t * 16 + threadIdx.x];
    tb[threadIdx.y][threadIdx.x] = b[(t * 16 + threadIdx.y) * n + x];
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum = fmaf(ta[threadIdx.y][k], tb[k][threadIdx.x], sum);
    __syncthreads();
  }
  c[y * n + x] = sum;
}

extern "C" __global__ void histogram(const unsigned char* data, unsigned* bins, int n) {
  extern __shared__ unsigned local[];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[data[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

__constant__ float weights[25];

extern "C" __global__ void convolve(const float* in, float* out, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float sum = 0;
  for (int dy = -2; dy <= 2; ++dy)
    for (int dx = -2; dx <= 2; ++dx) {
      const int px = min(max(x + dx, 0), width - 1), py = min(max(y + dy, 0), height - 1);
      sum = fmaf(in[py * width + px], weights[(dy + 2) * 5 + dx + 2], sum);
    }
  out[y * width + x] = sum;
}

extern "C" __global__ void groups(const int* in, int* out) {
  const cg::thread_block block = cg::this_thread_block();
  const cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
  int v = in[block.thread_rank()];
  for (int i = tile.size() / 2; i > 0; i /= 2) v += tile.shfl_down(v, i);
  if (tile.thread_rank() == 0) out[block.thread_rank() / 8] = v;
  if (threadIdx.x % 3 == 0) {
    const cg::coalesced_group active = cg::coalesced_threads();
    if (active.thread_rank() == 0) out[64 + threadIdx.x / 32] = active.size();
  }
  block.sync();
}

extern "C" __global__ void grid_barrier(int* data, int* out) {
  const cg::grid_group grid = cg::this_grid();
  atomicAdd(data, 1);
  grid.sync();
  out[blockIdx.x * blockDim.x + threadIdx.x] = *reinterpret_cast<volatile int*>(data);
}

extern "C" __global__ void half_math(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  if (i >= n) return;
  const __half a = __float2half(in[i]), b = __float2half(in[(i + 1) % n]);
  const __half2 p = __halves2half2(a, b);
  const __half2 q = __hfma2(p, p, __float2half2_rn(0.5f));
  out[i * 4] = __half2float(__hadd(a, b));
  out[i * 4 + 1] = __half2float(__hmul(a, b));
  out[i * 4 + 2] = __low2float(q) + __high2float(q);
  out[i * 4 + 3] = __bfloat162float(__float2bfloat16(in[i]));
}

extern "C" __global__ void double_math(const double* in, double* out, int n) {
  const int i = threadIdx.x;
  if (i >= n) return;
  const double x = in[i];
  out[i * 6] = sqrt(x);
  out[i * 6 + 1] = 1.0 / x;
  out[i * 6 + 2] = sin(x) + cos(x);
  out[i * 6 + 3] = exp(-x);
  out[i * 6 + 4] = log(x);
  out[i * 6 + 5] = pow(x, 1.5);
}

extern "C" __global__ void float_math(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  if (i >= n) return;
  const float x = in[i];
  out[i * 8] = sqrtf(x);
  out[i * 8 + 1] = 1.0f / x;
  out[i * 8 + 2] = sinf(x);
  out[i * 8 + 3] = expf(-x);
  out[i * 8 + 4] = logf(x);
  out[i * 8 + 5] = powf(x, 1.5f);
  out[i * 8 + 6] = tanhf(x);
  out[i * 8 + 7] = fmodf(x, 0.7f) + rintf(x * 3.3f) + cbrtf(x);
}

extern "C" __global__ void say(int n, double x, const char*) {
  if (threadIdx.x < n)
    printf("thread %d of %u: %5.2f %s %c %lld %%\n", threadIdx.x, blockDim.x, x, "text", 'q',
           1ll << 40);
}

extern "C" __global__ void classify(const int* in, int* out) {
  int v = 0;
  switch (in[threadIdx.x]) {
    case 0: v = 17; break;
    case 1: v = in[(threadIdx.x + 1) % 32] * 3; break;
    case 2: v = -5; break;
    case 3: v = threadIdx.x; break;
    case 4: v = 99; break;
    case 5: v = 1 << (threadIdx.x & 7); break;
    case 6: v = in[threadIdx.x] ^ 0x55; break;
    case 7: v = 1000; break;
    default: v = -1;
  }
  out[threadIdx.x] = v;
}

__device__ __noinline__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
extern "C" __global__ void recurse(int* out) { out[threadIdx.x] = fibonacci(threadIdx.x % 12); }

struct Shape {
  __device__ virtual ~Shape() {}
  __device__ virtual float area() const = 0;
};
struct Square : Shape {
  float side;
  __device__ explicit Square(float s) : side(s) {}
  __device__ float area() const override { return side * side; }
};
struct Circle : Shape {
  float radius;
  __device__ explicit Circle(float r) : radius(r) {}
  __device__ float area() const override { return 3.0f * radius * radius; }
};
extern "C" __global__ void virtual_calls(float* out) {
  Shape* const shape =
      threadIdx.x % 2 == 0 ? static_cast<Shape*>(new Square(threadIdx.x)) : new Circle(threadIdx.x);
  out[threadIdx.x] = shape->area();
  delete shape;
}

extern "C" __global__ void local_array(const int* in, int* out, int n) {
  int values[32];
  for (int i = 0; i < n; ++i) values[i] = in[i] * (threadIdx.x + 1);
  for (int i = 1; i < n; ++i)
    for (int k = i; k > 0 && values[k - 1] > values[k]; --k) {
      const int t = values[k];
      values[k] = values[k - 1];
      values[k - 1] = t;
    }
  for (int i = 0; i < n; ++i) out[threadIdx.x * n + i] = values[i];
}

__device__ int plus_one(int x) { return x + 1; }
__device__ int twice(int x) { return x * 2; }
__device__ int minus(int x) { return -x; }
__device__ int (*table[3])(int) = {plus_one, twice, minus};
extern "C" __global__ void function_pointers(int* out) {
  out[threadIdx.x] = table[threadIdx.x % 3](threadIdx.x);
}

__device__ int lock_word;
extern "C" __global__ void spin_lock(int* counter) {
  bool done = false;
  while (!done) {
    if (atomicCAS(&lock_word, 0, 1) == 0) {
      __threadfence();
      *reinterpret_cast<volatile int*>(counter) = *reinterpret_cast<volatile int*>(counter) + 1;
      __threadfence();
      atomicExch(&lock_word, 0);
      done = true;
    }
  }
}

extern "C" __global__ void votes(unsigned* out) {
  const unsigned lane = threadIdx.x;
  out[lane * 5] = __ballot_sync(0xffffffffu, lane % 3 == 0);
  out[lane * 5 + 1] = __match_any_sync(0xffffffffu, lane / 5);
  out[lane * 5 + 2] = __all_sync(0xffffffffu, lane < 40) * 2 + __any_sync(0xffffffffu, lane == 99);
  out[lane * 5 + 3] = __syncthreads_count(lane & 1);
  unsigned sum = 0;
  if (lane < 16) {
    sum = __shfl_sync(0xffffu, lane * 7, (lane + 1) % 16);
    __syncwarp(0xffffu);
  } else {
    sum = __shfl_sync(0xffff0000u, lane, 31);
    __syncwarp(0xffff0000u);
  }
  out[lane * 5 + 4] = sum;
}

extern "C" __global__ void wide_integers(const unsigned long long* in, unsigned long long* out,
                                         int n) {
  const int i = threadIdx.x;
  if (i >= n) return;
  const unsigned long long a = in[i], b = in[(i + 1) % n] | 1;
  out[i * 8] = a * b;
  out[i * 8 + 1] = __umul64hi(a, b);
  out[i * 8 + 2] = a / b;
  out[i * 8 + 3] = a % b;
  out[i * 8 + 4] =
      static_cast<unsigned long long>(static_cast<long long>(a) / static_cast<long long>(b));
  out[i * 8 + 5] = __popcll(a) + __clzll(a) * 100 + __ffsll(a) * 10000;
  out[i * 8 + 6] = __brevll(a);
  out[i * 8 + 7] = (a << (b & 63)) ^ (a >> (i & 63));
}

struct Big {
  int values[20];
  float4 tail;
};
extern "C" __global__ void struct_argument(Big big, int index, float* out) {
  out[threadIdx.x] = big.values[(threadIdx.x + index) % 20] + big.tail.w;
}

extern "C" __global__ void fail_assert(int* p) {
  if (threadIdx.x == 3) __assert_fail("p[0] == 0", "kernels.cu", 7, "fail_assert");
  p[0] = 1;
}
