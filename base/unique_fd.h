// A file descriptor with one owner: closed when the owner goes, moved and never copied.
#pragma once

#include <unistd.h>

#include <utility>

namespace tube {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  // Linux frees the number even when close() reports an error, so there is nothing to retry and
  // errno is kept.
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

}  // namespace tube
