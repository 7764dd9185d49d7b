// Colour bytes to brightness, and a contrast stretch from the darkest and brightest pixel to 0..1.
extern "C" __global__ void brightness(const unsigned char* rgb, float* gray, int width,
                                      int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const unsigned char* p = rgb + 3 * (y * width + x);
  gray[y * width + x] = 0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2];
}

// Brightness is never negative, so its bits order like integers.
extern "C" __global__ void range(const float* gray, unsigned* low, unsigned* high, int width,
                                 int height) {
  __shared__ unsigned block_low, block_high;
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (threadIdx.x == 0 && threadIdx.y == 0) block_low = 0x7f800000u, block_high = 0;
  __syncthreads();
  if (x < width && y < height) {
    unsigned bits = __float_as_uint(gray[y * width + x]);
    atomicMin(&block_low, bits);
    atomicMax(&block_high, bits);
  }
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    atomicMin(low, block_low);
    atomicMax(high, block_high);
  }
}

extern "C" __global__ void stretch(float* gray, const unsigned* low, const unsigned* high,
                                   int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float from = __uint_as_float(*low), to = __uint_as_float(*high);
  gray[y * width + x] = to > from ? __fdiv_rn(gray[y * width + x] - from, to - from) : 0.0f;
}
