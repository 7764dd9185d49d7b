// An ordinary CUDA runtime program, as nvcc users write it: built once with the static and once
// with the shared runtime. Prints values and hashes only, so that its output is the same on every
// run.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

static void check(cudaError_t code, const char* call, int line) {
  if (code == cudaSuccess) return;
  fflush(stdout);
  fprintf(stderr, "line %d: %s: %s\n", line, call, cudaGetErrorString(code));
  exit(1);
}
#define RT(call) check((call), #call, __LINE__)

__constant__ float factors[4];
__device__ int hits;
__managed__ int shared_total = 100;
__managed__ float shared_values[1000];

__global__ void saxpy(float a, const float* x, float* y, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = a * x[i] + y[i] * factors[i & 3];
  if (i == 0) atomicAdd(&hits, 1);
}

template <int kThreads>
__global__ void sum(const float* in, float* out, int count) {
  __shared__ float partial[kThreads];
  float value = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) value += in[i];
  partial[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = partial[0];
}

__global__ void share(int by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 1000) shared_values[i] = shared_values[i] * 2 + by;
  atomicAdd(&shared_total, 1);
}

static unsigned long long hash(const std::vector<float>& values) {
  unsigned long long state = 0xcbf29ce484222325ull;
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(float); ++i)
    state = (state ^ bytes[i]) * 0x100000001b3ull;
  return state;
}

static void work(int index, unsigned long long* result) {
  const int count = 100000;
  std::vector<float> x(count), y(count);
  for (int i = 0; i < count; ++i)
    x[i] = (float)((i * 7 + index) % 1000) / 1000, y[i] = (float)(i % 13);
  float *dx, *dy, *total;
  cudaStream_t stream;
  RT(cudaStreamCreate(&stream));
  RT(cudaMallocAsync(&dx, count * 4, stream));
  RT(cudaMalloc(&dy, count * 4));
  RT(cudaMalloc(&total, 4));
  RT(cudaMemcpyAsync(dx, x.data(), count * 4, cudaMemcpyHostToDevice, stream));
  RT(cudaMemcpy(dy, y.data(), count * 4, cudaMemcpyHostToDevice));
  for (int i = 0; i < 10; ++i) saxpy<<<(count + 255) / 256, 256, 0, stream>>>(1.5f, dx, dy, count);
  RT(cudaGetLastError());
  sum<256><<<1, 256, 0, stream>>>(dy, total, count);
  RT(cudaMemcpyAsync(y.data(), dy, count * 4, cudaMemcpyDeviceToHost, stream));
  RT(cudaStreamSynchronize(stream));
  std::vector<float> last(1);
  RT(cudaMemcpy(last.data(), total, 4, cudaMemcpyDeviceToHost));
  *result = hash(y) ^ hash(last);
  RT(cudaFreeAsync(dx, stream));
  RT(cudaFree(dy));
  RT(cudaFree(total));
  RT(cudaStreamDestroy(stream));
}

static void graph() {
  const int count = 5000;
  std::vector<float> x(count, 0.5f), y(count, 1.0f);
  float *dx, *dy;
  RT(cudaMalloc(&dx, count * 4));
  RT(cudaMalloc(&dy, count * 4));
  RT(cudaMemcpy(dx, x.data(), count * 4, cudaMemcpyHostToDevice));
  RT(cudaMemcpy(dy, y.data(), count * 4, cudaMemcpyHostToDevice));
  RT(cudaStreamSynchronize(nullptr));  // so few bytes may still be on their way
  cudaStream_t stream;
  RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t captured;
  cudaGraphExec_t exec;
  RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < 5; ++i) saxpy<<<20, 256, 0, stream>>>(0.25f, dx, dy, count);
  RT(cudaStreamEndCapture(stream, &captured));
  RT(cudaGraphInstantiate(&exec, captured, 0));
  for (int i = 0; i < 10; ++i) RT(cudaGraphLaunch(exec, stream));
  RT(cudaStreamSynchronize(stream));
  RT(cudaMemcpy(y.data(), dy, count * 4, cudaMemcpyDeviceToHost));
  printf("graph %016llx\n", hash(y));
  RT(cudaGraphExecDestroy(exec));
  RT(cudaGraphDestroy(captured));
  RT(cudaStreamDestroy(stream));
  RT(cudaFree(dx));
  RT(cudaFree(dy));
}

// Host code uses the variables themselves, the runtime their addresses.
static void managed_variables() {
  printf("managed at first %d %g\n", shared_total, shared_values[999]);
  for (int i = 0; i < 1000; ++i) shared_values[i] = (float)i;
  shared_total = 7;
  share<<<4, 256>>>(3);
  RT(cudaDeviceSynchronize());
  printf("managed then %d %g\n", shared_total, shared_values[999]);
  int* address;
  int value = 1000;
  RT(cudaGetSymbolAddress((void**)&address, shared_total));
  RT(cudaMemcpyToSymbol(shared_total, &value, sizeof(value)));
  share<<<1, 1>>>(0);
  RT(cudaDeviceSynchronize());
  printf("managed at last %d, one address %d\n", shared_total, address == &shared_total);
}

int main() {
  int count = 0, version = 0;
  RT(cudaGetDeviceCount(&count));
  RT(cudaRuntimeGetVersion(&version));
  cudaDeviceProp prop;
  RT(cudaGetDeviceProperties(&prop, 0));
  printf("runtime %d, devices %d, %s, %d multiprocessors\n", version, count, prop.name,
         prop.multiProcessorCount);
  float values[4] = {0.5f, 0.25f, 0.125f, 1.0f};
  RT(cudaMemcpyToSymbol(factors, values, sizeof(values)));
  unsigned long long results[4];
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, i, &results[i]);
  for (auto& thread : threads) thread.join();
  for (unsigned long long result : results) printf("thread %016llx\n", result);
  graph();
  managed_variables();
  int counted = 0;
  RT(cudaMemcpyFromSymbol(&counted, hits, sizeof(counted)));
  printf("hits %d\n", counted);
  cudaEvent_t start, stop;
  RT(cudaEventCreate(&start));
  RT(cudaEventCreate(&stop));
  RT(cudaEventRecord(start));
  RT(cudaEventRecord(stop));
  RT(cudaEventSynchronize(stop));
  float milliseconds = -1;
  RT(cudaEventElapsedTime(&milliseconds, start, stop));
  printf("elapsed %s\n", milliseconds >= 0 ? "ok" : "wrong");
  void* pinned;
  RT(cudaMallocHost(&pinned, 1 << 20));
  RT(cudaFreeHost(pinned));
  saxpy<<<1, 5000>>>(1.0f, nullptr, nullptr, 0);
  printf("too many threads: %s\n", cudaGetErrorName(cudaGetLastError()));
  RT(cudaDeviceSynchronize());
  return 0;
}
