// More streams than there are progress words, each with work and an event, made and ended faster
// than anybody comes after them.
#include "tests/programs/common.h"

int main() {
  Gpu gpu;
  DeviceArray<unsigned char> data(std::vector<unsigned char>(4096, 0));
  for (int i = 0; i < 12000; ++i) {
    CUstream stream;
    CUevent event;
    CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CU(cuEventCreate(&event, 0));
    CU(cuMemsetD8Async(data.pointer, static_cast<unsigned char>(i), 4096, stream));
    CU(cuEventRecord(event, stream));
    CU(cuStreamDestroy(stream));
    CU(cuEventDestroy(event));
  }
  SHOW(cuCtxSynchronize());
  CU(cuMemsetD8(data.pointer, 7, 4096));
  printf("%u\n", data.read()[0]);
  return 0;
}
