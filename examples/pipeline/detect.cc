// Third function: brightness and gradient come in; a PPM picture with the edges in colour goes out.
#include "function.h"

int main() {
  Gpu gpu("detect.ptx");
  CUfunction thin = gpu.kernel("thin"), grow = gpu.kernel("grow"), paint = gpu.kernel("paint");
  Picture in;
  while (read_picture(&in)) {
    if (in.channels != 3) fail("detect wants three channels");
    std::vector<unsigned char> rgb(in.pixels() * 3);
    Buffer edges(in.pixels() * 12), marks(in.pixels()), colours(rgb.size()), changed(4), counts(16);
    CU(cuMemcpyHtoDAsync(edges.pointer, in.values.data(), in.pixels() * 12, gpu.stream));
    gpu.over_pixels(thin, in.width, in.height, edges.pointer, marks.pointer, 0.18f, 0.45f);
    int more = 1;
    while (more != 0) {
      CU(cuMemsetD32Async(changed.pointer, 0, 1, gpu.stream));
      gpu.over_pixels(grow, in.width, in.height, marks.pointer, changed.pointer);
      CU(cuMemcpyDtoHAsync(&more, changed.pointer, 4, gpu.stream));
      CU(cuStreamSynchronize(gpu.stream));
    }
    unsigned kinds[4];
    CU(cuMemsetD32Async(counts.pointer, 0, 4, gpu.stream));
    gpu.over_pixels(paint, in.width, in.height, edges.pointer, marks.pointer, colours.pointer,
                    counts.pointer);
    CU(cuMemcpyDtoHAsync(rgb.data(), colours.pointer, rgb.size(), gpu.stream));
    CU(cuMemcpyDtoHAsync(kinds, counts.pointer, 16, gpu.stream));
    CU(cuStreamSynchronize(gpu.stream));
    fprintf(
        stderr,
        "edge pixels: %u upright (red), %u level (blue), %u falling (yellow), %u rising (green)\n",
        kinds[0], kinds[1], kinds[2], kinds[3]);
    write_ppm(in.width, in.height, rgb);
  }
  return 0;
}
