// What the scenarios load. Compiled once for each image (meson.build), with what that image has: a
// context that has met only little ones lacks something for the next, be it room for local memory,
// for text that is printed, or a heap.
#include <cassert>
#include <cstdio>

// Not unrolled: ptxas keeps an array of 256 bytes in registers when it sees which word each store
// is for.
#define LOCAL_MEMORY(name, words)                                       \
  __global__ void name(int* out, int n) {                               \
    volatile int own[words];                                            \
    _Pragma("unroll 1") for (int i = 0; i < words; ++i) own[i] = n * i; \
    out[threadIdx.x] = own[(n + threadIdx.x) % words];                  \
  }

extern "C" {

#ifdef WITH_EMPTY
__global__ void empty(int*, int) {}
#endif

#ifdef WITH_SIMPLE
__global__ void plain(int* out, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = n;
}

__global__ void second(int* out, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = n + threadIdx.x;
}

__global__ void shared(int* out, int n) {
  extern __shared__ int values[];
  values[threadIdx.x] = n;
  __syncthreads();
  out[threadIdx.x] = values[(threadIdx.x + 1) % blockDim.x];
}
#endif

#ifdef WITH_LOCAL
LOCAL_MEMORY(local64, 16)
LOCAL_MEMORY(local256, 64)
LOCAL_MEMORY(local1k, 256)
LOCAL_MEMORY(local4k, 1024)
LOCAL_MEMORY(local16k, 4096)
LOCAL_MEMORY(local32k, 8192)
#endif

#ifdef WITH_WORKS
// For n tenths of a second.
__global__ void works(int* out, int n) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < n * 100000000ull);
  out[threadIdx.x] = n;
}
#endif

#ifdef WITH_RUNTIME
// Could assert, or call a function that prints or allocates; no scenario lets it.
__global__ void asserts(int* out, int n) {
  assert(n > 0);
  out[threadIdx.x] = n;
}

__global__ void frees(int* out, int n) {
  if (n < 0) free(out);
  out[threadIdx.x] = n;
}

__global__ void aligned(int* out, int n) {
  if (n < 0) out = static_cast<int*>(__nv_aligned_device_malloc(64, 64));
  out[threadIdx.x] = n;
}

__device__ __noinline__ int through_printf(int n) { return printf("%d\n", n); }
__device__ __noinline__ int through_nothing(int n) { return 3 * n; }
__device__ int (*functions[2])(int) = {through_nothing, through_printf};
__global__ void by_pointer(int* out, int n) { out[threadIdx.x] = functions[n < 0](n); }
#endif

#ifdef WITH_PRINTS
// Could print; no scenario lets it.
__global__ void prints(int* out, int n) {
  if (n < 0) printf("%d\n", n);
  out[threadIdx.x] = n;
}
#endif

#ifdef WITH_ALLOCATES
__global__ void allocates(int* out, int n) {
  int* own = static_cast<int*>(malloc(64));
  if (own == nullptr) return;
  *own = n;
  out[threadIdx.x] = *own;
  free(own);
}
#endif
}
