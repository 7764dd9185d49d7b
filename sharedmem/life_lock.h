// Whether the client's address space still lives, asked without its socket.
//
// A socket says less than one would like: a program may close every descriptor it has (daemons do)
// and go on, and a child that a raw clone(2) made may keep the socket open after the program's
// death. A file lock tells exactly: the client opens its segment once more, locks that open file,
// maps a page of it and closes the descriptor. The mapping alone then keeps the open file, and with
// it the lock: it goes with the address space (exit, kill, exec) and is not handed to forked
// children.
//
// The server asks the lock when the socket hangs up, or when a pidfd of the program reports its
// end, which it does even while a child keeps the socket open (proxy/server/server.cc).
//
// The lock is a promise of honest clients. A client can drop the page and keep the segment (its
// descriptor or a mapping in another process), and then read and write the next function's ring,
// staging and words. That is no new power: the functions of a proxy are one user's, and any of them
// reaches all of the others' GPU memory with a kernel (docs/trust.md). The proxy itself trusts no
// byte of a segment, used before or not.
//
// Costs the client one page of address space, the proxy one flock(2) per look. Where it cannot be
// had (no /proc), the socket decides alone.
#pragma once

#include <atomic>

#include "base/mapping.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace tube::shared {

// Client, once, before it closes `segment_fd`. The caller keeps the mapping for as long as it wants
// to be known alive.
Result<Mapping> hold_life_lock(int segment_fd);

// Client: `fd`'s file opened anew and locked. Every mapping of the result keeps the lock, also
// those that forked children inherit.
Result<UniqueFd> open_locked(int fd);

// Proxy. Any thread.
class LifeWatch {
 public:
  // `segment_fd` is the proxy's own; `socket_says`: what the socket alone would answer.
  bool alive(int segment_fd, bool socket_says);
  // The client held its lock and no longer does: no process has its mappings of the segment, unless
  // the client meant one to.
  bool surely_gone(int segment_fd) { return !alive(segment_fd, true); }

 private:
  std::atomic<bool> seen_{false};  // the client has the lock: from now on it decides
};

}  // namespace tube::shared
