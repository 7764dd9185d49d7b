// The legacy default stream: it waits for blocking streams and they for it; non-blocking streams
// stand apart.
#include "tests/programs/common.h"

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction slow = module.function("slow_step");
  const int count = 1024;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(count, 1));
  CUstream a, b, apart;
  CU(cuStreamCreate(&a, CU_STREAM_DEFAULT));
  CU(cuStreamCreate(&b, CU_STREAM_DEFAULT));
  CU(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
  // No event anywhere: only the rules of the legacy stream order these.
  for (uint32_t i = 0; i < 10; ++i) {
    LAUNCH(slow, {4}, {256}, 0, a, data.pointer, 3u, i, count, 300);
    LAUNCH(slow, {4}, {256}, 0, nullptr, data.pointer, 5u, i + 1, count, 10);
    LAUNCH(slow, {4}, {256}, 0, b, data.pointer, 7u, i + 2, count, 200);
    CU(cuMemsetD32Async(data.pointer, i, 16, CU_STREAM_LEGACY));
    LAUNCH(slow, {4}, {256}, 0, CU_STREAM_PER_THREAD, data.pointer, 9u, i + 3, count, 100);
    LAUNCH(slow, {4}, {256}, 0, CU_STREAM_LEGACY, data.pointer, 11u, i + 4, count, 1);
  }
  // A synchronous copy on the legacy stream sees all of it.
  std::vector<uint32_t> seen(count);
  CU(cuMemcpyDtoH(seen.data(), data.pointer, count * 4));
  print_hash("ordered", seen);
  uint32_t expected = 1;
  for (uint32_t i = 0; i < 10; ++i) {
    expected = expected * 3 + i;
    expected = expected * 5 + i + 1;
    expected = expected * 7 + i + 2;
    expected = expected * 9 + i + 3;
    expected = expected * 11 + i + 4;
  }
  EXPECT(seen[count - 1] == expected);

  DeviceArray<uint32_t> other(std::vector<uint32_t>(count, 1));
  for (uint32_t i = 0; i < 10; ++i) {
    LAUNCH(slow, {4}, {256}, 0, apart, other.pointer, 3u, i, count, 300);
    LAUNCH(slow, {4}, {256}, 0, nullptr, data.pointer, 5u, i, count, 10);
  }
  CU(cuStreamSynchronize(apart));
  CU(cuMemcpyDtoHAsync(seen.data(), other.pointer, count * 4, apart));
  CU(cuStreamSynchronize(apart));
  print_hash("apart", seen);
  CU(cuStreamSynchronize(nullptr));
  SHOW(cuStreamQuery(nullptr));
  print_hash("legacy", data.read());
  // What a synchronous copy brought is there for a stream that the legacy one does not order.
  for (uint32_t i = 0; i < 100; ++i) {
    DeviceArray<uint32_t> fresh(count);
    const std::vector<uint32_t> values(count, i);
    CU(cuMemcpyHtoD(fresh.pointer, values.data(), count * 4));
    LAUNCH(module.function("step"), {4}, {256}, 0, apart, fresh.pointer, 3u, 1u, count);
    CU(cuMemcpyDtoHAsync(seen.data(), fresh.pointer, count * 4, apart));
    CU(cuStreamSynchronize(apart));
    EXPECT(seen[0] == i * 3 + 1 && seen[count - 1] == i * 3 + 1);
  }
  unsigned flags = 99;
  CU(cuStreamGetFlags(nullptr, &flags));
  printf("legacy flags %u\n", flags);
  CU(cuStreamDestroy(a));
  CU(cuStreamDestroy(b));
  CU(cuStreamDestroy(apart));
  return 0;
}
