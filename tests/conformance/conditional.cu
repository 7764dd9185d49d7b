// A kernel that decides what a conditional node does. Linked with the device runtime, which is what
// sets the value.
#include <cuda_device_runtime_api.h>

// Counts, and lets the condition hold while the count is below `limit`.
extern "C" __global__ void count_below(cudaGraphConditionalHandle handle, unsigned* count, unsigned limit) {
  const unsigned now = ++*count;
  cudaGraphSetConditional(handle, now < limit ? 1 : 0);
}

extern "C" __global__ void choose(cudaGraphConditionalHandle handle, const unsigned* value) { cudaGraphSetConditional(handle, *value); }
