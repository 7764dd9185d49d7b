#include "hook/process/coverage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/env.h"
#include "base/log.h"

namespace tube::hook {

// Pages of its own: the mapping replaces exactly these.
alignas(kCalledBytes) constinit std::atomic<uint8_t> g_called[kCalledBytes] = {};

namespace {

bool map_file(const char* path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat facts {};
  const bool fits = fstat(fd, &facts) == 0 && facts.st_size >= static_cast<off_t>(kCalledBytes);
  if (!fits) errno = EINVAL;  // a shorter file would raise SIGBUS
  const bool mapped = fits && mmap(g_called, kCalledBytes, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
  const int why = errno;
  close(fd);
  errno = why;
  return mapped;
}

}  // namespace

void open_called() {
  const char* path = env_text(Env::kCoverage);
  if (path != nullptr && !map_file(path))
    log_warn("TUBE_COVERAGE: cannot use %s: %s", path, std::strerror(errno));
  g_called[0].store(1, std::memory_order_relaxed);
}

}  // namespace tube::hook
