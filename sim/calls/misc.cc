// Small chapters: profiler, RDMA flush, and old names of calls whose arguments never changed.
#include "sim/machine/state.h"

// Behind cuda_api.h, which says what names cuda.h gives.
#include <cudaProfiler.h>

using namespace tube::sim;

SIM_API CUresult cuProfilerInitialize(const char*, const char*, CUoutput_mode) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_NOT_SUPPORTED;  // removed from real drivers too
}
SIM_API CUresult cuProfilerStart(void) {
  SIM_ENTER(kContext);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuProfilerStop(void) {
  SIM_ENTER(kContext);
  return CUDA_SUCCESS;
}

// Nothing else writes this memory: what is there is there for all.
SIM_API CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                            CUflushGPUDirectRDMAWritesScope scope) {
  SIM_ENTER(kContext);
  const bool known = target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX &&
                     (scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ||
                      scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The pre-4.0 names.
SIM_API CUresult cuCtxDestroy(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }
SIM_API CUresult cuCtxPopCurrent(CUcontext* pctx) { return cuCtxPopCurrent_v2(pctx); }
SIM_API CUresult cuCtxPushCurrent(CUcontext ctx) { return cuCtxPushCurrent_v2(ctx); }
SIM_API CUresult cuStreamDestroy(CUstream hStream) { return cuStreamDestroy_v2(hStream); }
SIM_API CUresult cuEventDestroy(CUevent hEvent) { return cuEventDestroy_v2(hEvent); }

SIM_API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr,
                                              void* value) {
  SIM_ENTER(kInit);
  Device* d = device_at(device);
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    return CUDA_ERROR_INVALID_VALUE;
  *static_cast<cuuint64_t*>(value) = 0;  // graph memory is ordinary pool memory here
  return CUDA_SUCCESS;
}
SIM_API CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr,
                                              void* value) {
  SIM_ENTER(kInit);
  if (device_at(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const bool high =
      attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  return high && value != nullptr && *static_cast<const cuuint64_t*>(value) == 0
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuDeviceGraphMemTrim(CUdevice device) {
  SIM_ENTER(kInit);
  return device_at(device) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
