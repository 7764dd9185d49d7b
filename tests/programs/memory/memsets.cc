// Memsets of every width, linear and 2D, synchronous and on a stream.
#include "tests/programs/common.h"

int main() {
  Gpu gpu;
  const size_t bytes = 100 * 1000;
  DeviceArray<unsigned char> data(bytes);
  CU(cuMemsetD8(data.pointer, 0xab, bytes));
  print_hash("D8", data.read());
  CU(cuMemsetD16(data.pointer + 2, 0x1234, 777));
  print_hash("D16", data.read());
  CU(cuMemsetD32(data.pointer + 4000, 0xdeadbeef, 5000));
  print_hash("D32", data.read());
  CU(cuMemsetD2D8(data.pointer, 500, 0x5a, 33, 100));
  print_hash("2D8", data.read());
  CU(cuMemsetD2D16(data.pointer + 64, 512, 0x0f0f, 50, 90));
  print_hash("2D16", data.read());
  CU(cuMemsetD2D32(data.pointer + 128, 1024, 0x01020304, 20, 60));
  print_hash("2D32", data.read());

  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuMemsetD8Async(data.pointer + 1, 1, 11, stream));
  CU(cuMemsetD16Async(data.pointer + 20, 2, 12, stream));
  CU(cuMemsetD32Async(data.pointer + 60, 3, 13, stream));
  CU(cuMemsetD2D8Async(data.pointer + 200, 40, 4, 14, 15, stream));
  CU(cuMemsetD2D16Async(data.pointer + 2000, 80, 5, 16, 17, stream));
  CU(cuMemsetD2D32Async(data.pointer + 8000, 160, 6, 18, 19, stream));
  CU(cuStreamSynchronize(stream));
  print_hash("async", data.read());
  SHOW(cuMemsetD32(data.pointer + 2, 0, 1));
  SHOW(cuMemsetD16(data.pointer + 1, 0, 1));
  CU(cuStreamDestroy(stream));
  return 0;
}
