#include "proxy/gpu/driver_log.h"

#include <cstdlib>

#include "base/cuda_api.h"
#include "protocol/driver_table.gen.h"

namespace tube::proxy {

DriverLog& DriverLog::listen(const Driver& driver) {
  static auto* const log = new DriverLog;  // the driver's threads may speak until the end
  if (driver.cuLogsRegisterCallback == nullptr) return *log;
  const CUlogsCallback heard = [](void* user, CUlogLevel, char* message, size_t length) {
    static_cast<DriverLog*>(user)->add({message, length});
  };
  CUlogsCallbackHandle handle{};
  (void)driver.cuLogsRegisterCallback(heard, log, &handle);
  return *log;
}

void DriverLog::add(std::string_view line) {
  std::lock_guard lock(mutex_);
  lines_.emplace_back(line.substr(0, kMostBytes));
  if (lines_.size() > kMost) lines_.pop_front();
}

std::vector<std::string> DriverLog::lines() const {
  std::lock_guard lock(mutex_);
  return {lines_.begin(), lines_.end()};
}

std::vector<uint64_t> addresses_in(const std::string& text) {
  std::vector<uint64_t> found;
  for (size_t at = text.find("0x"); at != std::string::npos; at = text.find("0x", at + 2))
    found.push_back(std::strtoull(text.c_str() + at, nullptr, 16));
  return found;
}

}  // namespace tube::proxy
