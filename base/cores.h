// How many cores and how much memory this process can use: its affinity mask, what the machine has,
// and the quotas of the control groups it is in. How busy the machine is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tube {

// At least 1: the smaller one of the following two, both of which may change while the process
// runs.
uint32_t usable_cores();
// Of the calling thread's affinity mask, at least 1. A system call.
uint32_t affinity_cores();
// By the quotas of the process's control groups; UINT32_MAX without any. Reads some files of /proc
// and /sys/fs/cgroup.
uint32_t quota_cores();

// Cores of the machine that are online, at least 1.
uint32_t machine_cores();
// Threads of the whole machine that run or wait for a core at this moment, the caller included. One
// small file of /proc. 0: not known.
uint32_t runnable_threads();

// The fourth field of /proc/loadavg ("0.20 0.18 0.12 3/80 11206": 3). 0: not understood.
uint32_t runnable_of_loadavg(std::string_view loadavg);

uint64_t machine_memory_bytes();
// At most what the machine has. Reads the same files.
uint64_t usable_memory_bytes();

// What the quotas of another process's control groups give it, in thousandths of a core;
// UINT32_MAX: no quota, or it is not known. Reads the same files.
uint32_t quota_of_process(int pid);

// The thousandths of a core that a quota stands for, rounded up: cpu.max of cgroup v2 ("max
// 100000", "250000 100000"). 0: no limit, or not understood.
uint32_t thousandths_of_quota(std::string_view cpu_max);
// A process's path in the groups of a controller, from the text of its /proc/PID/cgroup: of v2 for
// "", "/" when there is none.
std::string group_path(std::string_view groups, std::string_view controller);

}  // namespace tube
