// Where the driver writes what kernels print: this process's standard output and standard error.
//
// The driver knows one process, so its text lands in libc's stdout (printf) and stderr (assert) of
// tubed. Standard output's descriptor is moved to a memory file that only grows, and what is read
// is punched out of it; libc's `stderr` becomes a stream that keeps the last text and passes all of
// it on to descriptor 2, where log lines, sanitizers and crashes write as before. What nobody
// claims goes to where standard output went at start. One per process, made before any thread and
// never destroyed; afterwards any thread, the callers of take() one at a time.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace tube::proxy {

class ProcessOutput {
 public:
  ProcessOutput() = default;
  ProcessOutput(const ProcessOutput&) = delete;
  ProcessOutput& operator=(const ProcessOutput&) = delete;

  // From now on. Without it take() finds nothing and forward() writes to standard output (unit
  // tests).
  Status capture();
  // Appends what was written to standard output since the last time.
  void take(std::string* text);
  // Standard output goes again where it went, behind what nobody took. The stream for standard
  // error stays ours: do not destroy the object while somebody may write there.
  void finish();
  // Where standard output went before capture().
  void forward(const std::string& text);
  // Lines of failed assertions among the latest on standard error; they are handed out once.
  std::string take_assertions();

 private:
  static ssize_t write_error(void* cookie, const char* text, size_t bytes);

  UniqueFd file_;      // what descriptor 1 is
  UniqueFd original_;  // what it was
  bool log_is_stderr_ = true;
  bool is_log_ = false;  // standard output was the same file
  uint64_t read_ = 0;
  std::mutex mutex_;  // leaf: the member below
  std::string errors_;
};

}  // namespace tube::proxy
