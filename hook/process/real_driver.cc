#include "hook/process/real_driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/driver_file.h"
#include "base/env.h"
#include "base/log.h"
#include "base/mapping.h"
#include "base/tube_note.h"
#include "base/unique_fd.h"
#include "hook/process/lock.h"
#include "hook/process/process.h"
#include "hook/process/profilers.h"
#include "hook/process/start_trace.h"
#include "hook/process/visible_devices.h"
#include "sharedmem/segment.h"

TUBE_IDENTITY_NOTE();

namespace tube::hook {
namespace {

struct Loaded {
  Lock lock;  // rank 0: held while the driver loads and starts
  RealDriver driver;
  bool tried_load = false, tried_init = false;
  int pid = 0;                      // that loads it
  const Loaded* parents = nullptr;  // what a parent had loaded; stays mapped
  Error load_error;
  Error init_error;
};
// This process's. A child of fork(2) begins anew, as if the driver had never been loaded: what its
// parent has of it was started there, or is being loaded by a thread that the child does not have.
Loaded& loaded() {
  static std::atomic<Loaded*> current{new Loaded};
  Loaded* l = current.load(std::memory_order_acquire);
  if (l->pid == 0 || l->pid == getpid()) return *l;
  auto* fresh = new Loaded;
  fresh->pid = getpid();
  fresh->parents = l;
  if (current.compare_exchange_strong(l, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;  // another thread was first
  return *l;
}

template <class F>
bool take(void* library, const char* name, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  return *out != nullptr;
}

// The loader takes a library that is mapped already for the same one, by its file or by the name it
// was opened with: a copy of the file, under a name that no other process's copy has, is another
// library, with variables of its own.
std::string copy_of(const std::string& path, UniqueFd* copy) {
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat s;
  if (!file.valid() || fstat(file.get(), &s) != 0) return path;
  const auto size = static_cast<uint64_t>(s.st_size);
  Result<Mapping> bytes = Mapping::map(file.get(), 0, size, PROT_READ);
  if (!bytes) return path;
  Result<UniqueFd> made = shared::create_constant_file("tube-driver", bytes->data(), size);
  if (!made) return path;
  *copy = made.take();
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(copy->get());
}

bool open_candidate(const std::string& path, RealDriver* d, std::string* why) {
  int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  flags |= RTLD_DEEPBIND;  // its own calls to cu... must find itself, not us
#endif
  d->library = dlopen(path.c_str(), flags);
  if (d->library == nullptr) {
    const char* text = dlerror();
    *why += " " + path + " (" + (text == nullptr ? "cannot be loaded" : text) + ")";
    return false;
  }
  d->path = path;
  return take(d->library, "cuInit", &d->init) &&
         take(d->library, "cuGetExportTable", &d->get_export_table) &&
         take(d->library, "cuDeviceGetCount", &d->device_get_count) &&
         take(d->library, "cuDeviceGetUuid_v2", &d->device_get_uuid);
}

bool sets(const char* entry, const char* name) {
  const size_t length = std::strlen(name);
  return std::strncmp(entry, name, length) == 0 && entry[length] == '=';
}

// Puts back what the program had, where it changed its environment meanwhile.
void restore(const char* name, const char* value) {
  if (value != nullptr) setenv(name, value, 1);
  else unsetenv(name);
}

// Shows the driver `visible` as CUDA_VISIBLE_DEVICES and no injection library (profilers.h) while
// `during` runs, without touching the environment's storage that other threads may be reading: the
// whole pointer array is replaced and put back. The copy is leaked, a reader may hold it.
template <class F>
void with_visible_devices(const std::string& visible, F&& during) {
  constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES";
  const char* now = std::getenv(kVisible);
  const char* injected = std::getenv(kInjection);
  const bool as_it_is = visible.empty() || (now != nullptr && visible == now);
  if (as_it_is && injected == nullptr) return during();
  char** before = environ;
  size_t count = 0;
  while (before != nullptr && before[count] != nullptr) ++count;
  auto** fresh = static_cast<char**>(std::calloc(count + 2, sizeof(char*)));
  char* entry = as_it_is ? nullptr : strdup((std::string(kVisible) + "=" + visible).c_str());
  if (fresh == nullptr || (entry == nullptr && !as_it_is)) {
    std::free(fresh);
    std::free(entry);
    return during();
  }
  size_t n = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!sets(before[i], kInjection) && (as_it_is || !sets(before[i], kVisible)))
      fresh[n++] = before[i];
  }
  fresh[n] = entry;
  __atomic_store_n(&environ, fresh, __ATOMIC_RELEASE);
  during();
  char** expected = fresh;
  if (__atomic_compare_exchange_n(&environ, &expected, before, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE))
    return;
  // The program changed its environment meanwhile: keep its changes, undo ours.
  if (!as_it_is) restore(kVisible, now);
  if (injected != nullptr) restore(kInjection, injected);
}

Status load_locked(Loaded& l) {
  if (l.tried_load) return l.driver.library == nullptr ? Status(l.load_error) : Status();
  l.tried_load = true;
  l.pid = getpid();
  std::string why;
  for (const std::string& path : search_driver().found) {
    UniqueFd copy;  // mapped by then
    const std::string from = l.parents != nullptr ? copy_of(path, &copy) : path;
    if (open_candidate(from, &l.driver, &why)) return {};
  }
  l.driver.library = nullptr;
  l.load_error = errorf(
      "no real CUDA driver (libcuda.so.1) was found in LD_LIBRARY_PATH, the loader's cache or the "
      "usual folders%s%s; "
      "set TUBE_REAL_DRIVER to its path",
      why.empty() ? "" : "; tried", why.c_str());
  return l.load_error;
}

}  // namespace

std::string visible_uuids() {
  const Process& p = process();
  std::string text;
  for (uint32_t i = 0; i < p.device_count; ++i) {
    char uuid[41];
    format_uuid(p.connection->device_infos[p.devices[i]].uuid, uuid);
    text += (i == 0 ? "" : ",") + std::string(uuid);
  }
  return text;
}

Result<const RealDriver*> load_real_driver() {
  Loaded& l = loaded();
  Locked locked(l.lock);
  if (Status s = load_locked(l); !s) return s.error();
  return &l.driver;
}

Result<const RealDriver*> start_real_driver(const std::string& visible) {
  Loaded& l = loaded();
  Locked locked(l.lock);
  if (Status s = load_locked(l); !s) return s.error();
  if (!l.tried_init) {
    l.tried_init = true;
    CUresult result = CUDA_SUCCESS;
    with_visible_devices(visible, [&] { result = l.driver.init(0); });
    mark_start(StartMark::kDriverStarted);
    if (result != CUDA_SUCCESS) {
      l.init_error = errorf(
          "cuInit of the real driver %s answers %d; are this program's GPUs (/dev/nvidia*) the "
          "proxy's?",
          l.driver.path.c_str(), static_cast<int>(result));
      l.init_error.code = static_cast<int>(result) + 20000;
    }
  }
  if (l.init_error.code >= 20000) return l.init_error;
  return &l.driver;
}

}  // namespace tube::hook
