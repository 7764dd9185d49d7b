// Kernels that break a rule of the hardware, each in its own way. What they break it with comes
// from the program, so that no compiler can see it coming.
#include <stdint.h>

extern "C" __global__ void read_word(const unsigned char* from, long long offset, uint32_t* out) {
  *out = *reinterpret_cast<const volatile uint32_t*>(from + offset);
}
extern "C" __global__ void write_word(unsigned char* to, long long offset, uint32_t value) {
  *reinterpret_cast<volatile uint32_t*>(to + offset) = value;
}
extern "C" __global__ void add_word(unsigned char* to, long long offset, uint32_t value) {
  atomicAdd(reinterpret_cast<uint32_t*>(to + offset), value);
}
extern "C" __global__ void write_shared(long long index, uint32_t value, uint32_t* out) {
  __shared__ volatile uint32_t room[32];
  room[threadIdx.x] = value;
  room[index] = value;
  *out = room[threadIdx.x];
}
extern "C" __global__ void write_local(long long index, uint32_t value, uint32_t* out) {
  volatile uint32_t room[8];
  for (int i = 0; i < 8; ++i) room[i] = value;
  room[index] = value;
  *out = room[value & 7];
}

__device__ __noinline__ uint32_t deeper(uint32_t depth, volatile uint32_t* out) {
  volatile uint32_t room[64];
  for (int i = 0; i < 64; ++i) room[i] = depth + i;
  if (depth == 0) return room[3];
  const uint32_t below = deeper(depth - 1, out);
  *out = below;
  return below + room[depth & 63];
}
extern "C" __global__ void recurse(uint32_t depth, uint32_t* out) { *out = deeper(depth, out); }
