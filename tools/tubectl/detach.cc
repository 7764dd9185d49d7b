#include "tools/tubectl/detach.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/cores.h"
#include "base/memory_room.h"
#include "tools/tubectl/format.h"

extern char** environ;

namespace tube::ctl {
namespace {

// By a whole name, or by its beginning where a star follows.
constexpr std::string_view kKept[] = {"PATH",
                                      "HOME",
                                      "USER",
                                      "LOGNAME",
                                      "SHELL",
                                      "LANG",
                                      "LC_*",
                                      "TZ",
                                      "TMPDIR",
                                      "XDG_*",
                                      "LD_LIBRARY_PATH",
                                      "TUBE_*",
                                      "NVIDIA_*",
                                      "CUDA_HOME",
                                      "CUDA_VISIBLE_DEVICES",
                                      "CUDA_DEVICE_ORDER",
                                      "CUDA_CACHE_*",
                                      "CUDA_MPS_*",
                                      "ASAN_OPTIONS",
                                      "UBSAN_OPTIONS",
                                      "LSAN_OPTIONS",
                                      "TSAN_OPTIONS"};
// Of these, what is the program's own.
constexpr std::string_view kProgramsOwn[] = {
    "TUBE_LOG_FILE",   "TUBE_FUNCTION", "TUBE_MEMORY",  "TUBE_SLO_MS",      "TUBE_INFER_MS",
    "TUBE_SM_PERCENT", "TUBE_PRIORITY", "TUBE_PREINIT", "TUBE_TRACE_START", "TUBE_COVERAGE"};

bool is_kept(std::string_view name) {
  if (std::find(std::begin(kProgramsOwn), std::end(kProgramsOwn), name) != std::end(kProgramsOwn))
    return false;
  return std::any_of(std::begin(kKept), std::end(kKept), [name](std::string_view kept) {
    return kept.ends_with('*') ? name.starts_with(kept.substr(0, kept.size() - 1)) : name == kept;
  });
}

// LD_PRELOAD above all: the hook must not come into the proxy, whose driver is the real one.
void clean_environment() {
  std::vector<std::string> others;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (!is_kept(name)) others.emplace_back(name);
  }
  for (const std::string& name : others) unsetenv(name.c_str());
}

// Not the stack's, by which the kernel lays the process out.
void raise_soft_limits() {
  for (const __rlimit_resource_t resource :
       {RLIMIT_NOFILE, RLIMIT_NPROC, RLIMIT_AS, RLIMIT_DATA, RLIMIT_RSS, RLIMIT_MEMLOCK,
        RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_SIGPENDING}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == limit.rlim_max) continue;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(resource, &limit);
  }
}

void reset_signals() {
  for (int number = 1; number < SIGRTMAX; ++number) {
    if (number != SIGKILL && number != SIGSTOP) (void)signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
}

void run_on_all_cores() {
  constexpr int kMost = 8192;  // larger than any mask of a kernel
  cpu_set_t* set = CPU_ALLOC(kMost);
  if (set == nullptr) return;
  const size_t bytes = CPU_ALLOC_SIZE(kMost);
  std::memset(set, 0xff, bytes);
  (void)sched_setaffinity(0, bytes, set);  // the kernel takes those of the cpuset
  CPU_FREE(set);
}

// The caller's may be a batch job's: all functions of the proxy would wait behind whatever else the
// machine has. Without the right to it (a class that another user chose) it stays.
void reset_scheduling() {
  const sched_param ordinary{};
  (void)setpriority(PRIO_PROCESS, 0, 0);
  (void)sched_setscheduler(0, SCHED_OTHER, &ordinary);
  constexpr int kThisProcess = 1, kByNiceness = 0;
  (void)syscall(SYS_ioprio_set, kThisProcess, 0, kByNiceness);
  (void)syscall(SYS_set_mempolicy, 0, nullptr, 0);  // of NUMA nodes: where a thread runs
}

void reset_oom_score() {
  const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  (void)!write(file, "0", 1);
  close(file);
}

void name_hard_limit(std::vector<std::string>& list, __rlimit_resource_t resource,
                     const char* option, uint64_t least, const char* what) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_max == RLIM_INFINITY ||
      limit.rlim_max >= least)
    return;
  list.push_back(fmt::format("a hard limit of {} {} (ulimit -H{})", limit.rlim_max, what, option));
}

}  // namespace

void leave_limits_behind() {
  clean_environment();
  raise_soft_limits();
  reset_signals();
  run_on_all_cores();
  reset_oom_score();
  umask(077);
  reset_scheduling();
}

std::vector<std::string> limits_that_stay() {
  constexpr uint64_t kDescriptors = 1024, kThreads = 512, kBytes = uint64_t{1} << 40;
  std::vector<std::string> list;
  if (const GroupLimit group = memory_group_limit(); group.bytes != UINT64_MAX)
    list.push_back(fmt::format(
        "the control group {}, which limits its memory, pinned memory of all functions included, "
        "to {}, and with whose end it ends",
        group.folder, human_bytes(group.bytes)));
  if (const uint32_t cores = quota_cores(); cores < machine_cores())
    list.push_back(fmt::format("a quota of {} cores", cores));
  name_hard_limit(list, RLIMIT_NOFILE, "n", kDescriptors, "file descriptors");
  name_hard_limit(list, RLIMIT_NPROC, "u", kThreads, "threads of the user");
  name_hard_limit(list, RLIMIT_AS, "v", kBytes, "bytes of addresses");
  name_hard_limit(list, RLIMIT_CPU, "t", UINT64_MAX, "seconds of CPU time");
  return list;
}

}  // namespace tube::ctl
