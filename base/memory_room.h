// Whether there is memory left for this process: on the machine, and in each control group that it
// is in (v1 and v2), whose limit ends the process instead of an allocation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tube {

// The least that any of them has left. What the kernel would take back from files counts as left.
// Reads some files of /proc and /sys/fs/cgroup: 30 to 100 us. UINT64_MAX: nothing is known.
uint64_t available_memory_bytes();

// The limit of the narrowest control group, and its folder; UINT64_MAX and "" without any.
struct GroupLimit {
  uint64_t bytes = UINT64_MAX;
  std::string folder;
};
GroupLimit memory_group_limit();

// The number behind `name` in a file of lines "name number" or "name: number kB", as bytes; 0: it
// is not there.
uint64_t bytes_of_line(std::string_view text, std::string_view name);

}  // namespace tube
