#include "hook/real_driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>

#include "base/env.h"
#include "base/log.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "hook/lock.h"
#include "hook/process.h"
#include "hook/visible_devices.h"

namespace tube::hook {
namespace {

// How one of our libraries is recognised in a file. The simulated GPU carries the second one in its own text.
constexpr char kHookMarker[] = "tube: this libcuda is the hook, not the driver";
constexpr char kSimMarker[] = "TUBE_SIM_TOPOLOGY";
constexpr uint64_t kMarkerSearchBytes = 32u << 20;

constexpr const char* kFolders[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
                                    "/usr/lib/wsl/lib", "/usr/lib", "/usr/local/cuda/compat"};

struct Loaded {
  Lock lock;  // rank 0: held while the driver loads and starts
  RealDriver driver;
  bool tried_load = false, tried_init = false;
  int pid = 0;
  Error load_error;
  Error init_error;
};
Loaded& loaded() {
  static Loaded* l = new Loaded;
  return *l;
}

bool is_ours(const std::string& path) {
  Dl_info self;
  struct stat mine, theirs;
  if (dladdr(reinterpret_cast<const void*>(&real_driver_candidates), &self) != 0 && self.dli_fname != nullptr &&
      stat(self.dli_fname, &mine) == 0 && stat(path.c_str(), &theirs) == 0 && mine.st_dev == theirs.st_dev &&
      mine.st_ino == theirs.st_ino) {
    return true;
  }
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() || fstat(fd.get(), &theirs) != 0 || theirs.st_size <= 0) return true;
  const uint64_t size = static_cast<uint64_t>(theirs.st_size) < kMarkerSearchBytes ? static_cast<uint64_t>(theirs.st_size) : kMarkerSearchBytes;
  Result<Mapping> file = Mapping::map(fd.get(), 0, size, PROT_READ);
  if (!file) return true;
  return memmem(file->data(), size, kHookMarker, sizeof kHookMarker - 1) != nullptr ||
         memmem(file->data(), size, kSimMarker, sizeof kSimMarker - 1) != nullptr;
}

void add(std::vector<std::string>& list, const std::string& path) {
  char real[PATH_MAX];
  if (path.find("/stubs/") != std::string::npos || realpath(path.c_str(), real) == nullptr) return;
  for (const std::string& known : list) {
    if (known == real) return;
  }
  list.emplace_back(real);
}

// The loader's cache (ld.so(8)): a table of entries {flags, name offset, path offset, ...} behind a magic.
void add_from_loader_cache(std::vector<std::string>& list) {
  struct Header {
    char magic[20];
    uint32_t count;
    uint32_t strings_bytes;
    uint32_t unused[5];
  };
  struct Entry {
    int32_t flags;
    uint32_t key, value;
    uint32_t os_version;
    uint64_t hwcap;
  };
  const UniqueFd fd(open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC));
  struct stat s;
  if (!fd.valid() || fstat(fd.get(), &s) != 0 || static_cast<size_t>(s.st_size) < sizeof(Header)) return;
  Result<Mapping> file = Mapping::map(fd.get(), 0, static_cast<uint64_t>(s.st_size), PROT_READ);
  if (!file) return;
  const char* data = reinterpret_cast<const char*>(file->data());
  const uint64_t size = static_cast<uint64_t>(s.st_size);
  const auto* header = reinterpret_cast<const Header*>(data);
  if (std::memcmp(header->magic, "glibc-ld.so.cache1.1", 20) != 0) return;
  if (sizeof(Header) + uint64_t{header->count} * sizeof(Entry) > size || data[size - 1] != 0) return;
  const auto* entries = reinterpret_cast<const Entry*>(header + 1);
  for (uint32_t i = 0; i < header->count; ++i) {
    if (entries[i].key >= size || entries[i].value >= size) continue;
    if (std::strcmp(data + entries[i].key, "libcuda.so.1") == 0) add(list, data + entries[i].value);
  }
}

template <class F>
bool take(void* library, const char* name, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  return *out != nullptr;
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
  return take(d->library, "cuInit", &d->init) && take(d->library, "cuGetExportTable", &d->get_export_table) &&
         take(d->library, "cuDeviceGetCount", &d->device_get_count) && take(d->library, "cuDeviceGetUuid_v2", &d->device_get_uuid);
}

