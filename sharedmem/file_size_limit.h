// The limit of file sizes (ulimit -f) and the memory files of Tube, which are no files that a
// program writes.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <mutex>

namespace tube::shared {

// Lifts the process's soft limit, where `size_bytes` is over it, while this object lives: a file
// that is made or written beyond it would raise SIGXFSZ, which ends the program. The limit is one
// of the whole process, so keep the object for as long as the size is set or the bytes are written,
// and no longer; a process that is forked meanwhile has the lifted one. One at a time in a process:
// a second one waits. Any thread may make one; the thread that has one makes no other.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(uint64_t size_bytes);
  ~FileSizeLimit();
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

  // False: the hard limit is below `size_bytes` too; nothing was changed.
  [[nodiscard]] bool lifted() const { return lifted_; }

 private:
  std::unique_lock<std::mutex> alone_;
  rlimit own_{};
  bool changed_ = false;
  bool lifted_ = true;
};

}  // namespace tube::shared
