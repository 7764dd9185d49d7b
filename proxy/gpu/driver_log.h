// What the driver says of its errors in words (cuLogsRegisterCallback, CUDA 12.9): the last lines,
// for who has to explain a fault. A driver without such a log, or one that says nothing, leaves
// nothing here.
//
// Once for a process: the driver may call until its end. Any thread; `mutex_` is a leaf.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tube::proxy {

struct Driver;

class DriverLog {
 public:
  static constexpr size_t kMost = 32, kMostBytes = 1024;

  // From now on. The process's own one; never ends.
  static DriverLog& listen(const Driver& driver);
  std::vector<std::string> lines() const;
  void add(std::string_view line);

 private:
  mutable std::mutex mutex_;
  std::deque<std::string> lines_;  // the newest last
};

// Hexadecimal numbers in the text that may be addresses.
std::vector<uint64_t> addresses_in(const std::string& text);

}  // namespace tube::proxy
