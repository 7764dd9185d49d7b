// Holds back every writer of some private pages while their bytes are moved: userfaultfd's write
// protection.
//
// A thread that writes sleeps in its page fault until release(), then writes to what is mapped by
// then. Where the kernel does not grant userfaultfd (containers often forbid it,
// vm.unprivileged_userfaultfd=0 allows only faults of user code) or the pages are no plain memory,
// freeze() does nothing and says so. The calling thread must not write to the pages itself in
// between.
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace tube::hook {

class WriteFreeze {
 public:
  WriteFreeze();
  WriteFreeze(const WriteFreeze&) = delete;
  WriteFreeze& operator=(const WriteFreeze&) = delete;

  bool freeze(uint64_t begin, uint64_t end);
  // The pages are writable again or replaced; lets the writers go on.
  void release();

 private:
  UniqueFd fd_;
  uint64_t begin_ = 0, end_ = 0;
};

}  // namespace tube::hook
