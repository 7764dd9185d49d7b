// The same with the CUDA runtime linked statically, as nvcc users write it.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernel.h"
#include "stamps.h"

static void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(code));
  exit(1);
}
#define RT(call) check((call), #call)

__global__ void combine(const uint32_t* a, const uint32_t* b, uint32_t* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = a[i] * 3 + b[i];
}

int main() {
  Stamps stamps;
  stamps.mark("main");
  int devices = 0;
  RT(cudaGetDeviceCount(&devices));
  stamps.mark("init");
  RT(cudaFree(nullptr));
  stamps.mark("context");
  std::vector<uint32_t> a(kCount), b(kCount), out(kCount);
  for (int i = 0; i < kCount; ++i) a[i] = input_a(i), b[i] = input_b(i);
  uint32_t *da, *db, *dout;
  RT(cudaMalloc(&da, kCount * 4));
  RT(cudaMalloc(&db, kCount * 4));
  RT(cudaMalloc(&dout, kCount * 4));
  RT(cudaMemcpy(da, a.data(), kCount * 4, cudaMemcpyHostToDevice));
  RT(cudaMemcpy(db, b.data(), kCount * 4, cudaMemcpyHostToDevice));
  stamps.mark("memory");
  combine<<<kCount / 256, 256>>>(da, db, dout, kCount);
  RT(cudaGetLastError());
  stamps.mark("module");
  RT(cudaDeviceSynchronize());
  stamps.mark("kernel");
  RT(cudaMemcpy(out.data(), dout, kCount * 4, cudaMemcpyDeviceToHost));
  if (!as_expected(out)) return 1;
  stamps.mark("result");
  stamps.print();
  return 0;
}
