// Vector addition: the smallest whole program. Also an odd size, so that the last block is partly
// idle.
#include "tests/programs/common.h"

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction add = module.function("vector_add");
  Random random(1);
  const int sizes[] = {1, 255, 256, 70001};
  for (int count : sizes) {
    std::vector<float> a = random.floats(count);
    std::vector<float> b = random.floats(count);
    DeviceArray<float> da(a), db(b), out(count);
    LAUNCH(add, {static_cast<unsigned>((count + 255) / 256)}, {256}, 0, nullptr, da.pointer,
           db.pointer, out.pointer, count);
    std::vector<float> result = out.read();
    for (int i = 0; i < count; ++i) EXPECT(result[i] == a[i] + b[i]);
    print_hash("sum", result);
  }
  return 0;
}
