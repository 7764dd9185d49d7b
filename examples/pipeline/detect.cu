// Canny's edge detection after the gradient: thinning, two thresholds, and growth of strong edges
// along weak ones.

static __device__ float strength(const float* in, int x, int y, int width, int height) {
  x = min(max(x, 0), width - 1);
  y = min(max(y, 0), height - 1);
  const float* p = in + 3 * (y * width + x);
  return __fsqrt_rn(p[1] * p[1] + p[2] * p[2]);
}

// An edge pixel is no weaker than its two neighbours across the edge. marks: 0 none, 1 weak, 2
// strong.
extern "C" __global__ void thin(const float* in, unsigned char* marks, float weak, float strong,
                                int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const float* p = in + 3 * (y * width + x);
  float gx = p[1], gy = p[2], here = strength(in, x, y, width, height);
  int dx = 0, dy = 0;  // The direction of the gradient, to the nearest of eight neighbours:
                       // tan(22.5 degrees) = 0.4142.
  if (fabsf(gx) > 0.4142f * fabsf(gy)) dx = gx > 0 ? 1 : -1;
  if (fabsf(gy) > 0.4142f * fabsf(gx)) dy = gy > 0 ? 1 : -1;
  bool ridge = here > strength(in, x + dx, y + dy, width, height) &&
               here >= strength(in, x - dx, y - dy, width, height);
  marks[y * width + x] = !ridge || here < weak ? 0 : here < strong ? 1 : 2;
}

// One round of growth; *changed says whether another is needed. Marks only rise, so the result does
// not depend on order.
extern "C" __global__ void grow(unsigned char* marks, int* changed, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height || marks[y * width + x] != 1) return;
  for (int dy = -1; dy <= 1; ++dy)
    for (int dx = -1; dx <= 1; ++dx) {
      int nx = x + dx, ny = y + dy;
      if (nx < 0 || ny < 0 || nx >= width || ny >= height || marks[ny * width + nx] != 2) continue;
      marks[y * width + x] = 2;
      *changed = 1;
      return;
    }
}

// The picture that comes out: edges in a colour for their direction over the dimmed brightness.
extern "C" __global__ void paint(const float* in, const unsigned char* marks, unsigned char* rgb,
                                 unsigned* counts, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  int i = y * width + x;
  unsigned char* out = rgb + 3 * i;
  if (marks[i] != 2) {
    unsigned char dim = (unsigned char)(90.0f * fminf(fmaxf(in[3 * i], 0.0f), 1.0f));
    out[0] = out[1] = out[2] = dim;
    return;
  }
  float gx = in[3 * i + 1], gy = in[3 * i + 2];
  int kind = fabsf(gy) < 0.4142f * fabsf(gx)   ? 0
             : fabsf(gx) < 0.4142f * fabsf(gy) ? 1
             : gx * gy > 0                     ? 2
                                               : 3;
  const unsigned char colours[4][3] = {
      {255, 90, 80}, {90, 220, 255}, {255, 220, 80}, {130, 255, 120}};
  for (int c = 0; c < 3; ++c) out[c] = colours[kind][c];
  atomicAdd(&counts[kind], 1u);
}
