// Occupancy questions: plain arithmetic over a kernel's needs and the device's limits.
#include "tests/conformance/case.h"

namespace {
struct Kernels {
  Gpu gpu;
  Module module{"kernels.fatbin"};
  CUfunction get(const char* name) const { return module.function(name); }
};
}  // namespace

CASE(blocks_by_block_size) {
  Kernels kernels;
  for (int threads : {32, 64, 128, 256, 512, 1024}) {
    int blocks = -1;
    const CUresult result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.get("fill"), threads, 0);
    printf("%d: %s, %s\n", threads, code_name(result), blocks > 0 ? "some" : "none");
  }
}

CASE(blocks_on_hopper) {
  Kernels kernels;
  int major = 0;
  CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, kernels.gpu.device));
  if (major != 9) SKIP("not a Hopper GPU");
  for (int threads : {1, 32, 33, 100, 256, 1000, 1024}) {
    int blocks = -1;
    SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.get("poke"), threads, 0));
    printf("%d: %d\n", threads, blocks);
  }
  for (size_t shared : {0, 1024, 16384, 49152}) {
    int blocks = -1;
    CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.get("poke"), 64, shared));
    printf("%zu bytes: %d\n", shared, blocks);
  }
}

CASE(blocks_bad_arguments) {
  Kernels kernels;
  int blocks = -1;
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, kernels.get("fill"), 32, 0));
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nullptr, 32, 0));
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.get("fill"), 0, 0));
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.get("fill"), -1, 0));
  printf("%d\n", blocks);
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.get("fill"), 2048, 0));
  printf("%d\n", blocks);
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.get("fill"), 32, size_t{1} << 40));
  printf("%d\n", blocks);
}

CASE(more_threads_than_launch_bounds) {
  Kernels kernels;
  int blocks = -1;
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.get("bounded"), 512, 0));
  printf("%d\n", blocks);
}

CASE(with_flags) {
  Kernels kernels;
  int plain = -1, flagged = -2;
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&plain, kernels.get("fill"), 128, 0));
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&flagged, kernels.get("fill"), 128, 0, CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE));
  printf("same: %s\n", plain == flagged ? "yes" : "no");
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&flagged, kernels.get("fill"), 128, 0, CU_OCCUPANCY_DEFAULT));
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&flagged, kernels.get("fill"), 128, 0, 99));
}

CASE(shared_memory_needs_consent) {
  Kernels kernels;
  int blocks = -1;
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.get("dynamic_shared"), 64, 60000));
  printf("%d\n", blocks);
  CU(cuFuncSetAttribute(kernels.get("dynamic_shared"), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.get("dynamic_shared"), 64, 60000));
  printf("%s\n", blocks > 0 ? "some" : "none");
}

CASE(potential_block_size) {
  Kernels kernels;
  int grid = 0, block = 0;
  SHOW(cuOccupancyMaxPotentialBlockSize(&grid, &block, kernels.get("fill"), nullptr, 0, 0));
  printf("grid %s, block %d\n", grid > 0 ? "some" : "none", block);
  SHOW(cuOccupancyMaxPotentialBlockSize(&grid, &block, kernels.get("fill"), nullptr, 0, 128));
  printf("block %d\n", block);
  SHOW(cuOccupancyMaxPotentialBlockSize(&grid, &block, kernels.get("bounded"), nullptr, 0, 0));
  printf("block %d\n", block);
  SHOW(cuOccupancyMaxPotentialBlockSize(nullptr, &block, kernels.get("fill"), nullptr, 0, 0));
  SHOW(cuOccupancyMaxPotentialBlockSize(&grid, nullptr, kernels.get("fill"), nullptr, 0, 0));
  SHOW(cuOccupancyMaxPotentialBlockSize(&grid, &block, nullptr, nullptr, 0, 0));
  SHOW(cuOccupancyMaxPotentialBlockSize(&grid, &block, kernels.get("fill"), nullptr, 0, -1));
}

static size_t CUDA_CB shared_for(int threads) { return static_cast<size_t>(threads) * 64; }

CASE(potential_block_size_with_a_function_for_shared_memory) {
  Kernels kernels;
  int grid = 0, block = 0;
  SHOW(cuOccupancyMaxPotentialBlockSize(&grid, &block, kernels.get("block_sum"), shared_for, 0, 0));
  printf("block %d\n", block);
  SHOW(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, kernels.get("block_sum"), shared_for, 0, 0, CU_OCCUPANCY_DEFAULT));
  printf("block %d\n", block);
  SHOW(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, kernels.get("block_sum"), nullptr, 1024, 512, CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE));
  printf("block %d\n", block);
}

CASE(available_dynamic_shared_memory) {
  Kernels kernels;
  int major = 0;
  CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, kernels.gpu.device));
  size_t bytes = 0;
  SHOW(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, kernels.get("fill"), 1, 128));
  if (major == 9) printf("%zu\n", bytes);
  SHOW(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, kernels.get("fill"), 4, 128));
  if (major == 9) printf("%zu\n", bytes);
  // NULL crashes natively.
}

CASE(clusters) {
  Kernels kernels;
  CUlaunchConfig config = {};
  config.gridDimX = 8, config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 64, config.blockDimY = config.blockDimZ = 1;
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {2, 1, 1};
  config.attrs = &attribute, config.numAttrs = 1;
  int clusters = -1, size = -1;
  SHOW(cuOccupancyMaxActiveClusters(&clusters, kernels.get("fill"), &config));
  printf("%s\n", clusters > 0 ? "some" : "none");
  SHOW(cuOccupancyMaxPotentialClusterSize(&size, kernels.get("fill"), &config));
  printf("%d\n", size);
  SHOW(cuOccupancyMaxActiveClusters(nullptr, kernels.get("fill"), &config));
  SHOW(cuOccupancyMaxActiveClusters(&clusters, nullptr, &config));
  SHOW(cuOccupancyMaxActiveClusters(&clusters, kernels.get("fill"), nullptr));
  SHOW(cuOccupancyMaxPotentialClusterSize(&size, kernels.get("fill"), nullptr));
}

CASE(of_a_kernel_handle) {
  Gpu gpu;
  CUlibrary library = nullptr;
  CU(cuLibraryLoadData(&library, read_beside("kernels.fatbin").data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  CU(cuLibraryGetKernel(&kernel, library, "fill"));
  int blocks = -1;
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<CUfunction>(kernel), 128, 0));
  printf("%s\n", blocks > 0 ? "some" : "none");
}
