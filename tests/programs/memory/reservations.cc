// Threads that reserve addresses, map memory there and give both back, side by side: the same
// addresses come again, each time as what they are now.
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 150;

size_t reserve_and_ask(CUmemGenericAllocationHandle memory, size_t mapped, size_t reserved) {
  CUdeviceptr address;
  CU(cuMemAddressReserve(&address, reserved, 0, 0, 0));
  CU(cuMemMap(address, mapped, 0, memory, 0));
  CUdeviceptr start = 0;
  size_t size = 0;
  CU(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address));
  CU(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
  EXPECT(start == address);
  CU(cuMemUnmap(address, mapped));
  CU(cuMemAddressFree(address, reserved));
  return size;
}

}  // namespace

int main() {
  Gpu gpu;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t unit = 0;
  CU(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  std::vector<std::thread> threads;
  size_t units[kThreads] = {};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      CU(cuCtxSetCurrent(gpu.context));
      CUmemGenericAllocationHandle memory;
      CU(cuMemCreate(&memory, unit, &properties, 0));
      for (int round = 0; round < kRounds; ++round)
        units[t] += reserve_and_ask(memory, unit, 2 * unit) / unit;
      CU(cuMemRelease(memory));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t count : units) printf("units asked for: %zu\n", count);
  return 0;
}
