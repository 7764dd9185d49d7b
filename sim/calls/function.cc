// cuFunc*, and the cuKernel* calls that take a device.
#include "sim/calls/function.h"

#include <algorithm>

#include "sim/calls/module.h"
#include "sim/machine/work.h"

namespace tube::sim {

uint32_t registers_of(const ptx::Kernel& kernel) {
  return std::clamp<uint32_t>(kernel.registers, 8, 255);
}

uint32_t max_threads_of(const ptx::Kernel& kernel) {
  uint32_t limit = 1024;
  if (kernel.max_threads != 0) limit = std::min(limit, kernel.max_threads);
  uint32_t per_block = 65536 / ((registers_of(kernel) + 7) / 8 * 8);
  return std::min(limit, std::max<uint32_t>(per_block / 32 * 32, 32));
}

uint32_t max_dynamic_shared(const Function& f, const Device& device) {
  if (const auto set = f.max_dynamic_shared.find(&device); set != f.max_dynamic_shared.end())
    return static_cast<uint32_t>(set->second);
  auto limit = static_cast<uint32_t>(sm_limits(device.spec.sm).shared_per_block);
  return limit - std::min(limit, f.kernel->static_shared_bytes);
}

CUresult get_function_attribute(const Function& f, const Device& device,
                                CUfunction_attribute attribute, int* value) {
  const ptx::Kernel& k = *f.kernel;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(max_threads_of(k));
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(k.static_shared_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *value = 0; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = static_cast<int>(k.local_bytes); break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = static_cast<int>(registers_of(k)); break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = device.spec.sm; break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: *value = 0; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = static_cast<int>(max_dynamic_shared(f, device));
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = f.carveout; break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET: *value = f.cluster_must_be_set; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: *value = f.cluster_width; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT: *value = f.cluster_height; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: *value = f.cluster_depth; break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = f.non_portable_cluster;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: *value = f.cluster_policy; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult set_function_attribute(Function& f, const Device& device, CUfunction_attribute attribute,
                                int value) {
  int optin = sm_limits(device.spec.sm).shared_per_block_optin;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > optin - static_cast<int>(f.kernel->static_shared_bytes))
        return CUDA_ERROR_INVALID_VALUE;
      f.max_dynamic_shared[&device] = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      f.carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: f.cluster_width = value; return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT: f.cluster_height = value; return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: f.cluster_depth = value; return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      f.non_portable_cluster = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value < 0 || value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
        return CUDA_ERROR_INVALID_VALUE;
      f.cluster_policy = value;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult get_param_info(const Function& f, size_t index, size_t* offset, size_t* size) {
  const auto& params = f.kernel->params;
  if (offset == nullptr || index >= params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = params[index].offset;
  if (size != nullptr) *size = params[index].size;
  return CUDA_SUCCESS;
}

namespace {

// Any function-like handle, without loading it anywhere.
Function* any_function(State& s, const void* handle) {
  if (auto* f = live<Function>(s, handle, Kind::kFunction)) return f;
  return live<Function>(s, handle, Kind::kKernel);
}

// A change of a kernel also applies to the functions already made from it on that device.
template <typename F>
CUresult for_kernel(CUkernel handle, CUdevice dev, F change) {
  State& s = state();
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Lock lock(s.mutex);
  Function* k = any_function(s, handle);
  if (k == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult r = change(*k, *device)) return r;
  if (k->library == nullptr) return CUDA_SUCCESS;
  for (auto& [context, module] : k->library->modules)
    if (context->device == device) change(*module->functions[k->kernel->index], *device);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

// `f` is the function in the current context's module, `s` and `lock` are there too.
#define SIM_FUNCTION(f, handle)                          \
  State& s = state();                                    \
  (void)s;                                               \
  Lock lock(s.mutex);                                    \
  Function* f = resolve_function(lock, context, handle); \
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE

// Most calls take a CUkernel for the CUfunction that it has in the current context. These do not.
static bool is_kernel(CUfunction handle) {
  Lock lock(state().mutex);
  return live<Function>(state(), handle, Kind::kKernel) != nullptr;
}

SIM_API CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  SIM_ENTER_HANDLE(context);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_kernel(hfunc)) return CUDA_ERROR_INVALID_HANDLE;
  SIM_FUNCTION(f, hfunc);
  return get_function_attribute(*f, *f->module->context->device, attrib, pi);
}

SIM_API CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  SIM_ENTER_HANDLE(context);
  SIM_FUNCTION(f, hfunc);
  return set_function_attribute(*f, *f->module->context->device, attrib, value);
}

SIM_API CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  SIM_ENTER_HANDLE(context);
  SIM_FUNCTION(f, hfunc);
  (void)f;
  return config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_SUCCESS;
}

SIM_API CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  SIM_ENTER_HANDLE(context);
  SIM_FUNCTION(f, hfunc);
  (void)f;
  if (config < 0 || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  SIM_ENTER_HANDLE(context);
  if (hmod == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_FUNCTION(f, hfunc);
  *hmod = reinterpret_cast<CUmodule>(f->module);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  SIM_ENTER_HANDLE(context);
  if (name == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_kernel(hfunc)) return CUDA_ERROR_INVALID_HANDLE;
  SIM_FUNCTION(f, hfunc);
  *name = f->kernel->name.c_str();
  return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                                    size_t* paramSize) {
  SIM_ENTER_HANDLE(context);
  if (func == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_FUNCTION(f, func);
  return get_param_info(*f, paramIndex, paramOffset, paramSize);
}

SIM_API CUresult cuFuncIsLoaded(CUfunctionLoadingState* loading, CUfunction function) {
  SIM_ENTER_HANDLE(context);
  if (loading == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_FUNCTION(f, function);
  (void)f;
  *loading = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncLoad(CUfunction function) {
  SIM_ENTER_HANDLE(context);
  SIM_FUNCTION(f, function);
  (void)f;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel,
                                      CUdevice dev) {
  SIM_ENTER(kInit);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Lock lock(s.mutex);
  Function* f = any_function(s, kernel);
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return get_function_attribute(*f, *device, attrib, pi);
}

SIM_API CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel,
                                      CUdevice dev) {
  SIM_ENTER(kInit);
  return for_kernel(kernel, dev, [=](Function& f, Device& d) {
    return set_function_attribute(f, d, attrib, val);
  });
}

SIM_API CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  SIM_ENTER(kInit);
  if (config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  return for_kernel(kernel, dev, [](Function&, Device&) { return CUDA_SUCCESS; });
}

SIM_API CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                                      size_t* paramSize) {
  SIM_ENTER(kInit);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  Function* f = any_function(s, kernel);
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (f->library != nullptr) first_use(lock, current_context(), f);
  if (any_function(s, kernel) != f) return CUDA_ERROR_INVALID_HANDLE;  // unloaded meanwhile
  return get_param_info(*f, paramIndex, paramOffset, paramSize);
}
