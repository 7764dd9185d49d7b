// Loading and looking up: libraries, modules, globals. Loading is a round trip; the image travels
// inside the record when small and as a file otherwise. Unloading is posted.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/mapping.h"
#include "hook/code/image_file.h"
#include "hook/code/image_size.h"
#include "hook/graphs/update_proofs.h"
#include "hook/memory/memory_calls.h"
#include "hook/memory/memory_map.h"
#include "hook/objects/device_output.h"
#include "hook/objects/kernels.h"
#include "hook/objects/support.h"
#include "hook/process/start_trace.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

constexpr uint64_t kInlineImageBytes = 60u << 10;

struct LoadOptions {
  JitOptions jit;
  std::vector<uint32_t> library_ids;
  std::vector<uint64_t> library_values;
};

Module* allocate_module(Kind kind, Context* context) {
  Slot* slot = objects().allocate(kind);
  if (slot == nullptr) return nullptr;
  auto* m = static_cast<Module*>(slot->object);
  if (m == nullptr) m = new (std::nothrow) Module;
  if (m == nullptr) return nullptr;
  slot->object = m;
  m->slot = slot;
  m->id = slot->id;
  m->kind = kind == Kind::kModule ? wire::LoadedAs::kModule : wire::LoadedAs::kLibrary;
  m->context = context;
  m->module_alias = nullptr;
  m->kernels.clear();
  m->doubles.clear();
  m->globals.clear();
  m->known.clear();
  m->table.clear();
  return m;
}

// The proxy's own bytes; still nothing outside them is read.
void take_table(Module* m, std::span<const std::byte> table) {
  m->table.assign(table.begin(), table.end());
  for (size_t at = 0; m->table.size() - at >= sizeof(wire::KnownKernel);) {
    const auto* entry = reinterpret_cast<const wire::KnownKernel*>(m->table.data() + at);
    const uint64_t layout_bytes = uint64_t{entry->parameter_count} * sizeof(wire::KernelParameter);
    if (entry->entry_bytes % 8 != 0 || entry->entry_bytes > m->table.size() - at ||
        sizeof *entry + layout_bytes + entry->name_bytes > entry->entry_bytes)
      return;
    const char* name = reinterpret_cast<const char*>(entry + 1) + layout_bytes;
    m->known.emplace(std::string_view(name, entry->name_bytes), entry);
    at += entry->entry_bytes;
  }
}

CUresult send_load(Module* m, const std::byte* data, uint64_t size_bytes, const FileRange* file,
                   LoadOptions& options) {
  if (file != nullptr) tally(Tally::kFiles);
  const uint32_t jit = options.jit.count();
  const auto library = static_cast<uint32_t>(options.library_ids.size());
  const uint32_t image_bytes = file == nullptr ? static_cast<uint32_t>(size_bytes) : 0;
  tally(Tally::kImageBytes, image_bytes);
  wire::tubeLoadImage_reply reply{};
  ReplyBlobs blobs;
  CUresult result;
  {
    Request<wire::tubeLoadImage> r(blob_room(jit * 4) + blob_room(jit * 8) +
                                   blob_room(library * 4) + blob_room(library * 8) +
                                   blob_room(image_bytes));
    if (m->context != nullptr) r.in_context(m->context);
    r->library = m->id;
    r->kind = m->kind;
    r->offset = file == nullptr ? 0 : file->offset;
    r->size = size_bytes;
    r->info_log_bytes = options.jit.info_log_bytes();
    r->error_log_bytes = options.jit.error_log_bytes();
    r.put(&wire::tubeLoadImage::jit_options, options.jit.ids(), jit * 4);
    r.put(&wire::tubeLoadImage::jit_values, options.jit.values(), jit * 8);
    r.put(&wire::tubeLoadImage::library_options, options.library_ids.data(), library * 4);
    r.put(&wire::tubeLoadImage::library_values, options.library_values.data(), library * 8);
    if (image_bytes != 0) r.put(&wire::tubeLoadImage::image, data, image_bytes);
    if (file != nullptr) r.send_file(file->fd.get(), &r->token, CUDA_ERROR_OPERATING_SYSTEM);
    result = r.call(&reply, &blobs);
  }
  const Context* context = m->context != nullptr ? m->context : current_context();
  m->known_on = context != nullptr ? context->device : KernelOn::kNowhere;
  if (result == CUDA_SUCCESS) take_table(m, blobs.get(reply.kernels));
  options.jit.give_back(blobs.get(reply.info_log), blobs.get(reply.error_log),
                        blobs.get(reply.jit_values));
  return result;
}

