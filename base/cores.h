// How many cores this process can use at once: its affinity mask, and the CPU quotas of the control
// groups it is in.
#pragma once

#include <cstdint>
#include <string_view>

namespace tube {

// At least 1. Reads some files of /proc and /sys/fs/cgroup; the answer may change while the process
// runs.
uint32_t usable_cores();

// The cores that a quota stands for, rounded up: cpu.max of cgroup v2 ("max 100000", "250000
// 100000"). 0: no limit, or not understood.
uint32_t cores_of_quota(std::string_view cpu_max);

}  // namespace tube
