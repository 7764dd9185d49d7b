#include "proxy/common/workflow_owner.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <time.h>

#include <cerrno>

#include "base/clock.h"
#include "base/log.h"
#include "base/runtime_dir.h"
#include "sharedmem/socket.h"

namespace tube::proxy {
namespace {

constexpr timespec kPause{0, 20'000'000};  // between looks at the lock

// Whether a signal told this process to end during the pause.
bool told_to_end_in_pause() {
  sigset_t blocked, told;
  sigemptyset(&told);
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP})
    if (sigismember(&blocked, signal) == 1) sigaddset(&told, signal);
  return sigtimedwait(&told, nullptr, &kPause) > 0;
}

}  // namespace

Result<UniqueFd> own_workflow(const std::string& runtime_dir, const std::string& workflow,
                              uint32_t patience_ms) {
  const std::string path = owner_file_path(runtime_dir, workflow);
  const std::string socket = data_socket_path(runtime_dir, workflow);
  UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return errno_error(errno, path);
  const uint64_t end_ns = now_ns() + uint64_t{patience_ms} * 1'000'000;
  bool said = false;
  while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return errno_error(errno, path);
    if (shared::is_served(socket, SOCK_SEQPACKET))
      return Error{EADDRINUSE, "socket " + socket + " is served by a running proxy"};
    if (now_ns() >= end_ns)
      return errorf(
          "another proxy of workflow '%s' neither serves nor ends; it holds the lock of %s",
          workflow.c_str(), path.c_str());
    if (!said) log_info("another proxy of this workflow starts or ends: waiting for it");
    said = true;
    if (told_to_end_in_pause()) return Error{EINTR, "told to end before it could start"};
  }
  return file;
}

}  // namespace tube::proxy
