#include "base/result.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace tube {

Error errno_error(int error_number, std::string what) {
  char buffer[128];
  // The GNU form: returns the text, which may or may not lie in the buffer. Thread-safe, unlike
  // strerror.
  const char* text = ::strerror_r(error_number, buffer, sizeof(buffer));
  what += ": ";
  what += text;
  return Error{error_number == 0 ? 1 : error_number, std::move(what)};
}

Error errorf(const char* format, ...) {
  char buffer[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof(buffer), format, arguments);
  va_end(arguments);
  return Error{1, buffer};
}

}  // namespace tube
