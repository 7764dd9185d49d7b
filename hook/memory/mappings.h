// What the kernel says is mapped at some addresses of this process (/proc/thread-self/maps), and
// the file behind a shared mapping. Reads a file of up to some hundred KiB: for calls that are rare
// and slow anyway. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace tube::hook {

struct MappedArea {
  uint64_t begin = 0, end = 0;  // as asked for: cut to the range of the question
  int protection = 0;           // PROT_*
  bool shared = false;
  uint64_t offset = 0;                      // of the file, at `begin`
  uint64_t device = 0;                      // makedev form
  uint64_t inode = 0;                       // 0: no file
  uint64_t whole_begin = 0, whole_end = 0;  // the mapping's own
  std::string path;
};

// The mappings that intersect [begin, end), in order; gaps are left out. False: the list could not
// be read.
bool mapped_areas(uint64_t begin, uint64_t end, std::vector<MappedArea>* areas);

// A descriptor of the file that a shared area maps: one that the program still has open, else by
// its path, else through the kernel's own link (which only privileged processes may open). Invalid
// when there is none.
UniqueFd file_of(const MappedArea& area, bool writable);

}  // namespace tube::hook
