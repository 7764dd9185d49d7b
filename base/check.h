// Checks for our own bugs, never for outside data.
//
//   TUBE_CHECK(x)   ends the process: for the proxy, the simulated GPU, tools and tests.
//   TUBE_EXPECT(x)  evaluates to the condition; when false it logs and calls the process's handler.
//   For hook/, which
//                   poisons its connection and returns an error, because it must not abort other
//                   people's programs.
#pragma once

namespace tube {

// Called after the log line of a failed TUBE_EXPECT; nullptr for none. Set once, before threads
// start.
using ExpectHandler = void (*)();
void set_expect_handler(ExpectHandler handler);

[[noreturn]] void check_failed(const char* condition, const char* file, int line);
bool expect_failed(const char* condition, const char* file, int line);  // always false

}  // namespace tube

#define TUBE_CHECK(condition)                   \
  (__builtin_expect(!!(condition), 1) ? (void)0 \
                                      : ::tube::check_failed(#condition, __FILE__, __LINE__))
#define TUBE_EXPECT(condition)               \
  (__builtin_expect(!!(condition), 1) ? true \
                                      : ::tube::expect_failed(#condition, __FILE__, __LINE__))
