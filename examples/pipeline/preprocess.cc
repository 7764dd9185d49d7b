// First function: a PPM picture comes in, its brightness with full contrast goes out.
#include "function.h"

int main() {
  Gpu gpu("preprocess.ptx");
  CUfunction brightness = gpu.kernel("brightness"), range = gpu.kernel("range"),
             stretch = gpu.kernel("stretch");
  int width = 0, height = 0;
  std::vector<unsigned char> rgb;
  while (read_ppm(&width, &height, &rgb)) {
    Picture out{width, height, 1, std::vector<float>(rgb.size() / 3)};
    Buffer colours(rgb.size()), gray(out.pixels() * 4), limits(8);
    CUdeviceptr low = limits.pointer, high = limits.pointer + 4;
    CU(cuMemcpyHtoDAsync(colours.pointer, rgb.data(), rgb.size(), gpu.stream));
    CU(cuMemsetD32Async(low, 0x7f800000u, 1, gpu.stream));
    CU(cuMemsetD32Async(high, 0, 1, gpu.stream));
    gpu.over_pixels(brightness, width, height, colours.pointer, gray.pointer);
    gpu.over_pixels(range, width, height, gray.pointer, low, high);
    gpu.over_pixels(stretch, width, height, gray.pointer, low, high);
    CU(cuMemcpyDtoHAsync(out.values.data(), gray.pointer, out.pixels() * 4, gpu.stream));
    CU(cuStreamSynchronize(gpu.stream));
    write_picture(out);
  }
  return 0;
}
