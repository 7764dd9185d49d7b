// Runs a function at the end of the scope unless dismissed.
#pragma once

#include <utility>

namespace tube {

template <class F>
class [[nodiscard]] ScopeGuard {
 public:
  explicit ScopeGuard(F function) : function_(std::move(function)) {}
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;
  ~ScopeGuard() {
    if (armed_) function_();
  }
  void dismiss() { armed_ = false; }

 private:
  F function_;
  bool armed_ = true;
};

}  // namespace tube
