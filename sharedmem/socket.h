// Unix sockets that keep message borders and carry fds (SOCK_SEQPACKET).
//
// Every fd is CLOEXEC from its first moment, no write raises SIGPIPE, EINTR is retried. Errors are
// worded for a person; their code is the errno (ECONNREFUSED, ENOENT: nobody serves there; EPIPE,
// ECONNRESET or ENODATA: the peer is gone).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace tube::shared {

inline constexpr size_t kMaxFdsPerMessage = 8;

// Binds `path` (mode 0600), replacing a socket file that nobody serves any more; EADDRINUSE when
// somebody does. `type`: SOCK_SEQPACKET (data) or SOCK_STREAM (control). Non-blocking, for epoll.
// Not one step: the caller sees to it that no other process does the same meanwhile.
Result<UniqueFd> listen_unix(const std::string& path, int type);
// Which file has the name `path` now: nobody else's, while its socket is open.
struct SocketFile {
  dev_t device = 0;
  ino_t number = 0;  // 0: none
  bool operator==(const SocketFile&) const = default;
};
SocketFile socket_file(const std::string& path);
// Takes the name away if that file still has it.
void unlink_socket(const std::string& path, const SocketFile& file);
// Whether a process listens at the socket `path`. It sees a connection that ends at once.
bool is_served(const std::string& path, int type);
// `timeout_ms`: how long connecting, and each message that is sent on the connection, may wait; 0:
// for ever.
Result<UniqueFd> connect_unix(const std::string& path, int type, int timeout_ms = 0);
// The same in the abstract namespace: no file, so nothing stays behind, but everybody may connect;
// ask peer_credentials. Connecting waits at most `timeout_ms`, and so does each message that is
// sent on the connection.
Result<UniqueFd> listen_abstract(const std::string& name, int type);
Result<UniqueFd> connect_abstract(const std::string& name, int type, int timeout_ms);
// EAGAIN when nobody is waiting. The connection itself is blocking.
Result<UniqueFd> accept_unix(int listening_fd);

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};
Result<PeerCredentials> peer_credentials(int fd);

// The proxy never blocks on a client that does not read: EAGAIN then.
enum class SendMode : uint32_t { kBlock, kNeverBlock };
// One message, whole, with up to kMaxFdsPerMessage fds (the caller keeps its own).
Status send_message(int fd, const void* data, size_t size_bytes, std::span<const int> fds = {},
                    SendMode mode = SendMode::kBlock);

struct Received {
  size_t size_bytes = 0;  // 0 never comes: the end of the connection is an error (ENODATA)
  std::vector<UniqueFd> fds;
};
// One message. EMSGSIZE when it was longer than the buffer or carried more than `max_fds` fds; all
// fds are closed then. `timeout_ms` < 0 waits for ever, 0 never waits (EAGAIN); ETIMEDOUT.
Result<Received> receive_message(int fd, void* buffer, size_t buffer_bytes, size_t max_fds,
                                 int timeout_ms);

// The number of the socket behind `fd`, which no other socket of the machine has; 0 when it is
// none.
uint64_t socket_inode(int fd);
bool is_socket(int fd, uint64_t inode);

// True when the peer closed its end or died. One poll(2), never blocks.
bool hung_up(int fd);

}  // namespace tube::shared
