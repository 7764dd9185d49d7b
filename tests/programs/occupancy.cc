// Function attributes and occupancy. Numbers that depend on the compiler or the chip are checked
// for sense, not printed.
#include "tests/programs/common.h"

static size_t CUDA_CB words_for(int block) { return static_cast<size_t>(block) * 4; }

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction bounded = module.function("bounded");
  CUfunction dynamic = module.function("dynamic_shared");
  CUfunction matmul = module.function("matmul");
  int value = 0;
  CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, bounded));
  printf("bounded: max threads %d\n", value);
  CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, matmul));
  printf("matmul: static shared at least 2048: %s\n", value >= 2048 ? "yes" : "no");
  CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, matmul));
  printf("registers %s\n", value > 0 && value < 256 ? "sensible" : "odd");
  const char* name = nullptr;
  CU(cuFuncGetName(&name, matmul));
  printf("name %s\n", name);
  CUmodule owner;
  CU(cuFuncGetModule(&owner, matmul));
  printf("module %s\n", owner == module.handle ? "right" : "wrong");

  int blocks = 0;
  CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 256, 0));
  printf("active blocks %s\n", blocks >= 1 && blocks <= 64 ? "sensible" : "odd");
  CU(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, bounded, 128, 40000,
                                                          CU_OCCUPANCY_DEFAULT));
  printf("active blocks with 40000 bytes %s\n", blocks >= 1 && blocks <= 8 ? "sensible" : "odd");
  int grid = 0, block = 0;
  CU(cuOccupancyMaxPotentialBlockSize(&grid, &block, bounded, nullptr, 0, 0));
  printf("potential block %s\n", block > 0 && block <= 256 && grid > 0 ? "sensible" : "odd");
  CU(cuOccupancyMaxPotentialBlockSize(&grid, &block, dynamic, words_for, 0, 0));
  printf("potential block with shared memory by size %s\n",
         block > 0 && grid > 0 ? "sensible" : "odd");
  size_t room = 0;
  CU(cuOccupancyAvailableDynamicSMemPerBlock(&room, dynamic, 1, 256));
  printf("room %s\n", room >= 32768 ? "sensible" : "odd");

  // More dynamic shared memory than the default needs leave.
  DeviceArray<int> out(4);
  SHOW(try_launch(dynamic, {4}, {256}, 60000, nullptr, out.pointer, 15000));
  CU(cuFuncSetAttribute(dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
  SHOW(try_launch(dynamic, {4}, {256}, 60000, nullptr, out.pointer, 15000));
  print_hash("dynamic", out.read());
  CU(cuFuncSetCacheConfig(dynamic, CU_FUNC_CACHE_PREFER_SHARED));
  // Which error it is differs among drivers.
  printf(
      "more threads than the kernel's bound: %s\n",
      try_launch(bounded, {1}, {512}, 0, nullptr, out.pointer) == CUDA_SUCCESS ? "ran" : "refused");
  SHOW(try_launch(bounded, {1}, {2048}, 0, nullptr, out.pointer));
  SHOW(try_launch(bounded, {0}, {32}, 0, nullptr, out.pointer));
  SHOW(try_launch(bounded, {1, 70000}, {32}, 0, nullptr, out.pointer));
  return 0;
}
