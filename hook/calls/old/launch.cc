// The launch interface of CUDA 3: block shape, shared memory and parameters are set in the
// function, then it is launched.
//
// The settings live beside the kernel in this process (OldLaunch, made at the first setting) and go
// out with an ordinary launch. A program that uses a function from two threads at once had to lock
// natively; here the lock only keeps the settings whole. Also the multi-device cooperative launch:
// one cooperative launch per entry after CUDA's own checks; the grids do not synchronise with each
// other, and no compiler makes kernels that would since CUDA 13 dropped the call.
#include <cstring>

#include "hook/objects/kernels.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

Kernel* kernel_of(CUfunction handle) { return find_kernel(handle); }
// As for a launch: without a function it is the missing context that is told.
CUresult no_kernel() {
  return current_context() == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

bool fits_device(const Kernel* kernel, int x, int y, int z) {
  const Context* context =
      kernel->module->context != nullptr ? kernel->module->context : current_context();
  if (context == nullptr) return true;
  const int32_t* limits = context->info().attributes;
  return x <= limits[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X] &&
         y <= limits[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y] &&
         z <= limits[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z] &&
         int64_t{x} * y * z <= limits[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
}

CUresult set_parameter(CUfunction hfunc, int offset, const void* data, unsigned bytes) {
  Kernel* kernel = kernel_of(hfunc);
  if (kernel == nullptr) return no_kernel();
  if (offset < 0 || data == nullptr || bytes > kMaxParameterBytes ||
      static_cast<unsigned>(offset) > kMaxParameterBytes - bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Locked locked(kernel->lock);
  std::vector<std::byte>& parameters = kernel->old_launch.parameters;
  const size_t end = static_cast<size_t>(offset) + bytes;
  if (parameters.size() < end) parameters.resize(end);
  if (bytes != 0)
    std::memcpy(parameters.data() + offset, data,
                bytes);  // no parameters yet: no address to copy to
  return CUDA_SUCCESS;
}

CUresult launch_grid(CUfunction f, int width, int height, CUstream stream) {
  Kernel* kernel = kernel_of(f);
  if (kernel == nullptr) return no_kernel();
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  OldLaunch settings;
  {
    Locked locked(kernel->lock);
    settings = kernel->old_launch;
  }
  size_t bytes = settings.parameters.size();
  if (bytes > kernel->parameter_bytes)
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;  // more arguments than the kernel has
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, settings.parameters.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  return hook::cuLaunchKernel(f, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                              settings.block[0], settings.block[1], settings.block[2],
                              settings.shared_bytes, stream, nullptr, extra);
}

// What CUDA demands of the list as a whole: own streams, each on another device, one shape.
CUresult check_devices(const CUDA_LAUNCH_PARAMS* list, unsigned count) {
  uint64_t seen = 0;
  for (unsigned i = 0; i < count; ++i) {
    const CUDA_LAUNCH_PARAMS& p = list[i];
    if (reinterpret_cast<uintptr_t>(p.hStream) <= 2) return CUDA_ERROR_INVALID_HANDLE;
    CUresult error = CUDA_SUCCESS;
    const Stream* stream = find_stream(p.hStream, &error);
    if (stream == nullptr) return error;
    const uint64_t bit = uint64_t{1} << (stream->context->device & 63);
    if ((seen & bit) != 0) return CUDA_ERROR_INVALID_DEVICE;
    seen |= bit;
    if (p.gridDimX != list->gridDimX || p.gridDimY != list->gridDimY ||
        p.gridDimZ != list->gridDimZ || p.blockDimX != list->blockDimX ||
        p.blockDimY != list->blockDimY || p.blockDimZ != list->blockDimZ ||
        p.sharedMemBytes != list->sharedMemBytes) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  Kernel* kernel = kernel_of(hfunc);
  if (kernel == nullptr) return no_kernel();
  if (x <= 0 || y <= 0 || z <= 0 || !fits_device(kernel, x, y, z)) return CUDA_ERROR_INVALID_VALUE;
  Locked locked(kernel->lock);
  kernel->old_launch.block[0] = static_cast<uint32_t>(x);
  kernel->old_launch.block[1] = static_cast<uint32_t>(y);
  kernel->old_launch.block[2] = static_cast<uint32_t>(z);
  return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  Kernel* kernel = kernel_of(hfunc);
  if (kernel == nullptr) return no_kernel();
  Locked locked(kernel->lock);
  kernel->old_launch.shared_bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  Kernel* kernel = kernel_of(hfunc);
  if (kernel == nullptr) return no_kernel();
  if (numbytes > kMaxParameterBytes) return CUDA_ERROR_INVALID_VALUE;
  Locked locked(kernel->lock);
  kernel->old_launch.parameters.resize(numbytes);
  return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return set_parameter(hfunc, offset, &value, sizeof value);
}
CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return set_parameter(hfunc, offset, &value, sizeof value);
}
CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return set_parameter(hfunc, offset, ptr, numbytes);
}

// A module's references are bound without it since CUDA 3; what is left is the check of the
// arguments.
CUresult cuParamSetTexRef(CUfunction hfunc, int texunit, CUtexref hTexRef) {
  if (kernel_of(hfunc) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (objects().find(Kind::kTexRef, hTexRef) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return texunit != CU_PARAM_TR_DEFAULT ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuLaunch(CUfunction f) { return launch_grid(f, 1, 1, nullptr); }
CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return launch_grid(f, grid_width, grid_height, nullptr);
}
CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  return launch_grid(f, grid_width, grid_height, hStream);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launchParamsList,
                                              unsigned int numDevices, unsigned int flags) {
  constexpr unsigned kFlags = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                              CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
  if (launchParamsList == nullptr || numDevices == 0 || (flags & ~kFlags) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (numDevices > process().device_count) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_devices(launchParamsList, numDevices); r != CUDA_SUCCESS) return r;
  for (unsigned i = 0; i < numDevices; ++i) {
    const CUDA_LAUNCH_PARAMS& p = launchParamsList[i];
    const CUresult r = hook::cuLaunchCooperativeKernel(
        p.function, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ,
        p.sharedMemBytes, p.hStream, p.kernelParams);
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

}  // namespace tube::hook
