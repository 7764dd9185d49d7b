#include "libtube/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace tube::library {
namespace {

// The library that the program has, and only where Tube is asked for one that it has not: loading
// NVIDIA's driver into a program that does not want it would cost it milliseconds.
void* cuda_library() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr && std::getenv("TUBE_WORKFLOW") != nullptr)
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library;
}

template <class F>
void find(void* library, const char* name, F** function) {
  *function = reinterpret_cast<F*>(dlsym(library, name));
}

bool find_calls(void* library, Cuda* cuda) {
  find(library, "cuMemcpyAsync", &cuda->memcpy_async);
  find(library, "cuStreamSynchronize", &cuda->stream_synchronize);
  find(library, "cuStreamIsCapturing", &cuda->capturing);
  find(library, "cuCtxGetCurrent", &cuda->current);
  find(library, "cuPointerGetAttribute", &cuda->pointer_attribute);
  return cuda->memcpy_async != nullptr && cuda->stream_synchronize != nullptr &&
         cuda->capturing != nullptr && cuda->current != nullptr &&
         cuda->pointer_attribute != nullptr;
}

bool find_tube(Tube* tube) {
  void* library = cuda_library();
  if (library == nullptr) return false;
  CUresult (*get_export_table)(const void**, const CUuuid*) = nullptr;
  find(library, "cuGetExportTable", &get_export_table);
  if (get_export_table == nullptr) return false;
  CUuuid id;
  static_assert(sizeof id.bytes == sizeof kStoreTableId);
  std::memcpy(id.bytes, kStoreTableId, sizeof id.bytes);
  const void* table = nullptr;
  if (get_export_table(&table, &id) != CUDA_SUCCESS || table == nullptr) return false;
  tube->table = static_cast<const StoreTable*>(table);
  if (tube->table->version != kStoreTableVersion || tube->table->size_bytes < sizeof(StoreTable))
    return false;
  // Told not to connect (TUBE_OFF), or no proxy: the program runs without, as its CUDA calls say.
  return find_calls(library, tube);
}

}  // namespace

const Cuda* cuda_in_process() {
  if (const Tube* tube = tube_in_process()) return tube;
  static std::atomic<const Cuda*> found{nullptr};
  const Cuda* known = found.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  Cuda cuda;
  if (!find_calls(library, &cuda)) return nullptr;
  const auto* made = new Cuda(cuda);  // of two threads' both stay
  found.store(made, std::memory_order_release);
  return made;
}

const Tube* tube_in_process() {
  static const Tube* found = [] {
    static Tube tube;
    return find_tube(&tube) ? &tube : nullptr;
  }();
  return found;
}

}  // namespace tube::library
