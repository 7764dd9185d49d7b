// Kernels with module state: every client needs an instance of its own.
#include <cstdint>
#include <cstdio>

__device__ int counter = 41;
__device__ float table[64];
__constant__ float weights[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
__device__ int* link_to_counter = &counter;

extern "C" __global__ void bump(int by) {
  if (threadIdx.x == 0) atomicAdd(&counter, by);
}
extern "C" __global__ void read_state(int* out_counter, float* out_table, float* out_weights) {
  int i = threadIdx.x;
  if (i == 0) out_counter[0] = counter;
  if (i == 1) out_counter[1] = *link_to_counter;
  if (i < 64) out_table[i] = table[i];
  if (i < 16) out_weights[i] = weights[i];
}
extern "C" __global__ void say_hello(int number, float fraction) {
  if (threadIdx.x == 0)
    printf("block %d says %d and %.3f, %s %c %%\n", (int)blockIdx.x, number, fraction, "text", 'x');
}
