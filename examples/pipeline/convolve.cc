// Second function: brightness comes in; blurred brightness and its gradient go out.
#include "function.h"

int main() {
  Gpu gpu("convolve.ptx");
  CUfunction blur = gpu.kernel("blur"), gradient = gpu.kernel("gradient");
  // A Gaussian of standard deviation 1, normalised.
  const float weights[5] = {0.054488685f, 0.24420135f, 0.40261996f, 0.24420135f, 0.054488685f};
  CU(cuMemcpyHtoD(gpu.variable("weights", sizeof(weights)), weights, sizeof(weights)));
  Picture in;
  while (read_picture(&in)) {
    if (in.channels != 1) fail("convolve wants one channel");
    Picture out{in.width, in.height, 3, std::vector<float>(in.pixels() * 3)};
    Buffer gray(in.pixels() * 4), blurred(in.pixels() * 4), edges(in.pixels() * 12);
    CU(cuMemcpyHtoDAsync(gray.pointer, in.values.data(), in.pixels() * 4, gpu.stream));
    gpu.over_pixels(blur, in.width, in.height, gray.pointer, blurred.pointer);
    gpu.over_pixels(gradient, in.width, in.height, blurred.pointer, edges.pointer);
    CU(cuMemcpyDtoHAsync(out.values.data(), edges.pointer, in.pixels() * 12, gpu.stream));
    CU(cuStreamSynchronize(gpu.stream));
    write_picture(out);
  }
  return 0;
}
