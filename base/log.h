// One line per event: `tube: LEVEL: TEXT`, to stderr or a file.
//
// Each line is formatted on the stack and leaves in one write(2): no lock, so a fork never inherits
// a held one, and no allocation. Not for signal handlers (vsnprintf). Silent below `warn` unless
// TUBE_LOG says otherwise.
#pragma once

#include <atomic>
#include <cstdint>

namespace tube {

enum class LogLevel : uint8_t { kError = 0, kWarn = 1, kInfo = 2, kDebug = 3, kTrace = 4 };

bool log_enabled(LogLevel level);
void log_error(const char* format, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char* format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char* format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char* format, ...) __attribute__((format(printf, 1, 2)));
void log_trace(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The level and the file come from TUBE_LOG and TUBE_LOG_FILE at the first line; a program's own
// flags win over them.
void set_log_level(LogLevel level);
// False when the word is none of error, warn, info, debug, trace.
bool parse_log_level(const char* word, LogLevel* level);
// Forgets level and file, so that the next line reads the environment again. Tests only.
void reset_log_for_test();

// For "say it once": `static Once said; if (said.first()) log_warn(...)`. Constant-initialised, no
// destructor.
class Once {
 public:
  constexpr Once() = default;
  bool first() { return !done_.exchange(true, std::memory_order_relaxed); }

 private:
  std::atomic<bool> done_{false};
};

}  // namespace tube
