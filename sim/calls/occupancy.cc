// cuOccupancy*. Pure functions of kernel, device and arguments.
#include "sim/calls/occupancy.h"

#include <algorithm>

#include "sim/calls/function.h"
#include "sim/machine/work.h"

namespace tube::sim {
namespace {

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

uint64_t block_shared(const Function& f, const SmLimits& l, uint64_t dynamic_shared) {
  return round_up(
      f.kernel->static_shared_bytes + dynamic_shared + static_cast<uint64_t>(l.reserved_shared),
      128);
}

// Clusters that can be resident at once on the whole device.
CUresult active_clusters(const Function& f, const Device& device, const CUlaunchConfig& config,
                         int* out) {
  uint64_t size = 1;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& a = config.attrs[i];
    if (a.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      size = uint64_t{a.value.clusterDim.x} * a.value.clusterDim.y * a.value.clusterDim.z;
  }
  if (device.spec.sm < 90) return CUDA_ERROR_NOT_SUPPORTED;
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > (f.non_portable_cluster != 0 ? 16u : 8u)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  uint32_t threads = config.blockDimX * config.blockDimY * config.blockDimZ;
  uint64_t per_sm = static_cast<uint64_t>(blocks_per_sm(f, device, threads, config.sharedMemBytes));
  *out = static_cast<int>(per_sm * static_cast<uint64_t>(device.spec.sm_count) / size);
  return CUDA_SUCCESS;
}

}  // namespace

int blocks_per_sm(const Function& f, const Device& device, uint32_t threads,
                  uint64_t dynamic_shared) {
  SmLimits l = sm_limits(device.spec.sm);
  if (threads == 0 || threads > 1024) return 0;  // launch bounds play no part
  uint64_t warps = (threads + 31) / 32;
  uint64_t by_threads = static_cast<uint64_t>(l.max_threads) / 32 / warps;
  uint64_t per_warp = round_up(registers_of(*f.kernel) * 32, 256);
  uint64_t by_registers = static_cast<uint64_t>(l.registers) / per_warp / 4 * 4 / warps;
  uint64_t shared = block_shared(f, l, dynamic_shared);
  if (shared >
      static_cast<uint64_t>(l.shared_per_block_optin) + static_cast<uint64_t>(l.reserved_shared))
    return 0;
  uint64_t by_shared = shared == 0 ? UINT64_MAX : static_cast<uint64_t>(l.shared_per_sm) / shared;
  return static_cast<int>(
      std::min({by_threads, by_registers, by_shared, static_cast<uint64_t>(l.max_blocks)}));
}

}  // namespace tube::sim

using namespace tube::sim;

#define SIM_OCCUPANCY_FUNCTION(f, handle)                \
  SIM_ENTER_CONTEXT(context);                            \
  Lock lock(state().mutex);                              \
  Function* f = resolve_function(lock, context, handle); \
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE

static CUresult max_blocks(int* out, Function* f, Context* context, int blockSize, size_t dynamic,
                           unsigned flags) {
  if (out == nullptr || blockSize <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
    return CUDA_ERROR_INVALID_VALUE;
  dynamic &= UINT32_MAX;  // as the driver takes it
  *out = dynamic > max_dynamic_shared(*f, *context->device)
             ? 0
             : blocks_per_sm(*f, *context->device, static_cast<uint32_t>(blockSize), dynamic);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func,
                                                             int blockSize,
                                                             size_t dynamicSMemSize) {
  SIM_OCCUPANCY_FUNCTION(f, func);
  return max_blocks(numBlocks, f, context, blockSize, dynamicSMemSize, 0);
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int flags) {
  SIM_OCCUPANCY_FUNCTION(f, func);
  return max_blocks(numBlocks, f, context, blockSize, dynamicSMemSize, flags);
}

static CUresult potential_block(int* minGridSize, int* blockSize, CUfunction func,
                                CUoccupancyB2DSize size_of, size_t dynamic, int limit,
                                Context* context) {
  if (minGridSize == nullptr || blockSize == nullptr || limit < 0) return CUDA_ERROR_INVALID_VALUE;
  Function* f = nullptr;
  {
    Lock lock(state().mutex);
    f = resolve_function(lock, context, func);
  }
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  int top = static_cast<int>(max_threads_of(*f->kernel));
  if (limit > 0) top = std::min(top, limit);
  int best_threads = 0, best_block = 0, best_count = 0;
  for (int block = top / 32 * 32 == 0 ? top : top / 32 * 32; block > 0; block -= 32) {
    size_t bytes =
        size_of != nullptr ? size_of(block) : dynamic;  // the program's callback: without the lock
    if (bytes > max_dynamic_shared(*f, *context->device)) continue;
    int count = blocks_per_sm(*f, *context->device, static_cast<uint32_t>(block), bytes);
    if (count * block <= best_threads) continue;
    best_threads = count * block;
    best_block = block;
    best_count = count;
  }
  *blockSize = best_block;
  *minGridSize = best_count * context->device->spec.sm_count;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                                  CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                  size_t dynamicSMemSize, int blockSizeLimit) {
  SIM_ENTER_CONTEXT(context);
  return potential_block(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
                         blockSizeLimit, context);
}

SIM_API CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(
    int* minGridSize, int* blockSize, CUfunction func,
    CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit,
    unsigned int flags) {
  SIM_ENTER_CONTEXT(context);
  if (flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
  return potential_block(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
                         blockSizeLimit, context);
}

SIM_API CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                         int numBlocks, int blockSize) {
  SIM_OCCUPANCY_FUNCTION(f, func);
  if (dynamicSmemSize == nullptr || numBlocks <= 0 || blockSize <= 0)
    return CUDA_ERROR_INVALID_VALUE;
  SmLimits l = sm_limits(context->device->spec.sm);
  if (blocks_per_sm(*f, *context->device, static_cast<uint32_t>(blockSize), 0) < numBlocks)
    return CUDA_ERROR_INVALID_VALUE;
  int64_t share = l.shared_per_sm / numBlocks / 128 * 128 - l.reserved_shared -
                  static_cast<int64_t>(f->kernel->static_shared_bytes);
  int64_t limit = max_dynamic_shared(*f, *context->device);
  *dynamicSmemSize = static_cast<size_t>(std::max<int64_t>(std::min(share, limit), 0));
  return CUDA_SUCCESS;
}

SIM_API CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                                    const CUlaunchConfig* config) {
  SIM_OCCUPANCY_FUNCTION(f, func);
  if (clusterSize == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (context->device->spec.sm < 90) return CUDA_ERROR_NOT_SUPPORTED;
  *clusterSize = f->non_portable_cluster != 0 ? 16 : 8;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                              const CUlaunchConfig* config) {
  if (initialized() && func == nullptr && current_context() != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_OCCUPANCY_FUNCTION(f, func);
  if (numClusters == nullptr || config == nullptr ||
      (config->numAttrs > 0 && config->attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  return active_clusters(*f, *context->device, *config, numClusters);
}
