// cuLibrary* and cuKernel*: context-independent code; each context gets its module on first use.
#include <algorithm>
#include <cstring>

#include "sim/calls/module.h"
#include "sim/machine/state.h"
#include "sim/machine/work.h"

namespace tube::sim {
namespace {

// Natively an image is looked into at the library's first use, unless everything is loaded eagerly:
// what is none is told then.
bool told_at_first_use(CUresult error) {
  return error == CUDA_ERROR_INVALID_IMAGE && state().loading_mode == CU_MODULE_LAZY_LOADING;
}

void make_kernels(State& s, Library* library) {
  for (const ptx::Kernel& kernel : library->code.module->kernels()) {
    auto f = std::make_unique<Function>();
    f->kernel = &kernel;
    f->library = library;
    s.live.emplace(f.get(), Kind::kKernel);
    library->kernels.push_back(std::move(f));
  }
}

CUresult load(CUlibrary* out, const void* code, size_t size, unsigned jit_count, CUjit_option* jit,
              void** jit_values, unsigned option_count, CUlibraryOption* options) {
  if (out == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < option_count; ++i)
    if (options == nullptr || options[i] < 0 || options[i] >= CU_LIBRARY_NUM_OPTIONS)
      return CUDA_ERROR_INVALID_VALUE;
  JitOptions log;
  if (CUresult r = parse_jit_options(jit_count, jit, jit_values, &log)) return r;
  State& s = state();
  // Loaded for the oldest device in the list would be wrong for newer entries only; all devices of
  // a preset are equal.
  int sm =
      current_context() != nullptr ? current_context()->device->spec.sm : s.devices[0]->spec.sm;
  Code compiled;
  std::string error;
  CUresult r = compile_image(code, size, sm, &compiled, &error);
  report_jit(log, error);
  if (r != CUDA_SUCCESS && !told_at_first_use(r)) {
    if (log.error == nullptr && !error.empty())
      std::fprintf(stderr, "tube sim: library not loaded: %s\n", error.c_str());
    return r;
  }
  Lock lock(s.mutex);
  auto* library = new Library;
  library->unusable = r;
  library->code = std::move(compiled);
  if (r == CUDA_SUCCESS) make_kernels(s, library);
  s.live.emplace(library, Kind::kLibrary);
  *out = reinterpret_cast<CUlibrary>(library);
  return CUDA_SUCCESS;
}

CUresult variable(CUlibrary handle, const char* name, bool managed, CUdeviceptr* dptr,
                  size_t* bytes, Context* context) {
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  auto* library = live<Library>(s, handle, Kind::kLibrary);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (library->unusable != CUDA_SUCCESS) return library->unusable;
  const auto& variables = library->code.module->variables();
  for (size_t i = 0; i < variables.size(); ++i) {
    if (variables[i].name != name || (managed && !variables[i].managed) ||
        library->code.placed_as(name) != nullptr)
      continue;
    Module* module = nullptr;
    if (context == nullptr && !library->modules.empty()) context = library->modules.begin()->first;
    if (context == nullptr && managed)
      context = primary_of(s, device_at(0));  // they belong to none
    if (context == nullptr) return CUDA_ERROR_NOT_FOUND;
    if (CUresult r = library_module(lock, context, library, &module)) return r;
    if (dptr != nullptr) *dptr = module->variables[i];
    if (bytes != nullptr) *bytes = variables[i].size;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace

CUresult library_module(Lock& lock, Context* of, Library* library, Module** out) {
  State& s = state();
  Context* context = base_context(of);  // parts of a GPU have their primary context's code
  if (!library->modules.contains(context)) {
    (void)quiesce(lock, context);
    if (!s.live.contains(library)) return CUDA_ERROR_INVALID_HANDLE;  // unloaded meanwhile
  }
  auto it = library->modules.find(context);
  if (it != library->modules.end()) {
    *out = it->second;
    return CUDA_SUCCESS;
  }
  Module* module = nullptr;
  if (CUresult r = instantiate(s, context, library->code, &module)) return r;
  module->library = library;
  library->modules.emplace(context, module);
  // Attributes set on the CUkernel before this context knew it.
  for (size_t i = 0; i < module->functions.size(); ++i) {
    Function *kernel = library->kernels[i].get(), *f = module->functions[i].get();
    f->max_dynamic_shared = kernel->max_dynamic_shared;
    f->carveout = kernel->carveout;
    f->non_portable_cluster = kernel->non_portable_cluster;
    f->cluster_policy = kernel->cluster_policy;
  }
  *out = module;
  return CUDA_SUCCESS;
}

// Each kernel is loaded with the first question about it, and that too waits.
void first_use(Lock& lock, Context* of, Function* kernel) {
  Context* context = of == nullptr ? nullptr : base_context(of);
  if (context != nullptr && kernel->used_in.insert(context).second) (void)quiesce(lock, context);
}

Function* resolve_function(Lock& lock, Context* context, CUfunction handle) {
  State& s = state();
  if (auto* f = live<Function>(s, handle, Kind::kFunction)) return f;
  auto* kernel = live<Function>(s, handle, Kind::kKernel);
  Module* module = nullptr;
  if (kernel != nullptr) first_use(lock, context, kernel);
  if (live<Function>(s, handle, Kind::kKernel) != kernel) return nullptr;  // unloaded meanwhile
  if (kernel == nullptr || context == nullptr ||
      library_module(lock, context, kernel->library, &module) != CUDA_SUCCESS)
    return nullptr;
  return module->functions[kernel->kernel->index].get();
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                                   void** jitOptionsValues, unsigned int numJitOptions,
                                   CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                   unsigned int numLibraryOptions) {
  SIM_ENTER(kInit);
  (void)libraryOptionValues;
  return load(library, code, 0, numJitOptions, jitOptions, jitOptionsValues, numLibraryOptions,
              libraryOptions);
}

SIM_API CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName,
                                       CUjit_option* jitOptions, void** jitOptionsValues,
                                       unsigned int numJitOptions, CUlibraryOption* libraryOptions,
                                       void** libraryOptionValues, unsigned int numLibraryOptions) {
  SIM_ENTER(kInit);
  (void)libraryOptionValues;
  if (library == nullptr || fileName == nullptr || *fileName == '\0')
    return CUDA_ERROR_INVALID_VALUE;
  std::string bytes;
  if (!read_whole_file(fileName, &bytes)) return CUDA_ERROR_FILE_NOT_FOUND;
  if (bytes.empty()) return CUDA_ERROR_INVALID_IMAGE;
  return load(library, bytes.data(), bytes.size(), numJitOptions, jitOptions, jitOptionsValues,
              numLibraryOptions, libraryOptions);
}

SIM_API CUresult cuLibraryUnload(CUlibrary library) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  auto* l = live<Library>(s, library, Kind::kLibrary);
  if (l == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<Context*> used;
  for (auto& [context, module] : l->modules) used.push_back(context);
  for (Context* context : used) quiesce(lock, context);
  if (live<Library>(s, library, Kind::kLibrary) != l) return CUDA_ERROR_INVALID_HANDLE;
  while (!l->modules.empty()) destroy_module(s, l->modules.begin()->second);
  for (auto& k : l->kernels) s.live.erase(k.get());
  s.live.erase(l);
  delete l;
  return CUDA_SUCCESS;
}

#define SIM_LIBRARY(variable, handle)                        \
  State& s = state();                                        \
  Lock lock(s.mutex);                                        \
  auto* variable = live<Library>(s, handle, Kind::kLibrary); \
  if (variable == nullptr) return CUDA_ERROR_INVALID_HANDLE; \
  if (variable->unusable != CUDA_SUCCESS) return variable->unusable
#define SIM_KERNEL(variable, handle)                         \
  State& s = state();                                        \
  Lock lock(s.mutex);                                        \
  auto* variable = live<Function>(s, handle, Kind::kKernel); \
  if (variable == nullptr) return CUDA_ERROR_INVALID_HANDLE

SIM_API CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  SIM_ENTER(kInit);
  if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_LIBRARY(l, library);
  for (auto& k : l->kernels) {
    if (k->kernel->name != name) continue;
    *pKernel = reinterpret_cast<CUkernel>(k.get());
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

SIM_API CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  SIM_ENTER(kInit);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_LIBRARY(l, lib);
  *count = static_cast<unsigned>(l->kernels.size());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels,
                                           CUlibrary lib) {
  SIM_ENTER(kInit);
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_LIBRARY(l, lib);
  for (unsigned i = 0; i < numKernels && i < l->kernels.size(); ++i)
    kernels[i] = reinterpret_cast<CUkernel>(l->kernels[i].get());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  SIM_ENTER_CONTEXT(context);
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_LIBRARY(l, library);
  Module* module = nullptr;
  if (CUresult r = library_module(lock, context, l, &module)) return r;
  *pMod = reinterpret_cast<CUmodule>(module);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                    const char* name) {
  SIM_ENTER_CONTEXT(context);
  return variable(library, name, false, dptr, bytes, context);
}

// The variables are made when the library is loaded into a first context.
SIM_API CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                     const char* name) {
  SIM_ENTER(kInit);
  return variable(library, name, true, dptr, bytes, current_context());
}

SIM_API CUresult cuLibraryGetUnifiedFunction(void** fptr, CUlibrary library, const char* symbol) {
  SIM_ENTER(kInit);
  if (fptr == nullptr || symbol == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_LIBRARY(l, library);
  (void)l;
  return CUDA_ERROR_INVALID_VALUE;  // no image here holds one
}

SIM_API CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  SIM_ENTER_CONTEXT(context);
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_KERNEL(k, kernel);
  first_use(lock, context, k);
  if (live<Function>(s, kernel, Kind::kKernel) != k) return CUDA_ERROR_INVALID_HANDLE;
  Module* module = nullptr;
  if (CUresult r = library_module(lock, context, k->library, &module)) return r;
  *pFunc = reinterpret_cast<CUfunction>(module->functions[k->kernel->index].get());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  SIM_ENTER(kInit);
  if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_KERNEL(k, kernel);
  *pLib = reinterpret_cast<CUlibrary>(k->library);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  SIM_ENTER(kInit);
  if (name == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_KERNEL(k, hfunc);
  *name = k->kernel->name.c_str();
  return CUDA_SUCCESS;
}
