#include "base/unique_fd.h"

#include <cerrno>

namespace tube {

void UniqueFd::reset(int fd) {
  const int old = std::exchange(fd_, fd);
  if (old < 0) return;
  const int saved = errno;
  ::close(old);
  errno = saved;
}

}  // namespace tube
