// Libraries, modules and their kernels.
//
// A kernel is loaded when its function is looked up (decision 11), not at its first launch, and the look-up's reply
// carries everything a client needs afterwards: parameter layout and attributes.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/log.h"
#include "protocol/device_info.h"
#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/gpus.h"
#include "proxy/jit_options.h"
#include "proxy/client_limits.h"
#include "proxy/module_state.h"
#include "proxy/owner.h"
#include "proxy/session.h"

namespace tube::proxy {

namespace {

constexpr uint32_t kLibraryKind = 0;

wire::Kind table_of(uint32_t untrusted_kind) { return untrusted_kind == kLibraryKind ? wire::Kind::kLibrary : wire::Kind::kModule; }

std::string text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

Result<std::shared_ptr<const Image>> fetch_image(Session& session, const Decoded<wire::tubeLoadImage>& call) {
  if (call->token == 0) return session.shared().images.from_bytes(call.blob(call->image));
  UniqueFd fd = session.take_fd(call->token);
  if (!fd.valid()) return Error{CUDA_ERROR_INVALID_VALUE, "no fd came with the image"};
  return session.shared().images.from_fd(fd.get(), call->offset, call->size);
}

CUresult load_library(Session& session, const Decoded<wire::tubeLoadImage>& call, JitOptions& jit, const Image& image, CUlibrary* library) {
  const auto options = call.array<uint32_t>(call->library_options);
  const auto values = call.array<uint64_t>(call->library_values);
  if (options.size() != values.size() || options.size() > CU_LIBRARY_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUlibraryOption> ours;
  std::vector<void*> our_values;
  for (size_t i = 0; i < options.size(); ++i) {
    if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED) continue;  // that promise is ours to make, below
    if (options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE) return CUDA_ERROR_NOT_SUPPORTED;  // host pointers
    ours.push_back(static_cast<CUlibraryOption>(options[i]));
    our_values.push_back(reinterpret_cast<void*>(values[i]));
  }
  ours.push_back(CU_LIBRARY_BINARY_IS_PRESERVED);
  our_values.push_back(reinterpret_cast<void*>(1));
  return session.driver().cuLibraryLoadData(library, image.data(), jit.options(), jit.values(), jit.count(), ours.data(), our_values.data(),
                                            static_cast<unsigned int>(ours.size()));
}

// The parameter layout, asked one by one until the driver says that there is no such parameter.
CUresult read_layout(const Driver& driver, KernelState& kernel, std::vector<KernelParameter>& layout) {
  for (size_t index = 0;; ++index) {
    size_t offset = 0;
    size_t size = 0;
    const CUresult error = kernel.is_library_kernel
                               ? driver.cuKernelGetParamInfo(reinterpret_cast<CUkernel>(kernel.function), index, &offset, &size)
                               : driver.cuFuncGetParamInfo(kernel.function, index, &offset, &size);
    if (error == CUDA_ERROR_INVALID_VALUE) break;
    if (error != CUDA_SUCCESS) return error;
    if (index >= limits::kParameters) return CUDA_ERROR_NOT_SUPPORTED;
    layout.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(size)});
    kernel.parameter_bytes = std::max(kernel.parameter_bytes, static_cast<uint32_t>(offset + size));
  }
  kernel.parameter_count = static_cast<uint32_t>(layout.size());
  return CUDA_SUCCESS;
}

CUresult read_attribute(Session& session, const KernelState& kernel, int attribute, int* value) {
  const auto id = static_cast<CUfunction_attribute>(attribute);
  if (!kernel.is_library_kernel) return session.driver().cuFuncGetAttribute(value, id, kernel.function);
  const CUdevice device = session.shared().gpus[session.context()->gpu].device;
  return session.driver().cuKernelGetAttribute(value, id, reinterpret_cast<CUkernel>(kernel.function), device);
}

