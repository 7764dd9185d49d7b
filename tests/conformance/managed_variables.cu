// Managed variables: with and without an initial value, small and large, and kernels that reach
// them in several ways.
struct Pair {
  int first;
  double second[3];
};

__managed__ int counter = 41;
__managed__ float large[100000];
__managed__ Pair pair = {1, {2, 3, 4}};
__device__ int plain = 7;
__device__ int* link_to_plain = &plain;

extern "C" __global__ void add(int by) {
  if (threadIdx.x == 0) atomicAdd(&counter, by);
}
extern "C" __global__ void scale(float by, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) large[i] = large[i] * by + 1;
}
extern "C" __global__ void read_all(int* integers, double* doubles, const int** where) {
  integers[0] = counter;
  integers[1] = pair.first;
  integers[2] = *link_to_plain;
  for (int i = 0; i < 3; ++i) doubles[i] = pair.second[i];
  *where = &counter;
}
