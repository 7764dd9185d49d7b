#include "sharedmem/greeting.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sharedmem/abi.h"
#include "sharedmem/segment.h"
#include "sharedmem/socket.h"

namespace tube::shared {
namespace {

template <size_t N>
void copy_text(char (&field)[N], std::string_view text) {
  const size_t size = std::min(text.size(), N - 1);
  std::memset(field, 0, N);
  std::memcpy(field, text.data(), size);
}

template <size_t N>
void terminate(char (&field)[N]) {
  field[N - 1] = '\0';
}

// Text of the other side goes to terminals and logs.
template <size_t N>
void make_printable(char (&field)[N]) {
  terminate(field);
  for (char& c : field) {
    if (c != '\0' && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)) c = '?';
  }
}

Error version_error(std::string_view ours, std::string_view theirs) {
  std::string message = "function and proxy are of different versions (function ";
  message += ours;
  message += ", proxy ";
  message += theirs;
  message +=
      "); restart the proxy with the installed version: tubectl proxy stop, tubectl proxy start";
  return Error{kRefusalBase + static_cast<int>(handshake::Refusal::kVersion), std::move(message)};
}

}  // namespace

// ---- client ----

handshake::Hello make_hello(uint64_t protocol_hash, std::string_view function_name,
                            std::string_view version, const char* visible_devices,
                            uint32_t free_windows) {
  handshake::Hello hello{};
  hello.magic = handshake::kHelloMagic;
  hello.abi_version = abi::kAbiVersion;
  hello.protocol_hash = protocol_hash;
  hello.pid = static_cast<int32_t>(::getpid());
  hello.free_windows = free_windows;
  copy_text(hello.function_name, function_name);
  copy_text(hello.version, version);
  copy_text(hello.visible_devices, visible_devices != nullptr ? visible_devices : "\x01");
  return hello;
}

Result<Greeted> greet(int socket_fd, const handshake::Hello& hello, int timeout_ms) {
  Status sent = send_message(socket_fd, &hello, sizeof(hello));
  if (!sent) return Error{sent.error().code, "cannot greet the proxy: " + sent.error().message};
  Greeted greeted;
  handshake::Welcome& welcome = greeted.welcome;
  Result<Received> received = receive_message(socket_fd, &welcome, sizeof(welcome), 3, timeout_ms);
  if (!received)
    return Error{received.error().code,
                 "the proxy did not answer the greeting: " + received.error().message};
  if (received->size_bytes != sizeof(welcome) || welcome.magic != handshake::kWelcomeMagic) {
    return Error{EPROTO, "what answers on the proxy's socket is not a Tube proxy of this version"};
  }
  make_printable(welcome.message);
  make_printable(welcome.version);
  if (welcome.abi_version != abi::kAbiVersion || welcome.protocol_hash != hello.protocol_hash ||
      std::string_view(welcome.version) != std::string_view(hello.version)) {
    return version_error(hello.version, welcome.version);
  }
  if (welcome.refusal != 0) {
    return Error{kRefusalBase + static_cast<int>(welcome.refusal),
                 welcome.message[0] != '\0' ? welcome.message : "the proxy refused this function"};
  }
  if (received->fds.size() != 3) return Error{EPROTO, "the proxy's answer lacks its shared memory"};
  greeted.segment = std::move(received->fds[0]);
  greeted.pinned = std::move(received->fds[1]);
  greeted.info = std::move(received->fds[2]);
  Status info = verify_memory_file(greeted.info.get(), welcome.info_bytes, true);
  if (!info) return info.error();
  return greeted;
}

// ---- proxy ----

Result<handshake::Hello> receive_hello(int socket_fd) {
  handshake::Hello hello{};
  Result<Received> received = receive_message(socket_fd, &hello, sizeof(hello), 0, 0);
  if (!received) return received.error();
  if (received->size_bytes != sizeof(hello) || hello.magic != handshake::kHelloMagic) {
    return Error{EPROTO, "what connected did not greet as a Tube function of this version"};
  }
  make_printable(hello.function_name);
  make_printable(hello.version);
  terminate(hello.visible_devices);
  return hello;
}

handshake::Refusal check_versions(const handshake::Hello& hello, uint64_t protocol_hash,
                                  std::string_view version, std::string* message) {
  if (hello.abi_version == abi::kAbiVersion && hello.protocol_hash == protocol_hash &&
      version == std::string_view(hello.version))
    return handshake::Refusal::kNone;
  *message = version_error(hello.version, version).message;
  return handshake::Refusal::kVersion;
}

handshake::Welcome make_welcome(uint64_t protocol_hash, std::string_view version) {
  handshake::Welcome welcome{};
  welcome.magic = handshake::kWelcomeMagic;
  welcome.abi_version = abi::kAbiVersion;
  welcome.protocol_hash = protocol_hash;
  copy_text(welcome.version, version);
  return welcome;
}

Status send_welcome(int socket_fd, const handshake::Welcome& welcome, int segment_fd, int pinned_fd,
                    int info_fd) {
  const int fds[] = {segment_fd, pinned_fd, info_fd};
  return send_message(socket_fd, &welcome, sizeof(welcome), fds, SendMode::kNeverBlock);
}

Status send_refusal(int socket_fd, uint64_t protocol_hash, std::string_view version,
                    handshake::Refusal refusal, std::string_view message) {
  handshake::Welcome welcome = make_welcome(protocol_hash, version);
  welcome.refusal = static_cast<uint32_t>(refusal);
  copy_text(welcome.message, message);
  return send_message(socket_fd, &welcome, sizeof(welcome), {}, SendMode::kNeverBlock);
}

// ---- both ----

Status send_fd(int socket_fd, uint64_t token, int fd, SendMode mode) {
  const handshake::FdMessage message{handshake::kFdMagic, token};
  return send_message(socket_fd, &message, sizeof(message), {&fd, 1}, mode);
}

Result<TokenFd> receive_fd(int socket_fd, int timeout_ms) {
  handshake::FdMessage message{};
  Result<Received> received = receive_message(socket_fd, &message, sizeof(message), 1, timeout_ms);
  if (!received) return received.error();
  if (received->size_bytes != sizeof(message) || message.magic != handshake::kFdMagic ||
      message.token == 0 || received->fds.size() != 1) {
    return Error{EPROTO, "an unexpected message where a file descriptor was announced"};
  }
  return TokenFd{message.token, std::move(received->fds[0])};
}

}  // namespace tube::shared