CUresult find_function(Session& session, const Decoded<wire::tubeGetKernel>& call, const std::string& name, KernelState& kernel) {
  const Driver& driver = session.driver();
  Object* module = session.objects().find(table_of(call->kind), call->library);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (call->kind != kLibraryKind) return driver.cuModuleGetFunction(&kernel.function, module->handle<CUmodule>(), name.c_str());
  kernel.is_library_kernel = true;
  CUkernel found = nullptr;
  CUresult error = driver.cuLibraryGetKernel(&found, module->handle<CUlibrary>(), name.c_str());
  if (error != CUDA_SUCCESS) return error;
  kernel.function = reinterpret_cast<CUfunction>(found);
  CUfunction loaded = nullptr;
  return driver.cuKernelGetFunction(&loaded, found);  // loads it into this context now
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeLoadImage>& call, Reply<wire::tubeLoadImage>& reply) {
  const wire::Kind kind = table_of(call->kind);
  if (CUresult error = session.objects().admit(kind, call->library); error != CUDA_SUCCESS) return error;
  Result<std::shared_ptr<const Image>> image = fetch_image(session, call);
  if (!image.ok()) {
    log_warn("function '%s': %s", session.client().name.c_str(), image.error().message.c_str());
    return static_cast<CUresult>(image.error().code);
  }
  JitOptions jit;
  CUresult error = jit.build(call.array<uint32_t>(call->jit_options), call.array<uint64_t>(call->jit_values), call->info_log_bytes,
                             call->error_log_bytes);
  if (error != CUDA_SUCCESS) return error;
  auto state = std::make_unique<ModuleState>();
  state->image = *image;
  uint64_t raw = 0;
  if (kind == wire::Kind::kLibrary) {
    CUlibrary library = nullptr;
    error = load_library(session, call, jit, **image, &library);
    raw = reinterpret_cast<uint64_t>(library);
  } else {
    CUmodule module = nullptr;
    error = session.driver().cuModuleLoadDataEx(&module, (*image)->data(), jit.count(), jit.options(), jit.values());
    raw = reinterpret_cast<uint64_t>(module);
  }
  jit.answer<wire::tubeLoadImage_reply>(reply);
  if (error != CUDA_SUCCESS) return error;
  // A library belongs to no context (0): it outlives a context's reset.
  return session.objects().insert(kind, call->library, raw, kind == wire::Kind::kModule ? session.context()->number : 0, std::move(state));
}

CUresult handle(Session& session, const Decoded<wire::tubeUnload>& call, Reply<wire::tubeUnload>&) {
  return session.destroy_object(table_of(call->kind), call->library);
}

