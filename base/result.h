// Results without exceptions.
//
//   Result<T>  a value or an Error; the first function that knows the cause words the message for a
//              person to read
//   Status     the same without a value
//
// `code` is an errno, a CUresult or 1, whichever the function's comment says; 0 never means an
// error.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace tube {

struct Error {
  int code = 1;
  std::string message;
};

// "WHAT: strerror(error_number)", code = error_number.
Error errno_error(int error_number, std::string what);
// printf form; code = 1.
Error errorf(const char* format, ...) __attribute__((format(printf, 1, 2)));

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  // Reading the wrong one is a bug of the caller: it ends the process instead of throwing.
  T& value() { return *checked(std::get_if<0>(&state_)); }
  const T& value() const { return *checked(std::get_if<0>(&state_)); }
  T take() { return std::move(value()); }
  T& operator*() { return value(); }
  T* operator->() { return &value(); }
  const T& operator*() const { return value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return *checked(std::get_if<1>(&state_)); }

 private:
  template <class P>
  static P* checked(P* pointer) {
    if (pointer == nullptr) std::abort();
    return pointer;
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : failed_(true), error_(std::move(error)) {}  // NOLINT
  bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    if (!failed_) std::abort();
    return error_;
  }

 private:
  bool failed_ = false;
  Error error_;
};

using Status = Result<void>;

}  // namespace tube
