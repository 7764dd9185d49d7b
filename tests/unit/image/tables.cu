// Kernels whose machine code brings tables of NVIDIA's along: of cuRAND's headers, and of the
// compiler's library. WITH_STATE adds a variable of the program's own.
#include <curand_kernel.h>

#ifdef WITH_STATE
__device__ unsigned counter;
#endif

extern "C" __global__ void draws(unsigned* out, unsigned long long seed) {
  curandStateXORWOW_t one;
  curand_init(seed, threadIdx.x, 7, &one);
  curandStateMRG32k3a_t other;
  curand_init(seed, threadIdx.x, 7, &other);
  out[threadIdx.x] = curand(&one) + curand(&other) + curand_poisson(&one, 4000.0);
#ifdef WITH_STATE
  atomicAdd(&counter, out[threadIdx.x]);
#endif
}

extern "C" __global__ void waves(double* wide, float* narrow) {
  wide[threadIdx.x] = sin(wide[threadIdx.x]) + lgamma(wide[threadIdx.x + 1]);
  narrow[threadIdx.x] = sinf(narrow[threadIdx.x]);
}
