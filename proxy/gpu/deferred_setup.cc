#include "proxy/gpu/deferred_setup.h"

#include "protocol/driver_table.gen.h"
#include "proxy/empty_kernel.gen.h"

namespace tube::proxy {

namespace {

// Empty kernels on their way; a stream takes about a thousand launches before the next one stands.
constexpr uint32_t kMost = 256;

}  // namespace

CUresult DeferredSetup::prepare(const Driver& driver, CUdevice device, CUcontext context) {
  CUmodule module = nullptr;
  CUfunction empty = nullptr;
  CUstream stream = nullptr;
  CUresult error = driver.cuModuleLoadData(&module, kEmptyKernelImage);
  if (error == CUDA_SUCCESS) error = driver.cuModuleGetFunction(&empty, module, "tube_empty");
  if (error == CUDA_SUCCESS) error = driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (error != CUDA_SUCCESS) return error;
  Prepared& made = prepared_.emplace_back();
  made.device = device;
  made.context = context;
  made.empty = empty;
  made.stream = stream;
  launch(driver, made);
  return CUDA_SUCCESS;
}

void DeferredSetup::run(const Driver& driver, CUdevice device) {
  for (Prepared& prepared : prepared_) {
    if (prepared.device == device) launch(driver, prepared);
  }
}

void DeferredSetup::launch(const Driver& driver, Prepared& prepared) {
  // The current one may be a green context's.
  if (driver.cuCtxPushCurrent_v2(prepared.context) != CUDA_SUCCESS) return;
  if (prepared.launched.load() >= kMost &&
      driver.cuStreamQuery(prepared.stream) != CUDA_ERROR_NOT_READY)
    prepared.launched = 0;
  if (prepared.launched.load() < kMost) {
    ++prepared.launched;
    (void)driver.cuLaunchKernel(prepared.empty, 1, 1, 1, 1, 1, 1, 0, prepared.stream, nullptr,
                                nullptr);
  }
  CUcontext ignored = nullptr;
  (void)driver.cuCtxPopCurrent_v2(&ignored);
}

}  // namespace tube::proxy
