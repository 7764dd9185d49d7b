// cuInit and what may be asked before it.
#include "tests/conformance/case.h"

CASE(init_twice) {
  SHOW(cuInit(0));
  SHOW(cuInit(0));
}
CASE(init_with_flags) {
  SHOW(cuInit(1));
  int count = -1;
  SHOW(cuDeviceGetCount(&count));
  SHOW(cuInit(0));
}
CASE(device_count_before_init) {
  int count = -1;
  SHOW(cuDeviceGetCount(&count));
  printf("count %d\n", count);
}
