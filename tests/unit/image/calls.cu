// Kernels that print, assert, or do neither, directly and through functions (kernel_calls_test.cc).
#include <cassert>
#include <cstdio>

__device__ __noinline__ void says(int x) { printf("%d\n", x); }
__device__ __noinline__ int silent(int x) { return x * 3; }
using Function = void (*)(int);
__device__ Function table[2] = {says, nullptr};

extern "C" __global__ void prints(int x) { printf("%d\n", x); }
extern "C" __global__ void prints_below(int x) { says(x); }
extern "C" __global__ void prints_by_pointer(int x) { table[x](x); }
extern "C" __global__ void asserts(int x) { assert(x == 1); }
extern "C" __global__ void does_both(int x) {
  assert(x == 1);
  says(x);
}
extern "C" __global__ void does_neither(int* p) { *p = silent(*p); }
