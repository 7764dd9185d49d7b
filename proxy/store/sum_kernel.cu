// The sum of an object's bytes, of which each has its place's own weight (store_verifier.h): one
// part from each thread.
extern "C" __global__ void tube_sum(const unsigned* words, unsigned long long bytes,
                                    unsigned long long* sums) {
  const unsigned long long kWeight = 0x9e3779b97f4a7c15ull;
  const unsigned long long count = bytes / 4;
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned long long sum = 0;
  for (unsigned long long i = thread; i < count; i += gridDim.x * blockDim.x)
    sum += (words[i] + 1ull) * ((i + 1) * kWeight | 1);
  if (thread == 0) {
    const unsigned char* raw = reinterpret_cast<const unsigned char*>(words);
    for (unsigned long long i = count * 4; i < bytes; ++i)
      sum += (raw[i] + 1ull) * ((i + 1) * kWeight | 1);
  }
  sums[thread] = sum;
}
