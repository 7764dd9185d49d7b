#include "sim/machine/error_log.h"

#include <mutex>
#include <utility>
#include <vector>

namespace tube::sim {
namespace {

struct Log {
  struct Callback {
    CUlogsCallback call;
    void* user;
    void* handle;
  };
  std::mutex mutex;  // leaf
  std::vector<Callback> callbacks;
};

Log& log() {
  static auto* const l = new Log;  // leaked: calls come from exit handlers
  return *l;
}

}  // namespace

void* add_log_callback(CUlogsCallback call, void* user) {
  std::lock_guard guard(log().mutex);
  void* const handle = new char;
  log().callbacks.push_back({call, user, handle});
  return handle;
}

bool remove_log_callback(void* handle) {
  std::lock_guard guard(log().mutex);
  return std::erase_if(log().callbacks, [&](const auto& each) { return each.handle == handle; }) !=
         0;
}

void tell_log(std::string line) {
  std::vector<Log::Callback> callbacks;
  {
    std::lock_guard guard(log().mutex);
    callbacks = log().callbacks;
  }
  for (const auto& each : callbacks)
    each.call(each.user, CU_LOG_LEVEL_ERROR, line.data(), line.size());
}

}  // namespace tube::sim
