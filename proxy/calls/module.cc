// Libraries, modules and their kernels.
//
// A kernel is loaded when its function is looked up (docs/decisions/0009), not at its first launch,
// and the look-up's reply carries everything a client needs afterwards: parameter layout and
// attributes. The reply to a load carries the same for the kernels that other clients looked up
// before, or functions of earlier runs (module_cache.h).
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "image/fatbin.h"
#include "protocol/device_info.h"
#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/calls/handler_glue.h"
#include "proxy/calls/managed_variables.h"
#include "proxy/calls/modules.h"
#include "proxy/code/image_trials.h"
#include "proxy/code/jit_options.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/owner.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"

namespace tube::proxy {

namespace {

wire::Kind table_of(wire::LoadedAs kind) {
  return kind == wire::LoadedAs::kLibrary ? wire::Kind::kLibrary : wire::Kind::kModule;
}

Result<std::shared_ptr<const Image>> fetch_image(Session& session,
                                                 const Decoded<wire::tubeLoadImage>& call) {
  if (call->token == 0) {
    Stats::add(session.stats().image_bytes, call->image.size);
    return session.shared().images.from_bytes(call.blob(call->image));
  }
  UniqueFd fd = session.take_fd(call->token);
  if (!fd.valid()) return Error{CUDA_ERROR_INVALID_VALUE, "no fd came with the image"};
  uint64_t read_bytes = 0;
  auto image = session.shared().images.from_fd(fd.get(), call->offset, call->size,
                                               session.shared().gpus.capabilities(), &read_bytes);
  Stats::add(session.stats().image_bytes, read_bytes);
  return image;
}

CUresult load_as(Session& session, const Decoded<wire::tubeLoadImage>& call, const Image& image,
                 JitOptions& jit, unsigned int jit_count, uint64_t* raw) {
  if (call->kind != wire::LoadedAs::kLibrary)
    return load_module(session, image, jit, jit_count, raw);
  return load_library(session, image, jit, jit_count, call.array<uint32_t>(call->library_options),
                      call.array<uint64_t>(call->library_values), raw);
}

// PTX, before anybody may stand behind its load: tried, if a child shall be the first to compile
// it, which then has put it into the driver's cache, or compiled. `answered`: by `answers`, not by
// the load, if it comes to one that succeeds.
CUresult compile_first(Session& session, const Decoded<wire::tubeLoadImage>& call,
                       const std::shared_ptr<const Image>& image, JitOptions* answers,
                       bool* answered) {
  const Client& client = session.client();
  const Gpu& gpu = session.shared().gpus[session.context()->gpu];
  const auto options = call.array<uint32_t>(call->jit_options);
  const auto values = call.array<uint64_t>(call->jit_values);
  if (CUresult error = try_image({.image = image,
                                  .ordinal = gpu.ordinal,
                                  .capability = gpu.capability,
                                  .jit_options = options,
                                  .jit_values = values,
                                  .inputs = {},
                                  .names = {}},
                                 client.name, [&session] { return session.stopping(); });
      error != CUDA_SUCCESS)
    return error;
  // Where there are managed variables, a linker compiles it, which holds nobody up (load_fresh).
  const ImageFacts& facts = image->facts(session.shared().gpus.capabilities());
  if ((facts.all & kImageManaged) != 0) return CUDA_SUCCESS;
  return session.shared().modules.compiler().compile(
      *image, gpu.capability,
      {.as_module = call->kind == wire::LoadedAs::kModule,
       .untrusted_options = options,
       .untrusted_values = values,
       .untrusted_info_bytes = call->info_log_bytes,
       .untrusted_error_bytes = call->error_log_bytes},
      answers, answered);
}

// What the driver is asked when no loaded module serves: options and logs of a JIT belong to this
// one load. Managed variables get their storage on the way, and then it is another image that was
// loaded. A driver that takes no machine code at all (the simulated GPU) shows that with its
// answer; then it gets the PTX.
CUresult load_fresh(Session& session, const Decoded<wire::tubeLoadImage>& call, JitOptions& jit,
                    PlacedVariables* managed, std::shared_ptr<const Image>* image, uint64_t* raw) {
  Stats::add(session.stats().images_loaded);
  for (const Form form : {Form::kMachineCode, Form::kPtx}) {
    PlacedImage placed;
    CUresult error = place_variables(session, **image, form, call->kind == wire::LoadedAs::kLibrary,
                                     jit, &placed);
    if (error != CUDA_SUCCESS) return error;
    if (placed.image == nullptr) continue;
    // PTX is compiled by now: the options have done their work.
    error = load_as(session, call, *placed.image, jit, form == Form::kPtx ? 0 : jit.count(), raw);
    if (error == CUDA_SUCCESS) {
      *image = std::move(placed.image);
      *managed = std::move(placed.placed);
      return CUDA_SUCCESS;
    }
    session.leave_variables(placed.placed.storage);
    if (error != CUDA_ERROR_NO_BINARY_FOR_GPU) return error;
  }
  return load_as(session, call, **image, jit, jit.count(), raw);
}

ModuleState* module_state(Session& session, wire::Kind kind, uint64_t untrusted_id) {
  Object* object = session.objects().find(kind, untrusted_id);
  return object == nullptr ? nullptr : static_cast<ModuleState*>(object->state.get());
}

}  // namespace

LoadedModule* module_of(Session& session, const Object& kernel) {
  const ModuleState* owner =
      module_state(session, owner_kind(kernel.owner), owner_id(kernel.owner));
  return owner == nullptr ? nullptr : owner->module.get();
}

bool load_stays(Session& session, const Object& object, bool changes) {
  const auto& kernel = static_cast<const KernelState&>(*object.state);
  const uint32_t gpu = session.context()->gpu;
  return kernel.is_library_kernel && (kernel.on_gpus & bit_of(gpu)) == 0 && !session.captures() &&
         !module_of(session, object)->has(*kernel.name, gpu) &&
         (changes ? session.waits_for_own_changing() : session.waits_for_own());
}

CUresult load_here(Session& session, const Object& object) {
  auto& kernel = static_cast<KernelState&>(*object.state);
  const uint32_t gpu = session.context()->gpu;
  if (!kernel.is_library_kernel || (kernel.on_gpus & bit_of(gpu)) != 0) return CUDA_SUCCESS;
  const auto& shared = session.shared();
  LoadedKernel* loaded = nullptr;
  bool fresh = false;
  LoadedModule& module = *module_of(session, object);
  const CUresult error = session.or_without_pool(gpu, [&] {
    return module.kernel(session.driver(), shared.gpus, gpu, *kernel.name, &loaded, &fresh);
  });
  if (error != CUDA_SUCCESS) return error;
  kernel.on_gpus |= bit_of(gpu);
  if (kernel.dynamic_limit(gpu) == KernelState::kNoLimit)
    kernel.set_dynamic_limit(gpu, first_limit(module, *loaded, gpu));
  return CUDA_SUCCESS;
}

CUresult load_module(Session& session, const Image& image, JitOptions& jit, unsigned int jit_count,
                     uint64_t* raw) {
  return session.or_without_pool(session.context()->gpu, [&] {
    return session.driver().cuModuleLoadDataEx(reinterpret_cast<CUmodule*>(raw), image.data(),
                                               jit_count, jit.options(), jit.values());
  });
}

CUresult load_library(Session& session, const Image& image, JitOptions& jit, unsigned int jit_count,
                      std::span<const uint32_t> untrusted_options,
                      std::span<const uint64_t> untrusted_values, uint64_t* raw) {
  if (untrusted_options.size() != untrusted_values.size() ||
      untrusted_options.size() > CU_LIBRARY_NUM_OPTIONS)
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUlibraryOption> ours;
  std::vector<void*> our_values;
  for (size_t i = 0; i < untrusted_options.size(); ++i) {
    if (untrusted_options[i] == CU_LIBRARY_BINARY_IS_PRESERVED)
      continue;  // that promise is ours to make, below
    if (untrusted_options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE)
      return CUDA_ERROR_NOT_SUPPORTED;  // host pointers
    ours.push_back(static_cast<CUlibraryOption>(untrusted_options[i]));
    our_values.push_back(reinterpret_cast<void*>(untrusted_values[i]));
  }
  ours.push_back(CU_LIBRARY_BINARY_IS_PRESERVED);
  our_values.push_back(reinterpret_cast<void*>(1));
  return session.driver().cuLibraryLoadData(
      reinterpret_cast<CUlibrary*>(raw), image.data(), jit.options(), jit.values(), jit_count,
      ours.data(), our_values.data(), static_cast<unsigned int>(ours.size()));
}

CUresult handle(Session& session, const Decoded<wire::tubeLoadImage>& call,
                Reply<wire::tubeLoadImage>& reply) {
  const wire::Kind kind = table_of(call->kind);
  if (CUresult error = session.objects().admit(kind, call->library); error != CUDA_SUCCESS)
    return error;
  if (session.waits_for_own()) return CUDA_SUCCESS;
  Result<std::shared_ptr<const Image>> image = fetch_image(session, call);
  if (!image.ok()) {
    log_warn("function '%s': %s", session.client().name.c_str(), image.error().message.c_str());
    return static_cast<CUresult>(image.error().code);
  }
  if (image::is_endless((*image)->data(), (*image)->size())) return CUDA_ERROR_INVALID_IMAGE;
  session.known().loads((*image)->content().low, (*image)->content().high);
  JitOptions jit;
  CUresult error =
      jit.build(call.array<uint32_t>(call->jit_options), call.array<uint64_t>(call->jit_values),
                call->info_log_bytes, call->error_log_bytes);
  if (error != CUDA_SUCCESS) return error;
  auto state = std::make_unique<ModuleState>();
  const ContextShare& share = *session.context();
  const bool plain =
      call->jit_options.size == 0 && call->library_options.size == 0 && share.green == nullptr;
  bool fresh = false, answered = false;
  JitOptions compilers;
  const auto ahead = [&] { return compile_first(session, call, *image, &compilers, &answered); };
  const auto load = [&, managed = &state->managed](std::shared_ptr<const Image>* loaded,
                                                   uint64_t* raw) {
    const CUresult failed = load_fresh(session, call, jit, managed, loaded, raw);
    answered = answered && failed == CUDA_SUCCESS;
    return failed;
  };
  error = session.shared().modules.get(
      {session.client().id, kind == wire::Kind::kLibrary, share.gpu, plain}, *image, ahead, load,
      &state->module, &fresh);
  (answered ? compilers : jit).answer<wire::tubeLoadImage_reply>(reply);
  if (error != CUDA_SUCCESS) return error;
  session.shared().images.keep(*image);
  if (!fresh) Stats::add(session.stats().images_shared);
  const std::shared_ptr<LoadedModule> module = state->module;
  reply.put(&wire::tubeLoadImage_reply::kernels,
            module->table(share.gpu, session.shared().gpus.capabilities(), reply.room()));
  // A library belongs to no context (0): it outlives a context's reset. The id was admitted, so
  // this succeeds.
  return session.objects().insert(kind, call->library, module->raw(),
                                  kind == wire::Kind::kModule ? share.number : 0, std::move(state));
}

CUresult handle(Session& session, const Decoded<wire::tubeUnload>& call, Reply<wire::tubeUnload>&) {
  return session.destroy_object(table_of(call->kind), call->library);
}

// Also without anybody waiting, when the load's reply has told all there is to say.
CUresult handle(Session& session, const Decoded<wire::tubeGetKernel>& call,
                Reply<wire::tubeGetKernel>& reply) {
  if (CUresult error = session.objects().admit(wire::Kind::kKernel, call->kernel);
      error != CUDA_SUCCESS)
    return error;
  const std::string name = text(call.blob(call->name));
  const wire::Kind kind = table_of(call->kind);
  const ModuleState* owner = module_state(session, kind, call->library);
  if (owner == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  LoadedModule& module = *owner->module;
  const uint32_t gpu = session.context()->gpu;
  if (module.library() && !module.has(name, gpu) && session.waits_for_own()) return CUDA_SUCCESS;
  LoadedKernel* loaded = nullptr;
  bool fresh = false;
  CUresult error =
      module.kernel(session.driver(), session.shared().gpus, gpu, name, &loaded, &fresh);
  if (error != CUDA_SUCCESS) return error;
  Stats::add(fresh ? session.stats().kernels_loaded : session.stats().kernels_shared);
  auto kernel = std::make_unique<KernelState>();
  kernel->launches = &session.notes();
  describe(*kernel, module, *loaded, gpu);
  const ImageFacts& facts = module.image()->facts(session.shared().gpus.capabilities());
  kernel->writes = facts.writes(name);
  kernel->runtime = facts.runtime(name);
  reply->parameter_count = kernel->parameter_count;
  reply->parameter_bytes = kernel->parameter_bytes;
  reply->writes = kernel->writes;
  reply.put(&wire::tubeGetKernel_reply::layout, std::as_bytes(std::span(loaded->layout)));
  const auto seen = module.seen(*loaded, gpu);
  reply.put(&wire::tubeGetKernel_reply::attributes, std::as_bytes(std::span(seen->attributes)));
  const auto raw = reinterpret_cast<uint64_t>(kernel->function);
  error = session.objects().insert(wire::Kind::kKernel, call->kernel, raw, 0, std::move(kernel));
  if (error == CUDA_SUCCESS)
    session.objects().find(wire::Kind::kKernel, call->kernel)->owner =
        owner_key(kind, call->library);
  return error;
}

namespace {

// Whether the question brings the library's variables into the context, and is to come again.
bool question_stays(Session& session, const Object& library) {
  return static_cast<const ModuleState&>(*library.state)
             .module->variables_come(session.driver(), session.shared().gpus,
                                     session.context()->gpu) &&
         session.waits_for_own();
}

CUresult ask_library(Session& session, const Object& library,
                     const std::function<CUresult()>& question) {
  const uint32_t gpu = session.context()->gpu;
  return static_cast<const ModuleState&>(*library.state)
      .module->ask_variable(session.driver(), session.shared().gpus, gpu, question);
}

CUresult ask_global(Session& session, const Object& module, bool library, const std::string& name,
                    CUdeviceptr* address, size_t* bytes) {
  if (!library)
    return session.driver().cuModuleGetGlobal_v2(address, bytes, module.handle<CUmodule>(),
                                                 name.c_str());
  return ask_library(session, module, [&] {
    return session.driver().cuLibraryGetGlobal(address, bytes, module.handle<CUlibrary>(),
                                               name.c_str());
  });
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeGetGlobal>& call,
                Reply<wire::tubeGetGlobal>& reply) {
  Object* module = session.objects().find(table_of(call->kind), call->library);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::string name = text(call.blob(call->name));
  if (const PlacedVariable* placed =
          find(static_cast<const ModuleState&>(*module->state).managed, name);
      placed != nullptr) {
    reply->dptr = placed->address;
    reply->bytes = placed->bytes;
    reply->managed = 1;
    return CUDA_SUCCESS;
  }
  CUdeviceptr address = 0;
  size_t bytes = 0;
  const wire::Kind kind = table_of(call->kind);
  if (kind == wire::Kind::kLibrary && question_stays(session, *module)) return CUDA_SUCCESS;
  CUresult error =
      ask_global(session, *module, kind == wire::Kind::kLibrary, name, &address, &bytes);
  if (error == CUDA_SUCCESS && static_cast<ModuleState&>(*module->state).module->shared()) {
    // A variable that nobody else may see: the client gets a module of its own.
    if (session.waits_for_own()) return CUDA_SUCCESS;
    error = take_own_module(session, kind, call->library);
    if (error == CUDA_SUCCESS)
      error = ask_global(session, *module, kind == wire::Kind::kLibrary, name, &address, &bytes);
  }
  if (error != CUDA_SUCCESS) return error;
  reply->dptr = address;
  reply->bytes = bytes;
  Range range;
  range.base = address;
  range.bytes = bytes;
  range.kind = RangeKind::kGlobal;
  range.device = static_cast<int>(session.context()->gpu);
  if (session.ranges().insert(range))
    static_cast<ModuleState&>(*module->state).globals.push_back(address);
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeGetManaged>& call,
                Reply<wire::tubeGetManaged>& reply) {
  Object* library = session.objects().find(wire::Kind::kLibrary, call->library);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::string name = text(call.blob(call->name));
  if (const PlacedVariable* placed =
          find(static_cast<const ModuleState&>(*library->state).managed, name);
      placed != nullptr) {
    reply->dptr = placed->address;
    reply->bytes = placed->bytes;
    return CUDA_SUCCESS;
  }
  if (question_stays(session, *library)) return CUDA_SUCCESS;
  CUdeviceptr address = 0;
  size_t bytes = 0;
  const CUresult error = ask_library(session, *library, [&] {
    return session.driver().cuLibraryGetManaged(&address, &bytes, library->handle<CUlibrary>(),
                                                name.c_str());
  });
  reply->bytes = bytes;
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeListKernels>& call,
                Reply<wire::tubeListKernels>& reply) {
  const Driver& driver = session.driver();
  Object* module = session.objects().find(table_of(call->kind), call->library);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool library = call->kind == wire::LoadedAs::kLibrary;
  unsigned int count = 0;
  CUresult error = library ? driver.cuLibraryGetKernelCount(&count, module->handle<CUlibrary>())
                           : driver.cuModuleGetFunctionCount(&count, module->handle<CUmodule>());
  if (error != CUDA_SUCCESS) return error;
  std::vector<CUfunction> functions(count);
  if (count != 0) {
    error = library
                ? driver.cuLibraryEnumerateKernels(reinterpret_cast<CUkernel*>(functions.data()),
                                                   count, module->handle<CUlibrary>())
                : driver.cuModuleEnumerateFunctions(functions.data(), count,
                                                    module->handle<CUmodule>());
    if (error != CUDA_SUCCESS) return error;
  }
  reply->total = count;
  std::string names;
  for (uint32_t i = call->first; i < count && names.size() < reply.room(); ++i) {
    const char* name = nullptr;
    error = library ? driver.cuKernelGetName(&name, reinterpret_cast<CUkernel>(functions[i]))
                    : driver.cuFuncGetName(&name, functions[i]);
    if (error != CUDA_SUCCESS) return error;
    const size_t skip = i == call->first ? std::min<size_t>(call->skip, std::strlen(name)) : 0;
    names.append(name + skip).push_back('\0');
  }
  names.resize(std::min<size_t>(names.size(), reply.room()));  // the client asks again from there
  reply.put(&wire::tubeListKernels_reply::names, std::as_bytes(std::span(names)));
  return CUDA_SUCCESS;
}

namespace {

// Whether launches before it go as they would have without it.
bool harms_none(const KernelState& kernel, uint32_t gpu, int32_t attribute, int32_t value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return true;  // a hint
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return kernel.dynamic_limit(gpu) != KernelState::kNoLimit &&
             value >= kernel.dynamic_limit(gpu);
    default: return false;
  }
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeKernelSetAttribute>& call,
                Reply<wire::tubeKernelSetAttribute>&) {
  session.runs().forget();
  Object* object = session.objects().find(wire::Kind::kKernel, call->kernel);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto& kernel = static_cast<KernelState&>(*object->state);
  if (load_stays(session, *object, true)) return CUDA_SUCCESS;
  if (CUresult error = load_here(session, *object); error != CUDA_SUCCESS) return error;
  const auto id = static_cast<CUfunction_attribute>(call->attribute);
  const uint32_t gpu = session.context()->gpu;
  const CUdevice device = session.shared().gpus[gpu].device;
  if (!harms_none(kernel, gpu, call->attribute, call->value) && session.change_named())
    return CUDA_SUCCESS;
  if (kernel.shared && id == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    const CUresult error =
        module_of(session, *object)
            ->raise_limit(session.driver(), *kernel.loaded, gpu, device, call->value);
    if (error == CUDA_SUCCESS) kernel.set_dynamic_limit(gpu, call->value);
    return error;
  }
  // A carve-out is a hint; what else can be set decides whether a launch is valid.
  if (kernel.shared && id != CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
    if (session.waits_for_own_changing()) return CUDA_SUCCESS;
    if (CUresult error = take_own_module_of(session, call->kernel); error != CUDA_SUCCESS)
      return error;
  }
  const CUresult error =
      kernel.is_library_kernel
          ? session.driver().cuKernelSetAttribute(
                id, call->value, reinterpret_cast<CUkernel>(kernel.function), device)
          : session.driver().cuFuncSetAttribute(kernel.function, id, call->value);
  if (error == CUDA_SUCCESS && id == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    kernel.set_dynamic_limit(gpu, call->value);
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeKernelGetAttribute>& call,
                Reply<wire::tubeKernelGetAttribute>& reply) {
  Object* object = session.objects().find(wire::Kind::kKernel, call->kernel);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto& kernel = static_cast<const KernelState&>(*object->state);
  if (load_stays(session, *object)) return CUDA_SUCCESS;
  if (CUresult error = load_here(session, *object); error != CUDA_SUCCESS) return error;
  const auto seen = module_of(session, *object)->seen(*kernel.loaded, session.context()->gpu);
  if (!seen.has_value()) return CUDA_ERROR_INVALID_HANDLE;  // a module's function, of another GPU
  reply.put(&wire::tubeKernelGetAttribute_reply::attributes,
            std::as_bytes(std::span(seen->attributes)));
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeKernelSetCacheConfig>& call,
                Reply<wire::tubeKernelSetCacheConfig>&) {
  session.runs().forget();
  Object* object = session.objects().find(wire::Kind::kKernel, call->kernel);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto& kernel = static_cast<const KernelState&>(*object->state);
  if (load_stays(session, *object)) return CUDA_SUCCESS;
  if (CUresult error = load_here(session, *object); error != CUDA_SUCCESS) return error;
  const auto config = static_cast<CUfunc_cache>(call->config);
  if (!kernel.is_library_kernel)
    return session.driver().cuFuncSetCacheConfig(kernel.function, config);
  const CUdevice device = session.shared().gpus[session.context()->gpu].device;
  return session.driver().cuKernelSetCacheConfig(reinterpret_cast<CUkernel>(kernel.function),
                                                 config, device);
}

}  // namespace tube::proxy
