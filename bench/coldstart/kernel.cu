// The driver-API program's image: no variables, so that a proxy may share it among functions.
#include <cstdint>

extern "C" __global__ void combine(const uint32_t* a, const uint32_t* b, uint32_t* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = a[i] * 3 + b[i];
}
