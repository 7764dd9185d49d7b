// cuModule*: an image in one context.
#include "sim/calls/module.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/unique_fd.h"
#include "sim/calls/managed.h"
#include "sim/machine/heap.h"
#include "sim/machine/hold.h"

namespace tube::sim {
namespace {

void make_functions(State& s, Module* module) {
  for (const ptx::Kernel& kernel : module->code.module->kernels()) {
    auto f = std::make_unique<Function>();
    f->module = module;
    f->kernel = &kernel;
    s.live.emplace(f.get(), Kind::kFunction);
    module->functions.push_back(std::move(f));
  }
}

void fill_variables(Module* module) {
  const auto& variables = module->code.module->variables();
  for (size_t i = 0; i < variables.size(); ++i) {
    auto* host = reinterpret_cast<std::byte*>(module->variables[i]);
    const ptx::Variable& v = variables[i];
    if (module->code.placed_as(v.name) != nullptr) continue;  // its owner has filled it
    std::copy_n(v.image.data(), std::min<uint64_t>(v.image.size(), v.size), host);
    for (const auto& r : v.relocations) {
      if (r.target >= variables.size() || r.offset + r.width > v.size) continue;
      uint64_t address = module->variables[r.target] + r.addend;
      std::memcpy(host + r.offset, &address, r.width);
    }
  }
}

CUresult load(Context* context, CUmodule* out, const void* image, size_t size, unsigned count,
              CUjit_option* options, void** values) {
  if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  flush_prints(context);
  JitOptions jit;
  if (CUresult r = parse_jit_options(count, options, values, &jit)) return r;
  Code code;
  std::string error;
  CUresult r = compile_image(image, size, context->device->spec.sm, &code, &error);
  report_jit(jit, error);
  if (r != CUDA_SUCCESS) {
    if (jit.error == nullptr && !error.empty())
      std::fprintf(stderr, "tube sim: module not loaded: %s\n", error.c_str());
    return r;
  }
  State& s = state();
  Lock lock(s.mutex);
  (void)quiesce(lock, context);
  Module* module = nullptr;
  r = instantiate(s, context, std::move(code), &module);
  if (r == CUDA_SUCCESS) *out = reinterpret_cast<CUmodule>(module);
  return r;
}

CUresult find_variable(const Module& module, const char* name, CUdeviceptr* dptr, size_t* bytes) {
  const auto& variables = module.code.module->variables();
  for (size_t i = 0; i < variables.size(); ++i) {
    if (variables[i].name != name || module.code.placed_as(name) != nullptr) continue;
    if (dptr != nullptr) *dptr = module.variables[i];
    if (bytes != nullptr) *bytes = variables[i].size;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

// The driver brings each kernel to the GPU when it is first asked for, unless it loads eagerly. A
// library's may be there already.
void first_lookup(Lock& lock, Function* f) {
  const Module& module = *f->module;
  const bool in_use = module.library != nullptr &&
                      module.library->kernels[f->kernel->index]->used_in.contains(module.context);
  if (f->looked_up || in_use || state().loading_mode == CU_MODULE_EAGER_LOADING) return;
  f->looked_up = true;
  hold(lock, module.context);
}

}  // namespace

CUresult instantiate(State& s, Context* of, Code code, Module** out) {
  Context* context = base_context(of);
  auto* module = new Module;
  module->context = context;
  module->code = std::move(code);
  s.live.emplace(module, Kind::kModule);
  context->modules.push_back(module);
  for (const ptx::Variable& v : module->code.module->variables()) {
    if (const PlacedVariable* placed = module->code.placed_as(v.name)) {
      module->variables.push_back(placed->address);
      continue;
    }
    Range range;
    range.requested = std::max<uint64_t>(v.size, 1);
    range.kind = v.managed ? RangeKind::kManaged : RangeKind::kSymbol;
    range.of_module = true;
    range.device = context->device->ordinal;
    range.context = context;
    uint64_t base = 0;
    CUresult r = allocate_range(s, range, std::max<uint64_t>(v.align, kAllocAlign), &base);
    if (r != CUDA_SUCCESS) {
      destroy_module(s, module);
      return r;
    }
    module->variables.push_back(base);
    if (v.managed) remember_managed(base, range.requested);
  }
  fill_variables(module);
  make_functions(s, module);
  note_loaded(context, *module->code.module);
  *out = module;
  return CUDA_SUCCESS;
}

void destroy_module(State& s, Module* module) {
  for (size_t i = 0; i < module->variables.size(); ++i) {
    if (module->code.placed_as(module->code.module->variables()[i].name) != nullptr) continue;
    const auto gone = s.map.remove(module->variables[i]);
    if (!gone) continue;
    if (gone->kind == RangeKind::kManaged) forget_managed(*gone);
    release_range(s, *gone);
  }
  for (auto& f : module->functions) s.live.erase(f.get());
  std::erase(module->context->modules, module);
  if (module->library != nullptr) module->library->modules.erase(module->context);
  s.live.erase(module);
  delete module;
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  SIM_ENTER_CONTEXT(context);
  if (module == nullptr || fname == nullptr || *fname == '\0') return CUDA_ERROR_INVALID_VALUE;
  std::string bytes;
  // A folder is a file with that end, which has no room; those of /proc end at once.
  const tube::UniqueFd folder(open(fname, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.valid() && lseek(folder.get(), 0, SEEK_END) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!read_whole_file(fname, &bytes))
    return access(fname, F_OK) == 0 ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_FILE_NOT_FOUND;
  if (bytes.empty()) return CUDA_ERROR_INVALID_IMAGE;
  return load(context, module, bytes.data(), bytes.size(), 0, nullptr, nullptr);
}

SIM_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  SIM_ENTER_CONTEXT(context);
  return load(context, module, image, 0, 0, nullptr, nullptr);
}

SIM_API CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                                    CUjit_option* options, void** optionValues) {
  SIM_ENTER_CONTEXT(context);
  return load(context, module, image, 0, numOptions, options, optionValues);
}

SIM_API CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  SIM_ENTER_CONTEXT(context);
  return load(context, module, fatCubin, 0, 0, nullptr, nullptr);
}

SIM_API CUresult cuModuleUnload(CUmodule hmod) {
  SIM_ENTER_HANDLE(context);
  (void)context;
  State& s = state();
  Lock lock(s.mutex);
  auto* module = live<Module>(s, hmod, Kind::kModule);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (module->library != nullptr) return CUDA_ERROR_NOT_PERMITTED;
  if (CUresult r = check_capture_unsafe(s)) return r;
  if (CUresult r = quiesce(lock, module->context)) return r;  // its kernels may still run
  if (live<Module>(s, hmod, Kind::kModule) != module) return CUDA_ERROR_INVALID_HANDLE;
  destroy_module(s, module);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  SIM_ENTER(kInit);
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = state().loading_mode;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  SIM_ENTER(kHandle);
  if (hfunc == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  auto* module = live<Module>(s, hmod, Kind::kModule);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (auto& f : module->functions) {
    if (f->kernel->name != name) continue;
    first_lookup(lock, f.get());
    *hfunc = reinterpret_cast<CUfunction>(f.get());
    return CUDA_SUCCESS;
  }
  *hfunc = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

SIM_API CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  SIM_ENTER(kHandle);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  auto* module = live<Module>(s, mod, Kind::kModule);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(module->functions.size());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                            CUmodule mod) {
  SIM_ENTER(kHandle);
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  auto* module = live<Module>(s, mod, Kind::kModule);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (unsigned i = 0; i < numFunctions && i < module->functions.size(); ++i)
    functions[i] = reinterpret_cast<CUfunction>(module->functions[i].get());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod,
                                      const char* name) {
  zero(dptr, bytes);
  SIM_ENTER(kHandle);
  if (name == nullptr || *name == '\0' || (dptr == nullptr && bytes == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  auto* module = live<Module>(s, hmod, Kind::kModule);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return find_variable(*module, name, dptr, bytes);
}
