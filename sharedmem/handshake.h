// The first two messages on a function's Unix socket (SOCK_SEQPACKET), and the fd messages that may
// follow.
//
//   hook  -> proxy         Hello
//   proxy -> hook          Welcome + fds {segment, pinned, info}, or a Welcome with a refusal and
//                          no fds
//   later, hook -> proxy   FdMessage + 1 fd: an image to load, a shareable handle; a ring record
//                          names its token. It is sent BEFORE the record is published, so the
//                          session finds it without waiting.
//   later, proxy -> hook   FdMessage + 1 fd: an exported handle; sent before the reply that names
//                          its token.
//
// The socket is otherwise silent: its hang-up is how each side learns that the other died.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tube::handshake {

inline constexpr uint64_t kHelloMagic = 0x4f4c4c4548425554ull;    // "TUBHELLO"
inline constexpr uint64_t kWelcomeMagic = 0x4d4f434c45574254ull;  // "TBWELCOM"
inline constexpr uint64_t kFdMagic = 0x3130444645425554ull;       // "TUBEFD01"

struct Hello {
  uint64_t magic;
  uint32_t abi_version;  // abi::kAbiVersion
  uint32_t flags;        // 0
  uint64_t
      protocol_hash;  // wire::kProtocolHash: both sides were generated from the same description
  int32_t pid;        // as the client sees it; the kernel's SO_PEERCRED wins
  uint32_t free_windows;      // bit k: candidate k of windows.h is reserved by the client
  char function_name[64];     // NUL-terminated
  char version[32];           // Tube's version, for the message when the hashes differ
  char visible_devices[256];  // CUDA_VISIBLE_DEVICES of the client, "\x01" when unset
  uint64_t slo_ms;            // of a request; 0: nobody said so
  uint64_t infer_ms;          // a request's time without its copies; 0: to be learnt
  uint64_t memory_bytes;      // of each GPU it wishes to be held to; 0: nobody said so
  uint32_t sm_percent;        // of a GPU's multiprocessors for itself; 0: no slice
  int32_t priority;           // of its kernels (policies/launch_priority.h)
  uint32_t lazy_memory;       // 1: backed by address, if it is certified (docs/memory.md)
  uint32_t reserved;          // 0
};
static_assert(sizeof(Hello) == 424);

enum class Refusal : uint32_t {
  kNone = 0,
  kVersion = 1,  // ABI or protocol hash differ
  kUid = 2,      // another user's process
  kTooManyClients = 3,
  kNoWindow = 4,     // no common free window; `message` names the mapping in the way
  kOutOfMemory = 5,  // the segment could not be made
  kStopping = 6,
  kGpu = 7,  // the proxy's GPU is in an error state
};

struct Welcome {
  uint64_t magic;
  uint32_t abi_version;
  uint32_t refusal;  // Refusal
  uint64_t protocol_hash;
  uint64_t session_id;
  uint32_t window;       // chosen candidate
  uint32_t client_slot;  // pinned slot, < windows::kMaxClients
  uint32_t device_count;
  uint32_t spin_us;  // 0 where cores are scarce
  uint64_t info_bytes;
  uint64_t memory_bytes;  // of each GPU that it may take at most: the total it sees; 0: no limit
  char version[32];
  char message[256];  // one line for the user when refused
};
static_assert(sizeof(Welcome) == 352);

struct FdMessage {
  uint64_t magic;
  uint64_t token;  // chosen by the sender, never 0, never reused on this connection
};
static_assert(sizeof(FdMessage) == 16);

}  // namespace tube::handshake
