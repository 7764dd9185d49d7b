// Matrix multiplication with 16x16 tiles in shared memory, at a size that is and one that is not a
// multiple of the tile.
#include "tests/programs/common.h"

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction matmul = module.function("matmul");
  Random random(3);
  for (int n : {64, 77}) {
    DeviceArray<float> a(random.floats(n * n)), b(random.floats(n * n)), c(n * n);
    unsigned blocks = (n + 15) / 16;
    LAUNCH(matmul, {blocks, blocks}, {16, 16}, 0, nullptr, a.pointer, b.pointer, c.pointer, n);
    std::vector<float> result = c.read();
    printf("n %d, corner %.9g\n", n, result[n * n - 1]);
    print_hash("product", result);
  }
  return 0;
}
