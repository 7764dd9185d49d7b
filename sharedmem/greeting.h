// Both halves of the handshake (handshake.h), and the fd messages after it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sharedmem/handshake.h"
#include "sharedmem/socket.h"

namespace tube::shared {

// ---- client ----
struct Greeted {
  handshake::Welcome welcome{};
  UniqueFd segment;
  UniqueFd pinned;
  UniqueFd info;
};
// Fills the constant fields of a Hello; strings longer than their field are cut. nullptr devices =
// unset.
handshake::Hello make_hello(uint64_t protocol_hash, std::string_view function_name,
                            std::string_view version, const char* visible_devices,
                            uint32_t free_windows);
// Sends and waits up to `timeout_ms` for the answer. A refusal is an error whose message is the
// proxy's and whose code is kRefusalBase + Refusal. A version mismatch seen from this side is
// worded with both versions.
inline constexpr int kRefusalBase = 10000;
Result<Greeted> greet(int socket_fd, const handshake::Hello& hello, int timeout_ms);

// ---- proxy ----
// The Hello, with its strings NUL-terminated. Call it when the socket is readable; it never blocks.
// It checks magic and size only: ABI and hash are the caller's question, because the answer is a
// Welcome that says so (check_versions).
Result<handshake::Hello> receive_hello(int socket_fd);
// kNone, or kVersion with `message` worded: one rule, here and in tubectl, that versions must be
// the same. The hash finds what has one version and was built differently.
handshake::Refusal check_versions(const handshake::Hello& hello, uint64_t protocol_hash,
                                  std::string_view version, std::string* message);
handshake::Welcome make_welcome(uint64_t protocol_hash, std::string_view version);
Status send_welcome(int socket_fd, const handshake::Welcome& welcome, int segment_fd, int pinned_fd,
                    int info_fd);
Status send_refusal(int socket_fd, uint64_t protocol_hash, std::string_view version,
                    handshake::Refusal refusal, std::string_view message);

// ---- both ----
Status send_fd(int socket_fd, uint64_t token, int fd, SendMode mode = SendMode::kBlock);
struct TokenFd {
  uint64_t token = 0;
  UniqueFd fd;
};
// The next fd message; EAGAIN when none is there (timeout_ms 0).
Result<TokenFd> receive_fd(int socket_fd, int timeout_ms);

}  // namespace tube::shared
