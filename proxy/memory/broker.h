// One proxy's memory in another proxy of the same user: the owner's server hands out the POSIX fd
// of a block.
//
// Each proxy listens on a socket of the abstract namespace that is named by its id, which is in
// every handle it makes (memory_shares.h). So a handle leads to its owner wherever the two proxies
// have their runtime folders. Both sides ask the kernel who the other is and talk to their own user
// only; the token in the handle decides what is given.
//
// A connection is about one allocation and stays open as long as it is mapped on the other side:
// its end, also by death, is the close.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "proxy/memory/memory_shares.h"

namespace tube::proxy {

struct BrokerQuestion {
  uint64_t magic;
  ShareToken token;
};

struct BrokerAnswer {
  uint64_t magic;
  int32_t error;  // CUresult; the fd comes only with 0
  uint32_t reserved;
  uint64_t block_bytes;  // of the memory behind the fd
  uint64_t offset;       // of the allocation in it
  uint64_t bytes;
  unsigned char uuid[16];  // of the GPU
};
inline constexpr uint64_t kBrokerMagic = 0x314b4f5242425554ull;  // "TUBBROK1"

struct BrokeredMemory {
  UniqueFd fd;
  UniqueFd lease;
  uint64_t block_bytes = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  unsigned char uuid[16] = {};
};

// Session thread. Waits for the owner's answer, at most limits::kBrokerMs. The error is for the
// log.
Result<BrokeredMemory> ask_broker(const MemoryHandle& untrusted_handle);

// Server: the socket on which other proxies ask this one. Non-blocking.
Result<UniqueFd> listen_broker(uint64_t proxy_id);
// Server: whether the process at the other end is this user's.
bool same_user(int socket_fd);

}  // namespace tube::proxy
