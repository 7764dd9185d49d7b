// Keeps SIGBUS deliverable on every thread of the proxy.
//
// A client that cuts a registered file short makes whoever touches its pages raise SIGBUS, which
// the guard answers (memory/bus_guard.h). But a thread that blocks the signal is not asked: the
// kernel ends the process. Threads that libraries start for themselves block all signals, the
// driver's among them. These two definitions come before the C library's for everything that is
// loaded into this process, and take SIGBUS out of what is blocked; all else is as asked.
//
// Linked into tubed alone; its dynamic symbol table has both (proxy/meson.build).
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace {

constexpr size_t kKernelMaskBytes = 8;

int change_mask(int how, const sigset_t* asked, sigset_t* before) {
  sigset_t set;
  if (asked != nullptr && how != SIG_UNBLOCK) {
    set = *asked;
    sigdelset(&set, SIGBUS);
    // Those that the C library keeps for itself: it never lets a program block them.
    constexpr int kCancel = 32, kSetUser = 33;
    auto& bits = reinterpret_cast<unsigned long&>(set);
    bits &= ~(1ul << (kCancel - 1) | 1ul << (kSetUser - 1));
    asked = &set;
  }
  if (before != nullptr) sigemptyset(before);
  return ::syscall(SYS_rt_sigprocmask, how, asked, before, kKernelMaskBytes) == 0 ? 0 : errno;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int pthread_sigmask(int how, const sigset_t* asked,
                                                           sigset_t* before) noexcept {
  const int saved = errno;
  const int error = change_mask(how, asked, before);
  errno = saved;
  return error;
}

__attribute__((visibility("default"))) int sigprocmask(int how, const sigset_t* asked,
                                                       sigset_t* before) noexcept {
  const int error = change_mask(how, asked, before);
  if (error == 0) return 0;
  errno = error;
  return -1;
}
}
