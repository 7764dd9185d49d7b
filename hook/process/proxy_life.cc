#include "hook/process/proxy_life.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/runtime_dir.h"
#include "base/same_file.h"
#include "base/unique_fd.h"
#include "sharedmem/socket.h"

namespace tube::hook {
namespace {

constexpr int kPatienceMs = 20;

enum class Seen : uint32_t { kLives, kGone, kNothing };

bool for_want_of_something(int error_number) {
  return error_number == EMFILE || error_number == ENFILE || error_number == ENOMEM ||
         error_number == ENOBUFS;
}

// A socket is made anew by each proxy: another file is another proxy's.
bool same_socket(const ProxyPlace& place) {
  struct stat now;
  return ::stat(place.data_path.c_str(), &now) != 0 ||
         (same_file(now, place.data_file) && now.st_mtim.tv_sec == place.data_file.st_mtim.tv_sec &&
          now.st_mtim.tv_nsec == place.data_file.st_mtim.tv_nsec);
}

Seen ask_socket(const ProxyPlace& place, const std::string& path, int type) {
  Result<UniqueFd> probe = shared::connect_unix(path, type, kPatienceMs);
  if (probe) {
    Result<shared::PeerCredentials> peer = shared::peer_credentials(probe->get());
    return peer.ok() && peer->pid == place.pid && same_socket(place) ? Seen::kLives : Seen::kGone;
  }
  const int error = probe.error().code;
  if (error == ECONNREFUSED) return Seen::kGone;
  // EAGAIN: so many stand before it that there is no room in its queue.
  return error == EAGAIN || for_want_of_something(error) ? Seen::kLives : Seen::kNothing;
}

// Also a process that has ended, and whose parent has not asked for it yet, is gone.
bool process_lives(int pid) {
  if (pid <= 0) return false;
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0u)));
  if (process.valid()) {
    pollfd ended{process.get(), POLLIN, 0};
    return ::poll(&ended, 1, 0) <= 0;
  }
  return for_want_of_something(errno) || ::kill(pid, 0) == 0 || errno == EPERM;
}

}  // namespace

ProxyPlace place_of_proxy(int socket, const std::string& workflow) {
  ProxyPlace place;
  if (Result<shared::PeerCredentials> peer = shared::peer_credentials(socket))
    place.pid = peer->pid;
  if (Result<std::string> folder = find_runtime_dir()) {
    place.control_path = control_socket_path(*folder, workflow);
    place.data_path = data_socket_path(*folder, workflow);
    (void)::stat(place.data_path.c_str(), &place.data_file);
  }
  return place;
}

bool proxy_answers(const ProxyPlace& place) {
  Seen seen = ask_socket(place, place.control_path, SOCK_STREAM);
  if (seen == Seen::kNothing) seen = ask_socket(place, place.data_path, SOCK_SEQPACKET);
  return seen == Seen::kNothing ? process_lives(place.pid) : seen == Seen::kLives;
}

}  // namespace tube::hook
