// Making pages of this process something that the proxy can map too, and giving them back.
//
// cuMemHostRegister pins the caller's own memory, which another process cannot do. Pages of a
// shared file mapping (/dev/shm, a memory file, MAP_SHARED) are passed on as they are. Private
// pages are replaced: their bytes go into this process's memory file and the file is mapped over
// them, at the same address and with the same protection; the program sees no difference. On
// release the file is mapped privately over the range and its pages are copied by the kernel
// (MADV_POPULATE_WRITE), so nothing is lost there.
//
//   writers     may write between copy and exchange: they are held back with userfaultfd's write
//               protection where the kernel grants it (docs/limits.md says what happens where not)
//   fork        the child must not share the pages: host_fork.h
//   growth      the program makes a range larger in place (realloc): a hole in the file lies behind
//               it, and reads as zeros
//   own stack   the caller's stack may be among the pages: the exchange then runs on another stack
//
// All of it is serialised by the caller (calls/host_register.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "base/cuda_api.h"
#include "base/unique_fd.h"
#include "protocol/host_segment.h"

namespace tube::hook {

struct SharedPages {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;
  int file = -1;          // index in SharedRange::files, -1: the process's own memory file
  bool replaced = false;  // by us, now
};

struct SharedRange {
  std::vector<SharedPages> pages;  // in order, without gaps
  std::vector<UniqueFd> files;
};

// [first, last) is page-aligned. Fails with the code that cuMemHostRegister then answers and leaves
// everything as it was.
CUresult share_pages(uint64_t first, uint64_t last, bool read_only, SharedRange* range);
// Makes what share_pages replaced private memory of this process again, as far as the program still
// has it there.
void unshare_pages(uint64_t address, uint64_t bytes);
// In a forked child: the same without waiting for the copies of all pages (host_fork.h).
void keep_private(uint64_t address, uint64_t bytes);
// The process's memory file; -1 before its first use.
int own_pages_file();

}  // namespace tube::hook
