#include "base/log_limits.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/clock.h"
#include "base/same_file.h"
#include "base/unique_fd.h"

namespace tube {
namespace {

// nullptr: nothing is counted, and the thread's own budget, which costs a look-up, is not asked
// for.
std::atomic<LogBudget*> own_budget{nullptr};
constinit thread_local LogBudget* thread_budget = nullptr;

std::atomic<uint64_t> left_out_in_all{0};

// How the log's descriptor is written to.
enum class Kind : uint32_t {
  kPlain,        // write(2); of a process that never called log_without_waiting()
  kNeverBlocks,  // a regular file, or a description of our own with O_NONBLOCK
  kAskFirst,     // it is shared with others, and could not be opened anew
  kSocket,
};
std::atomic<Kind> kind{Kind::kPlain};

// Rotation; written before other threads.
std::string* folder = nullptr;
uint64_t most_bytes = 0;
std::atomic<uint64_t> file_bytes{0};
std::atomic_flag rotating = ATOMIC_FLAG_INIT;

LogBudget* budget() {
  LogBudget* own = own_budget.load(std::memory_order_acquire);
  return own != nullptr && thread_budget != nullptr ? thread_budget : own;
}

bool has_room(int fd) {
  pollfd p{fd, POLLOUT, 0};
  return ::poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) != 0;
}

ssize_t put_some(int fd, const char* text, size_t bytes) {
  switch (kind.load(std::memory_order_relaxed)) {
    case Kind::kSocket: return ::send(fd, text, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    case Kind::kAskFirst:
      if (!has_room(fd)) {
        errno = EAGAIN;
        return -1;
      }
      break;
    case Kind::kPlain:
    case Kind::kNeverBlocks: break;
  }
  return ::write(fd, text, bytes);
}

std::string path_of(int fd) {
  char link[64], path[4096];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof(path));
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string();
}

// The file is ours to rename: it lies in the folder, and the name still means it.
bool is_ours(int fd, const std::string& path) {
  struct stat open_file, named;
  return path.size() > folder->size() && path.compare(0, folder->size(), *folder) == 0 &&
         path.find('/', folder->size()) == std::string::npos && ::fstat(fd, &open_file) == 0 &&
         ::lstat(path.c_str(), &named) == 0 && S_ISREG(named.st_mode) &&
         same_file(open_file, named);
}

void begin_anew(int fd) {
  const std::string path = path_of(fd);
  if (!is_ours(fd, path) || ::rename(path.c_str(), (path + ".1").c_str()) != 0) return;
  const UniqueFd next(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600));
  if (!next.valid()) return;
  const bool is_stderr = same_file(fd, STDERR_FILENO);
  if (is_stderr) ::dup2(next.get(), STDERR_FILENO);
  if (fd != STDERR_FILENO) ::dup3(next.get(), fd, O_CLOEXEC);
}

void count_bytes(int fd, size_t bytes) {
  if (folder == nullptr ||
      file_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes < most_bytes ||
      rotating.test_and_set(std::memory_order_acquire))
    return;
  file_bytes.store(0, std::memory_order_relaxed);  // if it fails: after as many bytes again
  begin_anew(fd);
  rotating.clear(std::memory_order_release);
}

}  // namespace

void LogBudget::leave_out(uint64_t lines) {
  left_out_.fetch_add(lines, std::memory_order_relaxed);
  left_out_in_all.fetch_add(1, std::memory_order_relaxed);
}

uint64_t log_lines_left_out() { return left_out_in_all.load(std::memory_order_relaxed); }

bool LogBudget::take(uint64_t now_ns) {
  uint64_t free = free_ns_.load(std::memory_order_relaxed);
  uint64_t from = 0;
  do {
    from = std::max(free, now_ns);
    if (from - now_ns + step_ns_ > burst_ns_) {
      leave_out();
      return false;
    }
  } while (!free_ns_.compare_exchange_weak(free, from + step_ns_, std::memory_order_relaxed));
  if (of_all_ == nullptr || of_all_->take(now_ns)) return true;
  left_out_.fetch_add(1, std::memory_order_relaxed);  // which `of_all` has counted
  return false;
}

void bound_log(LogBudget* own) { own_budget.store(own, std::memory_order_release); }

void log_within(LogBudget* budget) { thread_budget = budget; }

void log_without_waiting() {
  const int fd = log_internal::output();
  struct stat info;
  if (::fstat(fd, &info) != 0) return;
  if (S_ISSOCK(info.st_mode)) return kind.store(Kind::kSocket);
  if (S_ISREG(info.st_mode)) return kind.store(Kind::kNeverBlocks);
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  UniqueFd own(::open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!own.valid()) return kind.store(Kind::kAskFirst);
  kind.store(Kind::kNeverBlocks);
  log_internal::replace_output(own.release());
}

void begin_log_anew(std::string in_folder, uint64_t bytes) {
  struct stat info;
  if (::fstat(log_internal::output(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  file_bytes.store(static_cast<uint64_t>(info.st_size));
  most_bytes = bytes;
  // It lives as long as the log.
  folder = new std::string(std::move(in_folder) + "/");
}

void log_text(const char* text, size_t bytes) {
  const int fd = log_internal::output();
  constexpr size_t kAtOnce = 4096;  // of a pipe: whole or not at all
  for (size_t at = 0; at < bytes; at += kAtOnce)
    log_internal::put(fd, text + at, std::min(kAtOnce, bytes - at));
}

namespace log_internal {

bool admits(bool counted, uint64_t* left_out) {
  LogBudget* who = budget();
  if (who == nullptr) return true;
  if (counted && !who->take(now_ns())) return false;
  *left_out = who->take_left_out();
  return true;
}

void put(int fd, const char* text, size_t bytes, uint64_t told) {
  ssize_t done;
  do {
    done = put_some(fd, text, bytes);
  } while (done < 0 && errno == EINTR);
  LogBudget* who = budget();
  if (done < 0 && who != nullptr) who->leave_out(told + 1);
  if (done > 0) count_bytes(fd, static_cast<size_t>(done));
}

void reset_limits_for_test() {
  own_budget = nullptr;
  thread_budget = nullptr;
  kind = Kind::kPlain;
  folder = nullptr;
}

}  // namespace log_internal
}  // namespace tube
