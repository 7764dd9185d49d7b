// Arithmetic whose results IEEE and the PTX manual fix to the bit, warp operations, and control
// flow with recursion.
#include "tests/programs/common.h"

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  Random random(4);
  const int count = 1024;
  std::vector<float> floats = random.floats(count);
  for (int i = 0; i < count; i += 7) floats[i] *= 1e30f;
  for (int i = 3; i < count; i += 11) floats[i] *= 1e-30f;
  std::vector<int> ints(count);
  for (int& value : ints) value = static_cast<int>(random.next());
  DeviceArray<float> dfloats(floats);
  DeviceArray<int> dints(ints);

  DeviceArray<uint32_t> exact(count * 16);
  LAUNCH(module.function("exact_math"), {8}, {128}, 0, nullptr, dfloats.pointer, dints.pointer,
         exact.pointer, count);
  std::vector<uint32_t> rows = exact.read();
  for (int column = 0; column < 16; ++column) {
    std::vector<uint32_t> values(count);
    for (int i = 0; i < count; ++i) values[i] = rows[i * 16 + column];
    printf("column %d: ", column);
    print_hash("values", values);
  }

  DeviceArray<int> warp(count * 8);
  LAUNCH(module.function("warp_ops"), {8}, {128}, 0, nullptr, dints.pointer, warp.pointer);
  print_hash("warp operations", warp.read());

  DeviceArray<int> flow(count);
  LAUNCH(module.function("control_flow"), {8}, {128}, 0, nullptr, dints.pointer, flow.pointer,
         count);
  print_hash("control flow", flow.read());
  return 0;
}
