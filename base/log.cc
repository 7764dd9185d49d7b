#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "base/env.h"
#include "base/log_limits.h"
#include "base/log_stamps.h"

namespace tube {
namespace {

constexpr const char* kNames[] = {"error", "warn", "info", "debug", "trace"};
constexpr int kUnknown = -1;
constexpr int kNotOpened = -2;

std::atomic<int> level_limit{kUnknown};
std::atomic<int> log_fd{kNotOpened};

int limit() {
  int value = level_limit.load(std::memory_order_relaxed);
  if (value != kUnknown) return value;
  LogLevel level = LogLevel::kWarn;
  if (const char* word = env_text(Env::kLog)) parse_log_level(word, &level);
  int expected = kUnknown;
  level_limit.compare_exchange_strong(expected, static_cast<int>(level));
  return level_limit.load();
}

int output() {
  int fd = log_fd.load(std::memory_order_acquire);
  if (fd != kNotOpened) return fd;
  int opened = STDERR_FILENO;
  if (const char* path = env_text(Env::kLogFile)) {
    const int file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file >= 0) opened = file;
  }
  int expected = kNotOpened;
  if (log_fd.compare_exchange_strong(expected, opened)) return opened;
  if (opened != STDERR_FILENO) ::close(opened);
  return expected;
}

bool stamps = false;

int write_stamp(char* line, size_t room) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  return std::snprintf(line, room, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ ", utc.tm_year + 1900,
                       utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                       now.tv_nsec / 1'000'000);
}

void write_line(LogLevel level, const char* format, va_list arguments) {
  const int saved = errno;
  uint64_t left_out = 0;
  if (!log_internal::admits(limit() <= static_cast<int>(LogLevel::kInfo), &left_out)) {
    errno = saved;
    return;
  }
  char line[1024];
  int start = stamps ? write_stamp(line, sizeof(line)) : 0;
  start += std::snprintf(line + start, sizeof(line) - static_cast<size_t>(start),
                         "tube: %s: ", kNames[static_cast<int>(level)]);
  if (left_out != 0)
    start += std::snprintf(line + start, sizeof(line) - static_cast<size_t>(start),
                           "(%lu lines left out) ", left_out);
  const int room = static_cast<int>(sizeof(line)) - start - 1;
  int length = std::vsnprintf(line + start, static_cast<size_t>(room), format, arguments);
  if (length < 0) length = 0;
  if (length >= room) length = room - 1;
  length += start;
  // One line per event, whatever a name in it contains.
  for (int i = start; i < length; ++i) {
    if (line[i] == '\n') line[i] = ' ';
  }
  line[length++] = '\n';
  log_internal::put(output(), line, static_cast<size_t>(length), left_out);
  errno = saved;
}

}  // namespace

bool log_enabled(LogLevel level) { return static_cast<int>(level) <= limit(); }
void reset_log_for_test() {
  level_limit.store(kUnknown);
  log_fd.store(kNotOpened);
  log_internal::reset_limits_for_test();
}
int log_internal::output() { return tube::output(); }
void log_internal::replace_output(int fd) { log_fd.store(fd, std::memory_order_release); }
void stamp_log_lines() { stamps = true; }
void set_log_level(LogLevel level) { level_limit.store(static_cast<int>(level)); }

bool parse_log_level(const char* word, LogLevel* level) {
  for (int i = 0; i < 5; ++i) {
    if (std::strcmp(word, kNames[i]) == 0) {
      *level = static_cast<LogLevel>(i);
      return true;
    }
  }
  return false;
}

#define TUBE_DEFINE_LOG(function, level)   \
  void function(const char* format, ...) { \
    if (!log_enabled(level)) return;       \
    va_list arguments;                     \
    va_start(arguments, format);           \
    write_line(level, format, arguments);  \
    va_end(arguments);                     \
  }
TUBE_DEFINE_LOG(log_error, LogLevel::kError)
TUBE_DEFINE_LOG(log_warn, LogLevel::kWarn)
TUBE_DEFINE_LOG(log_info, LogLevel::kInfo)
TUBE_DEFINE_LOG(log_debug, LogLevel::kDebug)
TUBE_DEFINE_LOG(log_trace, LogLevel::kTrace)
#undef TUBE_DEFINE_LOG

}  // namespace tube
