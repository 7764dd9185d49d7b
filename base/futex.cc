#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace tube {

void futex_wait(uint32_t* word, uint32_t expected, uint64_t timeout_ns) {
  const int saved = errno;
  timespec timeout;
  timespec* timeout_pointer = nullptr;
  if (timeout_ns != kNoTimeout) {
    timeout.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000u);
    timeout.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000u);
    timeout_pointer = &timeout;
  }
  ::syscall(SYS_futex, word, FUTEX_WAIT, expected, timeout_pointer, nullptr, 0);
  errno = saved;
}

int futex_wake(uint32_t* word, int count) {
  const int saved = errno;
  const long woken = ::syscall(SYS_futex, word, FUTEX_WAKE, count, nullptr, nullptr, 0);
  errno = saved;
  return woken < 0 ? 0 : static_cast<int>(woken);
}

}  // namespace tube