// Shows the driver `visible` as CUDA_VISIBLE_DEVICES while `during` runs, without touching the environment's storage that
// other threads may be reading: the whole pointer array is replaced and put back. The copy is leaked, a reader may hold it.
template <class F>
void with_visible_devices(const std::string& visible, F&& during) {
  constexpr char kName[] = "CUDA_VISIBLE_DEVICES=";
  const char* now = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible.empty() || (now != nullptr && visible == now)) return during();
  char** before = environ;
  size_t count = 0;
  while (before != nullptr && before[count] != nullptr) ++count;
  auto** fresh = static_cast<char**>(std::calloc(count + 2, sizeof(char*)));
  char* entry = strdup((kName + visible).c_str());
  if (fresh == nullptr || entry == nullptr) return during();
  size_t n = 0;
  for (size_t i = 0; i < count; ++i) {
    if (std::strncmp(before[i], kName, sizeof kName - 1) != 0) fresh[n++] = before[i];
  }
  fresh[n] = entry;
  __atomic_store_n(&environ, fresh, __ATOMIC_RELEASE);
  during();
  char** expected = fresh;
  if (__atomic_compare_exchange_n(&environ, &expected, before, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
  // The program changed its environment meanwhile: keep its changes, undo ours.
  if (now != nullptr) setenv("CUDA_VISIBLE_DEVICES", now, 1);
  else unsetenv("CUDA_VISIBLE_DEVICES");
}

Status load_locked(Loaded& l) {
  if (l.tried_load) return l.driver.library == nullptr ? Status(l.load_error) : Status();
  l.tried_load = true;
  l.pid = getpid();
  std::string why;
  for (const std::string& path : real_driver_candidates()) {
    if (is_ours(path)) continue;
    if (open_candidate(path, &l.driver, &why)) return {};
  }
  l.driver.library = nullptr;
  l.load_error = errorf("no real CUDA driver (libcuda.so.1) was found in LD_LIBRARY_PATH, the loader's cache or the usual folders%s%s; "
                        "set TUBE_REAL_DRIVER to its path", why.empty() ? "" : "; tried", why.c_str());
  return l.load_error;
}

}  // namespace

std::vector<std::string> real_driver_candidates() {
  std::vector<std::string> list;
  if (const char* given = env_text(Env::kRealDriver)) {
    add(list, given);
    return list;
  }
  if (const char* path = std::getenv("LD_LIBRARY_PATH")) {
    const std::string text = path;
    for (size_t at = 0; at <= text.size();) {
      const size_t end = text.find(':', at) == std::string::npos ? text.size() : text.find(':', at);
      if (end > at) add(list, text.substr(at, end - at) + "/libcuda.so.1");
      at = end + 1;
    }
  }
  add_from_loader_cache(list);
  for (const char* folder : kFolders) add(list, std::string(folder) + "/libcuda.so.1");
  return list;
}

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
  if (l.pid != 0 && l.pid != getpid()) return errorf("the real driver was loaded before a fork; start CUDA before or after, not across it");
  Locked locked(l.lock);
  if (Status s = load_locked(l); !s) return s.error();
  return &l.driver;
}

Result<const RealDriver*> start_real_driver(const std::string& visible) {
  Loaded& l = loaded();
  if (l.pid != 0 && l.pid != getpid()) return errorf("the real driver was loaded before a fork; start CUDA before or after, not across it");
  Locked locked(l.lock);
  if (Status s = load_locked(l); !s) return s.error();
  if (!l.tried_init) {
    l.tried_init = true;
    CUresult result = CUDA_SUCCESS;
    with_visible_devices(visible, [&] { result = l.driver.init(0); });
    if (result != CUDA_SUCCESS) {
      l.init_error = errorf("cuInit of the real driver %s answers %d; are this program's GPUs (/dev/nvidia*) the proxy's?",
                            l.driver.path.c_str(), static_cast<int>(result));
      l.init_error.code = static_cast<int>(result) + 20000;
    }
  }
  if (l.init_error.code >= 20000) return l.init_error;
  return &l.driver;
}

}  // namespace tube::hook
