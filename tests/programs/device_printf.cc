// printf in a kernel: the text belongs to this process's standard output, at the latest when it
// synchronises.
#include "tests/programs/common.h"

int main() {
  setvbuf(stdout, nullptr, _IONBF, 0);
  Gpu gpu;
  Module module("globals.fatbin");
  printf("before\n");
  for (int i = 0; i < 3; ++i) {
    LAUNCH(module.function("say_hello"), {1}, {32}, 0, nullptr, 100 + i,
           0.125f * static_cast<float>(i));
    CU(cuCtxSynchronize());
  }
  printf("after\n");
  return 0;
}
