// A 5x5 Gaussian blur and the Sobel gradient, each block working on a tile with its border in
// shared memory.
__constant__ float weights[5];

static const int kTile = 16;
static const int kReach = 2;
static const int kWide = kTile + 2 * kReach;

extern "C" __global__ void blur(const float* in, float* out, int width, int height) {
  __shared__ float tile[kWide][kWide];
  __shared__ float rows[kWide][kTile];
  int left = blockIdx.x * kTile - kReach, top = blockIdx.y * kTile - kReach;
  int thread = threadIdx.y * kTile + threadIdx.x;
  for (int i = thread; i < kWide * kWide; i += kTile * kTile) {
    int x = min(max(left + i % kWide, 0), width - 1), y = min(max(top + i / kWide, 0), height - 1);
    tile[i / kWide][i % kWide] = in[y * width + x];
  }
  __syncthreads();
  for (int i = thread; i < kWide * kTile; i += kTile * kTile) {
    float sum = 0.0f;
    for (int k = 0; k < 5; ++k) sum = fmaf(weights[k], tile[i / kTile][i % kTile + k], sum);
    rows[i / kTile][i % kTile] = sum;
  }
  __syncthreads();
  int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  if (x >= width || y >= height) return;
  float sum = 0.0f;
  for (int k = 0; k < 5; ++k) sum = fmaf(weights[k], rows[threadIdx.y + k][threadIdx.x], sum);
  out[y * width + x] = sum;
}

// out: three floats per pixel, the blurred brightness and its gradient to the right and downwards.
extern "C" __global__ void gradient(const float* in, float* out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  int l = max(x - 1, 0), r = min(x + 1, width - 1), u = max(y - 1, 0) * width,
      d = min(y + 1, height - 1) * width, m = y * width;
  float* pixel = out + 3 * (m + x);
  pixel[0] = in[m + x];
  pixel[1] =
      (in[u + r] + 2.0f * in[m + r] + in[d + r]) - (in[u + l] + 2.0f * in[m + l] + in[d + l]);
  pixel[2] =
      (in[d + l] + 2.0f * in[d + x] + in[d + r]) - (in[u + l] + 2.0f * in[u + x] + in[u + r]);
}
