// Module variables and constants: initial values, changes by host and by kernels, two instances of
// one module apart.
#include "tests/programs/common.h"

static void show(const Module& module, const char* when) {
  DeviceArray<int> counter(2);
  DeviceArray<float> table(64), weights(16);
  LAUNCH(module.function("read_state"), {1}, {64}, 0, nullptr, counter.pointer, table.pointer,
         weights.pointer);
  std::vector<int> counters = counter.read();
  printf("%s: counter %d, through the pointer %d\n", when, counters[0], counters[1]);
  print_hash(" table", table.read());
  print_hash(" weights", weights.read());
}

int main() {
  Gpu gpu;
  Module module("globals.fatbin");
  Module twin("globals.fatbin");
  show(module, "fresh");
  CUdeviceptr address = 0;
  size_t size = 0;
  CU(cuModuleGetGlobal(&address, &size, module.handle, "table"));
  printf("table has %zu bytes\n", size);
  Random random(9);
  std::vector<float> table = random.floats(64);
  CU(cuMemcpyHtoD(address, table.data(), size));
  CU(cuModuleGetGlobal(&address, &size, module.handle, "weights"));
  printf("weights have %zu bytes\n", size);
  CU(cuMemcpyHtoD(address + 8, table.data(), 16));
  for (int i = 0; i < 5; ++i) LAUNCH(module.function("bump"), {3}, {32}, 0, nullptr, 10 + i);
  show(module, "changed");
  show(twin, "twin");
  CU(cuModuleGetGlobal(&address, &size, module.handle, "counter"));
  int value = 0;
  CU(cuMemcpyDtoH(&value, address, 4));
  printf("counter read by the host: %d\n", value);
  SHOW(cuModuleGetGlobal(&address, &size, module.handle, "no_such_variable"));
  CUfunction function;
  SHOW(cuModuleGetFunction(&function, module.handle, "no_such_kernel"));
  return 0;
}
