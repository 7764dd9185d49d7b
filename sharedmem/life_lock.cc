#include "sharedmem/life_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>

#include "base/page.h"

namespace tube::shared {
namespace {

int lock_file(int fd, int operation) {
  int result;
  do {
    result = ::flock(fd, operation);
  } while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace

Result<UniqueFd> open_locked(int fd) {
  // Opened anew: a duplicate, or what came over the socket, shares its lock with the proxy's own
  // descriptor. Of this thread: the program's first one may have ended.
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
  UniqueFd own(::open(path, O_RDWR | O_CLOEXEC));
  if (!own.valid()) return errno_error(errno, "cannot open shared memory anew");
  if (lock_file(own.get(), LOCK_EX) != 0) return errno_error(errno, "cannot lock shared memory");
  return own;
}

Result<Mapping> hold_life_lock(int segment_fd) {
  Result<UniqueFd> own = open_locked(segment_fd);
  if (!own) return own.error();
  Result<Mapping> page = Mapping::map(own->get(), 0, kPage, PROT_READ);
  if (page && ::madvise(page->data(), kPage, MADV_DONTFORK) != 0)
    return errno_error(errno, "cannot keep a mapping from children");
  return page;
}

bool LifeWatch::alive(int segment_fd, bool socket_says) {
  if (lock_file(segment_fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return socket_says;
    seen_.store(true, std::memory_order_relaxed);
    return true;
  }
  lock_file(segment_fd, LOCK_UN);
  return seen_.load(std::memory_order_relaxed) ? false : socket_says;
}

}  // namespace tube::shared