CUresult handle(Session& session, const Decoded<wire::tubeGetKernel>& call, Reply<wire::tubeGetKernel>& reply) {
  if (CUresult error = session.objects().admit(wire::Kind::kKernel, call->kernel); error != CUDA_SUCCESS) return error;
  const std::string name = text(call.blob(call->name));
  auto kernel = std::make_unique<KernelState>();
  if (CUresult error = find_function(session, call, name, *kernel); error != CUDA_SUCCESS) return error;
  std::vector<KernelParameter> layout;
  if (CUresult error = read_layout(session.driver(), *kernel, layout); error != CUDA_SUCCESS) return error;
  kernel->name = session.shared().images.intern(name);
  const auto& module = static_cast<const ModuleState&>(*session.objects().find(table_of(call->kind), call->library)->state);
  kernel->writes = module.image->writes(session.shared().gpus.capabilities());
  int32_t attributes[info::kFunctionAttributeCount][2] = {};
  for (uint32_t id = 0; id < info::kFunctionAttributeCount; ++id) {
    attributes[id][0] = read_attribute(session, *kernel, static_cast<int>(id), &attributes[id][1]);
  }
  reply->parameter_count = kernel->parameter_count;
  reply->parameter_bytes = kernel->parameter_bytes;
  reply->writes = kernel->writes;
  reply.put(&wire::tubeGetKernel_reply::layout, std::as_bytes(std::span(layout)));
  reply.put(&wire::tubeGetKernel_reply::attributes, std::as_bytes(std::span(attributes)));
  const auto raw = reinterpret_cast<uint64_t>(kernel->function);
  CUresult error = session.objects().insert(wire::Kind::kKernel, call->kernel, raw, 0, std::move(kernel));
  if (error == CUDA_SUCCESS) session.objects().find(wire::Kind::kKernel, call->kernel)->owner = owner_key(table_of(call->kind), call->library);
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeGetGlobal>& call, Reply<wire::tubeGetGlobal>& reply) {
  Object* module = session.objects().find(table_of(call->kind), call->library);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::string name = text(call.blob(call->name));
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CUresult error = call->kind == kLibraryKind
                       ? session.driver().cuLibraryGetGlobal(&address, &bytes, module->handle<CUlibrary>(), name.c_str())
                       : session.driver().cuModuleGetGlobal_v2(&address, &bytes, module->handle<CUmodule>(), name.c_str());
  if (error != CUDA_SUCCESS) return error;
  reply->dptr = address;
  reply->bytes = bytes;
  Range range;
  range.base = address;
  range.bytes = bytes;
  range.kind = RangeKind::kGlobal;
  range.device = static_cast<int>(session.context()->gpu);
  if (session.ranges().insert(range)) static_cast<ModuleState&>(*module->state).globals.push_back(address);
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeGetManaged>& call, Reply<wire::tubeGetManaged>& reply) {
  auto library = session.resolve<CUlibrary>(wire::Kind::kLibrary, call->library);
  if (library.error != CUDA_SUCCESS) return library.error;
  CUdeviceptr address = 0;
  size_t bytes = 0;
  const CUresult error = session.driver().cuLibraryGetManaged(&address, &bytes, library.handle, text(call.blob(call->name)).c_str());
  reply->bytes = bytes;
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeListKernels>& call, Reply<wire::tubeListKernels>& reply) {
  const Driver& driver = session.driver();
  Object* module = session.objects().find(table_of(call->kind), call->library);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool library = call->kind == kLibraryKind;
  unsigned int count = 0;
  CUresult error = library ? driver.cuLibraryGetKernelCount(&count, module->handle<CUlibrary>())
                           : driver.cuModuleGetFunctionCount(&count, module->handle<CUmodule>());
  if (error != CUDA_SUCCESS) return error;
  std::vector<CUfunction> functions(count);
  if (count != 0) {
    error = library ? driver.cuLibraryEnumerateKernels(reinterpret_cast<CUkernel*>(functions.data()), count, module->handle<CUlibrary>())
                    : driver.cuModuleEnumerateFunctions(functions.data(), count, module->handle<CUmodule>());
    if (error != CUDA_SUCCESS) return error;
  }
  reply->total = count;
  std::string names;
  for (uint32_t i = call->first; i < count; ++i) {
    const char* name = nullptr;
    error = library ? driver.cuKernelGetName(&name, reinterpret_cast<CUkernel>(functions[i])) : driver.cuFuncGetName(&name, functions[i]);
    if (error != CUDA_SUCCESS) return error;
    if (names.size() + std::strlen(name) + 1 > reply.room()) break;  // the client asks again from there
    names.append(name).push_back('\0');
  }
  reply.put(&wire::tubeListKernels_reply::names, std::as_bytes(std::span(names)));
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeKernelSetAttribute>& call, Reply<wire::tubeKernelSetAttribute>&) {
  session.forget_runs();
  Object* object = session.objects().find(wire::Kind::kKernel, call->kernel);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto& kernel = static_cast<const KernelState&>(*object->state);
  const auto id = static_cast<CUfunction_attribute>(call->attribute);
  if (!kernel.is_library_kernel) return session.driver().cuFuncSetAttribute(kernel.function, id, call->value);
  const CUdevice device = session.shared().gpus[session.context()->gpu].device;
  return session.driver().cuKernelSetAttribute(id, call->value, reinterpret_cast<CUkernel>(kernel.function), device);
}

CUresult handle(Session& session, const Decoded<wire::tubeKernelGetAttribute>& call, Reply<wire::tubeKernelGetAttribute>& reply) {
  Object* object = session.objects().find(wire::Kind::kKernel, call->kernel);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return read_attribute(session, static_cast<const KernelState&>(*object->state), call->attribute, &reply->value);
}

CUresult handle(Session& session, const Decoded<wire::tubeKernelSetCacheConfig>& call, Reply<wire::tubeKernelSetCacheConfig>&) {
  session.forget_runs();
  Object* object = session.objects().find(wire::Kind::kKernel, call->kernel);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto& kernel = static_cast<const KernelState&>(*object->state);
  const auto config = static_cast<CUfunc_cache>(call->config);
  if (!kernel.is_library_kernel) return session.driver().cuFuncSetCacheConfig(kernel.function, config);
  const CUdevice device = session.shared().gpus[session.context()->gpu].device;
  return session.driver().cuKernelSetCacheConfig(reinterpret_cast<CUkernel>(kernel.function), config, device);
}

}  // namespace tube::proxy
