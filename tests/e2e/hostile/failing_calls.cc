// Preloaded into tubed: makes allocations, mappings, threads and files of tubed's own code fail, as
// when memory, mappings, threads or descriptors run out, and counts them. The simulated GPU and the
// C library get theirs, whose failures are not the proxy's to survive.
//
// FAILING_CALLS names a file of 64-bit numbers, mapped shared with the test: for each kind in turn
// fail each n-th one (0: none), how many were asked for, how many failed.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace {

enum Kind { kMemory, kMappings, kThreads, kFiles, kKinds };
struct Control {
  struct {
    std::atomic<uint64_t> each, asked, failed;
  } kind[kKinds];
};

Control* control;
uintptr_t text_begin, text_end;

int find_program(dl_phdr_info* info, size_t, void*) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    text_begin = info->dlpi_addr + part.p_vaddr;
    text_end = text_begin + part.p_memsz;
  }
  return 1;  // the program itself comes first
}

bool fails(Kind kind, const void* caller) {
  const auto at = reinterpret_cast<uintptr_t>(caller);
  if (control == nullptr || at < text_begin || at >= text_end) return false;
  auto& counts = control->kind[kind];
  const uint64_t asked = ++counts.asked, each = counts.each;
  if (each == 0 || asked % each != 0) return false;
  ++counts.failed;
  return true;
}

template <class Function>
Function* find_next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void begin() {
  const char* path = getenv("FAILING_CALLS");
  const int fd = path != nullptr ? open(path, O_RDWR | O_CLOEXEC) : -1;
  void* shared = fd < 0 ? MAP_FAILED
                        : mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (shared == MAP_FAILED) abort();
  dl_iterate_phdr(find_program, nullptr);
  control = static_cast<Control*>(shared);
}

}  // namespace

#define NEXT(name) static const auto next = find_next<decltype(name)>(#name)
#define CALLER __builtin_return_address(0)

#pragma GCC visibility push(default)
extern "C" {

void* malloc(size_t bytes) noexcept {
  static decltype(malloc)* next = nullptr;  // dlsym allocates: no guard of a static
  if (next == nullptr) next = find_next<decltype(malloc)>("malloc");
  if (!fails(kMemory, CALLER)) return next(bytes);
  errno = ENOMEM;
  return nullptr;
}

void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  NEXT(mmap);
  if (!fails(kMappings, CALLER)) return next(at, bytes, protection, flags, fd, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
  NEXT(pthread_create);
  if (fails(kThreads, CALLER)) return EAGAIN;
  return next(thread, attributes, body, argument);
}

int memfd_create(const char* name, unsigned flags) noexcept {
  NEXT(memfd_create);
  if (!fails(kFiles, CALLER)) return next(name, flags);
  errno = EMFILE;
  return -1;
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  NEXT(fallocate);
  if (mode != 0 || !fails(kFiles, CALLER)) return next(fd, mode, offset, bytes);
  errno = ENOSPC;
  return -1;
}
}
#pragma GCC visibility pop
