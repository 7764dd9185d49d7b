// Which kernel a session launched last: it may have broken the context.
//
// The session's thread stores the address of the kernel's own name, one store for each launch, and
// forgets it before the name ends with its kernel. Any other thread reads a copy.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

namespace tube::proxy {

class LastKernel {
 public:
  // ---- the session's thread
  void launched(const std::string* name) { name_.store(name, std::memory_order_release); }
  // The name is about to end.
  void forget(const std::string* name) {
    if (name_.load(std::memory_order_relaxed) != name) return;
    std::lock_guard lock(mutex_);
    name_.store(nullptr, std::memory_order_relaxed);
  }
  // ---- any thread
  // Empty: none, or the client has unloaded it.
  std::string name() const {
    std::lock_guard lock(mutex_);
    const std::string* name = name_.load(std::memory_order_acquire);
    return name != nullptr ? *name : std::string();
  }

 private:
  mutable std::mutex mutex_;  // leaf: names do not end while it is held
  std::atomic<const std::string*> name_{nullptr};
};

}  // namespace tube::proxy
