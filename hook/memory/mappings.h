// What the kernel says is mapped at some addresses of this process (/proc/thread-self/maps), and
// the file behind a shared mapping. Any thread. Asks for the addresses alone where the kernel can
// be asked (Linux 6.11); else reads the list up to them, some hundred KiB in a program with
// thousands of mappings.
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

// The mappings that intersect [begin, end), in order; gaps are left out. `areas` is empty before.
// False: the list could not be read.
bool mapped_areas(uint64_t begin, uint64_t end, std::vector<MappedArea>* areas);
// The same, always from the list. For mapped_areas, and the test that compares the two.
bool listed_areas(uint64_t begin, uint64_t end, std::vector<MappedArea>* areas);

// A descriptor of the file that a shared area maps: one that the program still has open, else by
// its path, else through the kernel's own link (which only privileged processes may open). Invalid
// when there is none.
UniqueFd file_of(const MappedArea& area, bool writable);

}  // namespace tube::hook