CUresult load(Kind kind, Context* context, const std::byte* data, uint64_t size_bytes,
              const FileRange* ready_file, LoadOptions& options, void** handle) {
  mark_start(StartMark::kLoad);
  tally(Tally::kImages);
  TallyTime time(Tally::kLoadNs);
  Module* m = allocate_module(kind, context);
  if (m == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  FileRange made;
  const FileRange* file = ready_file;
  if (file == nullptr && size_bytes > kInlineImageBytes) {
    Result<FileRange> range = as_file(data, size_bytes);
    if (!range) {
      log_error("an image of %llu bytes could not be passed to the proxy: %s",
                static_cast<unsigned long long>(size_bytes), range.error().message.c_str());
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made = range.take();
    file = &made;
  }
  collect_output();
  objects().publish(m->slot);
  const CUresult result = send_load(m, data, size_bytes, file, options);
  if (result != CUDA_SUCCESS) {
    objects().remove(m->slot);
    return result;
  }
  *handle = objects().handle_of(m->slot);
  mark_start(StartMark::kLoadEnd);
  return CUDA_SUCCESS;
}

CUresult load_pointer(Kind kind, Context* context, const void* pointer, LoadOptions& options,
                      void** handle) {
  const Image image = find_image(pointer);
  if (image.size_bytes == 0)
    return pointer == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_IMAGE;
  return load(kind, context, image.data, image.size_bytes, nullptr, options, handle);
}

CUresult load_path(Kind kind, Context* context, const char* path, LoadOptions& options,
                   void** handle) {
  FileRange file;
  file.fd.reset(open(path, O_RDONLY | O_CLOEXEC));
  struct stat s;
  if (!file.fd.valid() || fstat(file.fd.get(), &s) != 0)
    return *path == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_FILE_NOT_FOUND;
  // The driver takes a folder for a file with that end, which has no room (H200); /proc's have
  // none.
  if (S_ISDIR(s.st_mode) && lseek(file.fd.get(), 0, SEEK_END) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!S_ISREG(s.st_mode) || s.st_size == 0) return CUDA_ERROR_INVALID_IMAGE;
  Result<Mapping> bytes =
      Mapping::map(file.fd.get(), 0, static_cast<uint64_t>(s.st_size), PROT_READ);
  if (!bytes) return CUDA_ERROR_OPERATING_SYSTEM;
  const std::byte* data = bytes->data();
  uint64_t size = static_cast<uint64_t>(s.st_size);
  const bool binary = size >= 4 && (std::memcmp(data,
                                                "\x7f"
                                                "ELF",
                                                4) == 0 ||
                                    std::memcmp(data, "\x50\xed\x55\xba", 4) == 0);
  if (binary)
    return load(kind, context, data, size, size > kInlineImageBytes ? &file : nullptr, options,
                handle);
  // PTX text needs its NUL, which a file does not have.
  const std::string text(reinterpret_cast<const char*>(data), size);
  return load(kind, context, reinterpret_cast<const std::byte*>(text.c_str()), size + 1, nullptr,
              options, handle);
}

void forget_module(Module* m, Retired* gone) {
  std::unordered_map<std::string, Kernel*> kernels;
  std::vector<Slot*> doubles;
  std::vector<uint64_t> globals;
  {
    Locked locked(m->lock);
    kernels.swap(m->kernels);
    doubles.swap(m->doubles);
    globals.swap(m->globals);
    if (m->module_alias != nullptr) {
      m->module_alias->object = nullptr;  // before the slot can be given to a real module
      gone->add(m->module_alias);
    }
    m->module_alias = nullptr;
  }
  for (const auto& [name, kernel] : kernels) gone->add(kernel->slot);
  for (Slot* slot : doubles) gone->add(slot);
  Allocation removed;
  for (const uint64_t address : globals) {
    if (!memory_map().remove(address, MemoryKind::kGlobal, &removed))
      remove_managed_variable(address);
  }
}

CUresult unload(Module* m) {
  const uint64_t id = m->id;
  const wire::LoadedAs kind = m->kind;
  Context* context = m->context;
  Retired gone(objects());
  if (!gone.add(m->slot)) return CUDA_ERROR_INVALID_HANDLE;
  forget_all_updates();
  collect_output();
  forget_module(m, &gone);
  Request<wire::tubeUnload> r;
  if (context != nullptr) r.in_context(context);
  r->library = id;
  r->kind = kind;
  return r.post();
}

// Enters a variable into the memory map, so that copies and pointer queries recognise it. The
// driver chose its address, or the proxy that of a managed variable. `context`: where it was asked
// for.
void remember_global(Module* m, Context* context, uint64_t address, uint64_t bytes, bool managed) {
  Allocation a;
  if (address == 0 || bytes == 0 || memory_map().find(address, &a)) return;
  if (managed) {
    add_managed_variable(context, address, bytes);
  } else {
    memory_map().insert({address, bytes, next_unique(),
                         m->context != nullptr ? m->context : context, MemoryKind::kGlobal, 0});
  }
  Locked locked(m->lock);
  m->globals.push_back(address);
}

CUresult get_global(Module* m, CUdeviceptr* dptr, size_t* bytes, const char* name) {
  if (name == nullptr || *name == 0 || (dptr == nullptr && bytes == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  const size_t length = std::strlen(name);
  if (length > wire::kMaxNameBytes) return CUDA_ERROR_NOT_FOUND;
  wire::tubeGetGlobal_reply reply{};
  CUresult result;
  {
    Request<wire::tubeGetGlobal> r(blob_room(length));
    r.in_context(m->context != nullptr ? m->context : making_context());
    r->library = m->id;
    r->kind = m->kind;
    r.put(&wire::tubeGetGlobal::name, name, static_cast<uint32_t>(length));
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return result;
  remember_global(m, making_context(), reply.dptr, reply.bytes, reply.managed != 0);
  if (dptr != nullptr) *dptr = reply.dptr;
  if (bytes != nullptr) *bytes = reply.bytes;
  return CUDA_SUCCESS;
}

// Names of all kernels, a reply full at a time, which may end within a name.
CUresult list_kernels(Module* m, std::vector<std::string>* names, uint32_t* total) {
  std::string name;  // as far as it has come
  for (uint32_t first = 0;;) {
    wire::tubeListKernels_reply reply{};
    ReplyBlobs blobs;
    CUresult result;
    {
      Request<wire::tubeListKernels> r;
      if (m->context != nullptr) r.in_context(m->context);
      r->library = m->id;
      r->kind = m->kind;
      r->first = first;
      r->skip = static_cast<uint32_t>(name.size());
      result = r.call(&reply, &blobs);
    }
    if (result != CUDA_SUCCESS) return result;
    *total = reply.total;
    if (names == nullptr) return CUDA_SUCCESS;
    const auto text = blobs.get(reply.names);
    for (const std::byte character : text) {
      if (character != std::byte{0}) {
        name += static_cast<char>(character);
        continue;
      }
      names->push_back(std::move(name));
      name.clear();
      ++first;
    }
    if (first >= reply.total) return CUDA_SUCCESS;
    if (text.empty()) return CUDA_ERROR_UNKNOWN;
  }
}

CUresult enumerate(Module* m, void** handles, unsigned count) {
  std::vector<std::string> names;
  uint32_t total = 0;
  if (const CUresult r = list_kernels(m, &names, &total); r != CUDA_SUCCESS) return r;
  for (unsigned i = 0; i < count && i < names.size(); ++i) {
    Kernel* kernel = nullptr;
    if (const CUresult r = get_kernel(m, names[i].c_str(), &kernel); r != CUDA_SUCCESS) return r;
    handles[i] = m->kind == wire::LoadedAs::kLibrary
                     ? static_cast<void*>(library_kernel_handle(kernel))
                     : kernel_handle(kernel);
  }
  return CUDA_SUCCESS;
}

}  // namespace

Module* find_module(const void* handle) {
  Slot* slot = objects().find(Kind::kModule, handle);
  return slot == nullptr ? nullptr : static_cast<Module*>(slot->object);
}

Module* find_library(const void* handle) {
  Slot* slot = objects().find(Kind::kLibrary, handle);
  return slot == nullptr ? nullptr : static_cast<Module*>(slot->object);
}

void forget_modules(Context* context, Retired* gone) {
  for (uint32_t i = 1;; ++i) {
    Slot* slot = objects().at(Kind::kModule, i);
    if (slot == nullptr || slot->kind != Kind::kModule) return;
    if (slot->live.load(std::memory_order_acquire) == 0) continue;
    auto* m = static_cast<Module*>(slot->object);
    if (m == nullptr || m->context != context || m->kind != wire::LoadedAs::kModule) continue;
    if (gone->add(slot)) forget_module(m, gone);
  }
}

// ---- libraries ----

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void** libraryOptionValues,
                           unsigned int numLibraryOptions) {
  if (library == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LoadOptions options;
  if (numJitOptions != 0 && (jitOptions == nullptr || jitOptionsValues == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  if (!options.jit.parse(numJitOptions, jitOptions, jitOptionsValues))
    return CUDA_ERROR_NOT_SUPPORTED;
  for (unsigned i = 0; i < numLibraryOptions; ++i) {
    // CU_LIBRARY_BINARY_IS_PRESERVED speaks about this process's memory; the proxy has its own
    // copy.
    if (libraryOptions == nullptr ||
        static_cast<unsigned>(libraryOptions[i]) >= CU_LIBRARY_NUM_OPTIONS)
      return CUDA_ERROR_INVALID_VALUE;
    if (libraryOptions[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE)
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  (void)libraryOptionValues;
  return load_pointer(Kind::kLibrary, nullptr, code, options, reinterpret_cast<void**>(library));
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption*, void**, unsigned int) {
  if (library == nullptr || fileName == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LoadOptions options;
  if (numJitOptions != 0 && (jitOptions == nullptr || jitOptionsValues == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  if (!options.jit.parse(numJitOptions, jitOptions, jitOptionsValues))
    return CUDA_ERROR_NOT_SUPPORTED;
  return load_path(Kind::kLibrary, nullptr, fileName, options, reinterpret_cast<void**>(library));
}

CUresult cuLibraryUnload(CUlibrary library) {
  Module* m = find_library(library);
  return m == nullptr ? CUDA_ERROR_INVALID_HANDLE : unload(m);
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* m = find_library(library);
  if (m == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Kernel* kernel = nullptr;
  const CUresult r = get_kernel(m, name, &kernel);
  if (r == CUDA_SUCCESS) *pKernel = library_kernel_handle(kernel);
  return r;
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  Module* m = find_library(lib);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return m == nullptr ? CUDA_ERROR_INVALID_HANDLE : list_kernels(m, nullptr, count);
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  Module* m = find_library(lib);
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return m == nullptr ? CUDA_ERROR_INVALID_HANDLE
                      : enumerate(m, reinterpret_cast<void**>(kernels), numKernels);
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  Module* m = find_library(library);
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (m == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Locked locked(m->lock);
  if (m->module_alias == nullptr) {
    Slot* slot = objects().allocate(Kind::kModule);
    if (slot == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    slot->object =
        m;  // a second handle of the library; its slot's former Module is lost, a hundred bytes
    objects().publish(slot);
    m->module_alias = slot;
  }
  *pMod = static_cast<CUmodule>(objects().handle_of(m->module_alias));
  return CUDA_SUCCESS;
}

// A function that host and device share an address of: no image that a compiler makes here holds
// one.
CUresult cuLibraryGetUnifiedFunction(void** fptr, CUlibrary library, const char* symbol) {
  if (fptr == nullptr || symbol == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return find_library(library) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  Module* m = find_library(library);
  return m == nullptr ? CUDA_ERROR_INVALID_HANDLE : get_global(m, dptr, bytes, name);
}

CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                             const char* name) {
  Module* m = find_library(library);
  if (m == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const size_t length = std::strlen(name);
  if (length == 0 || length > wire::kMaxNameBytes) return CUDA_ERROR_NOT_FOUND;
  // They belong to no context and are there before any is; the runtime asks from whichever thread
  // first touches one.
  Context* context = current_context() != nullptr ? current_context() : process().primaries[0];
  wire::tubeGetManaged_reply reply{};
  CUresult result;
  {
    Request<wire::tubeGetManaged> r(blob_room(length));
    r.in_context(context);
    r->library = m->id;
    r.put(&wire::tubeGetManaged::name, name, static_cast<uint32_t>(length));
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return result;
  if (reply.dptr == 0)
    return unsupported(
        "cuLibraryGetManaged",
        "this image's managed variables cannot be shared with the proxy; its log says why");
  remember_global(m, context, reply.dptr, reply.bytes, true);
  if (dptr != nullptr) *dptr = reply.dptr;
  if (bytes != nullptr) *bytes = reply.bytes;
  return CUDA_SUCCESS;
}

// ---- modules ----

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  if (module == nullptr || fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LoadOptions options;
  return load_path(Kind::kModule, making_context(), fname, options,
                   reinterpret_cast<void**>(module));
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LoadOptions parsed;
  if (numOptions != 0 && (options == nullptr || optionValues == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  if (!parsed.jit.parse(numOptions, options, optionValues)) return CUDA_ERROR_NOT_SUPPORTED;
  return load_pointer(Kind::kModule, making_context(), image, parsed,
                      reinterpret_cast<void**>(module));
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return hook::cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return hook::cuModuleLoadDataEx(module, fatCubin, 0, nullptr, nullptr);
}

CUresult cuModuleUnload(CUmodule hmod) {
  Module* m = find_module(hmod);
  if (m == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (m->kind != wire::LoadedAs::kModule)
    return CUDA_ERROR_NOT_PERMITTED;  // a library's: it goes with the library
  return unload(m);
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  Module* m = find_module(hmod);
  if (m == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (hfunc == nullptr || name == nullptr || *name == 0) return CUDA_ERROR_INVALID_VALUE;
  Kernel* kernel = nullptr;
  const CUresult r = get_kernel(m, name, &kernel);
  if (r == CUDA_SUCCESS) *hfunc = static_cast<CUfunction>(kernel_handle(kernel));
  if (r == CUDA_ERROR_NOT_FOUND) *hfunc = nullptr;
  return r;
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  Module* m = find_module(mod);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return m == nullptr ? CUDA_ERROR_INVALID_HANDLE : list_kernels(m, nullptr, count);
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                    CUmodule mod) {
  Module* m = find_module(mod);
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return m == nullptr ? CUDA_ERROR_INVALID_HANDLE
                      : enumerate(m, reinterpret_cast<void**>(functions), numFunctions);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  Module* m = find_module(hmod);
  return m == nullptr ? CUDA_ERROR_INVALID_HANDLE : get_global(m, dptr, bytes, name);
}

}  // namespace tube::hook
