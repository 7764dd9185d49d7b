#include "base/check.h"

#include <atomic>
#include <cstdlib>

#include "base/log.h"

namespace tube {
namespace {
std::atomic<ExpectHandler> expect_handler{nullptr};
}

void set_expect_handler(ExpectHandler handler) { expect_handler.store(handler); }

void check_failed(const char* condition, const char* file, int line) {
  log_error("bug in Tube: %s:%d: this does not hold: %s", file, line, condition);
  std::abort();
}

bool expect_failed(const char* condition, const char* file, int line) {
  if (ExpectHandler handler = expect_handler.load()) handler(condition, file, line);
  else log_error("bug in Tube: %s:%d: this does not hold: %s", file, line, condition);
  return false;
}

}  // namespace tube
