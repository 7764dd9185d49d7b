#include "proxy/common/process_output.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/env.h"
#include "base/log_limits.h"
#include "base/same_file.h"

namespace tube::proxy {
namespace {

constexpr size_t kKeptErrorBytes = 256u << 10;
constexpr uint64_t kPageBytes = 4096;

// Nobody may be held up by who does not read it: what finds no room is lost.
void write_what_fits(int fd, const char* text, size_t bytes) {
  constexpr size_t kAtOnce = PIPE_BUF;  // for which a pipe that can be written to has room
  while (bytes != 0) {
    pollfd room{fd, POLLOUT, 0};
    if (poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0) return;
    const ssize_t done = write(fd, text, std::min(bytes, kAtOnce));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    text += done;
    bytes -= static_cast<size_t>(done);
  }
}

}  // namespace

void ProcessOutput::finish() {
  if (!original_.valid()) return;
  std::string rest;
  take(&rest);
  forward(rest);
  dup2(is_log_ ? STDERR_FILENO : original_.get(), STDOUT_FILENO);
  original_.reset();
}

Status ProcessOutput::capture() {
  std::fflush(stdout);
  original_ = UniqueFd(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  log_is_stderr_ = env_text(Env::kLogFile) == nullptr;
  is_log_ = log_is_stderr_ && same_file(STDOUT_FILENO, STDERR_FILENO);
  file_ = UniqueFd(memfd_create("tube-output", MFD_CLOEXEC));
  if (!file_.valid() || fcntl(file_.get(), F_SETFL, O_APPEND) != 0 ||
      dup2(file_.get(), STDOUT_FILENO) < 0) {
    return errno_error(errno, "standard output");
  }
  cookie_io_functions_t functions{};
  functions.write = write_error;
  FILE* stream = fopencookie(this, "w", functions);
  if (stream == nullptr) return errno_error(errno, "standard error");
  setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
  stderr = stream;  // descriptor 2 stays what it is
  return {};
}

void ProcessOutput::take(std::string* text) {
  if (!file_.valid()) return;
  std::fflush(stdout);
  char piece[64u << 10];
  const uint64_t before = read_;
  for (;;) {
    const ssize_t got = pread(file_.get(), piece, sizeof piece, static_cast<off_t>(read_));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text->append(piece, static_cast<size_t>(got));
    read_ += static_cast<uint64_t>(got);
  }
  // Whole pages that have been read go back; the offsets stay.
  const uint64_t from = before / kPageBytes * kPageBytes, to = read_ / kPageBytes * kPageBytes;
  if (to > from)
    fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
              static_cast<off_t>(to - from));
}

void ProcessOutput::forward(const std::string& text) {
  if (is_log_) return log_text(text.data(), text.size());
  write_what_fits(original_.valid() ? original_.get() : STDOUT_FILENO, text.data(), text.size());
}

ssize_t ProcessOutput::write_error(void* cookie, const char* text, size_t bytes) {
  auto& self = *static_cast<ProcessOutput*>(cookie);
  if (self.log_is_stderr_) log_text(text, bytes);
  else write_what_fits(STDERR_FILENO, text, bytes);
  std::lock_guard guard(self.mutex_);
  self.errors_.append(text, bytes);
  if (self.errors_.size() > kKeptErrorBytes)
    self.errors_.erase(0, self.errors_.size() - kKeptErrorBytes);
  return static_cast<ssize_t>(bytes);
}

std::string ProcessOutput::take_assertions() {
  std::fflush(stderr);
  std::string text, found;
  {
    std::lock_guard guard(mutex_);
    text.swap(errors_);
  }
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    end = end == std::string::npos ? text.size() : end + 1;
    const std::string_view line(text.data() + at, end - at);
    if (line.find(": block: [") != line.npos && line.find("Assertion `") != line.npos)
      found.append(line);
    at = end;
  }
  return found;
}

}  // namespace tube::proxy
