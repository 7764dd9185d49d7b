// Kernels that need a larger heap, or a deeper stack, than a context has by default.
#include <cstddef>

// How many blocks of that size the heap holds, at most `most`; they are given back.
extern "C" __global__ void fill_heap(int most, unsigned long long bytes, int* got) {
  void** last = nullptr;
  int count = 0;
  while (count < most) {
    void** block = static_cast<void**>(malloc(bytes));
    if (block == nullptr) break;
    *block = last;
    last = block;
    ++count;
  }
  *got = count;
  while (last != nullptr) {
    void** next = static_cast<void**>(*last);
    free(last);
    last = next;
  }
}

static __device__ __noinline__ int descend(int depth, int salt) {
  volatile int frame[32];
  for (int i = 0; i < 32; ++i) frame[i] = depth + i * salt;
  if (depth == 0) return frame[salt & 31];
  return frame[(depth + salt) & 31] + descend(depth - 1, salt + 1);
}
extern "C" __global__ void deep(int depth, int* out) { out[threadIdx.x] = descend(depth, threadIdx.x); }
