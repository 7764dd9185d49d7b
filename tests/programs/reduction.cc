// Reductions: dynamic shared memory with a shuffle tail, integer atomics, a shared-memory
// histogram.
#include "tests/programs/common.h"

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  Random random(2);
  const int count = 50000;

  std::vector<float> values = random.floats(count);
  DeviceArray<float> in(values);
  int blocks = (count + 511) / 512;
  DeviceArray<float> partial(blocks);
  LAUNCH(module.function("block_sum"), {static_cast<unsigned>(blocks)}, {256}, 256 * sizeof(float),
         nullptr, in.pointer, partial.pointer, count);
  DeviceArray<float> total(1);
  LAUNCH(module.function("block_sum"), {1}, {256}, 256 * sizeof(float), nullptr, partial.pointer,
         total.pointer, blocks);
  print_hash("partial sums", partial.read());
  printf("total %.9g\n", total.read()[0]);

  std::vector<int> ints(count);
  for (int& value : ints) value = static_cast<int>(random.next());
  DeviceArray<int> din(ints);
  DeviceArray<int> sum(std::vector<int>{0}), low(std::vector<int>{2147483647}),
      high(std::vector<int>{-2147483647 - 1});
  DeviceArray<unsigned long long> sum64(std::vector<unsigned long long>{0});
  LAUNCH(module.function("atomic_sum"), {(count + 127) / 128}, {128}, 0, nullptr, din.pointer,
         sum.pointer, sum64.pointer, low.pointer, high.pointer, count);
  printf("atomics: %d %llu %d %d\n", sum.read()[0], sum64.read()[0], low.read()[0], high.read()[0]);

  std::vector<unsigned char> bytes = random.bytes(count);
  DeviceArray<unsigned char> dbytes(bytes);
  DeviceArray<unsigned> bins(std::vector<unsigned>(256, 0));
  LAUNCH(module.function("histogram"), {8}, {128}, 0, nullptr, dbytes.pointer, bins.pointer, count);
  std::vector<unsigned> expected(256, 0);
  for (unsigned char byte : bytes) ++expected[byte];
  EXPECT(bins.read() == expected);
  print_hash("histogram", expected);
  return 0;
}
