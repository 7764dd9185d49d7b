// Checks for our own bugs, never for outside data.
//
//   TUBE_CHECK(x)   ends the process: for the proxy, the simulated GPU, tools and tests.
//   TUBE_EXPECT(x)  evaluates to the condition. When it is false the process's handler is called;
//                   without one it is logged. For hook/, whose handler fails all further CUDA calls
//                   (hook/process/process.cc), because it must not end other people's programs.
#pragma once

namespace tube {

// Called at each failed TUBE_EXPECT, by a thread that may hold any lock; nullptr for none. Logs.
using ExpectHandler = void (*)(const char* condition, const char* file, int line);
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
