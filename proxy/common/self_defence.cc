#include "proxy/common/self_defence.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

#include "base/log.h"
#include "base/log_limits.h"
#include "base/memory_room.h"
#include "base/unique_fd.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/descriptors.h"
#include "proxy/common/log_budgets.h"

namespace tube::proxy {

namespace {

constexpr char kLastToEnd[] = "-900";

// Refused without the right to lower it: then what was inherited stays.
void lower_oom_score() {
  const UniqueFd file(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (file.valid()) (void)!write(file.get(), kLastToEnd, sizeof(kLastToEnd) - 1);
}

int oom_score() {
  const UniqueFd file(open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC));
  char text[16] = {};
  return file.valid() && read(file.get(), text, sizeof(text) - 1) > 0 ? std::atoi(text) : 0;
}

}  // namespace

void defend_process() {
  raise_descriptor_limit();
  lower_oom_score();
  sigset_t bus;
  sigemptyset(&bus);
  sigaddset(&bus, SIGBUS);
  pthread_sigmask(SIG_UNBLOCK, &bus, nullptr);
  // Limits of file size and CPU time are errors, not the end.
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGXCPU, SIG_IGN);
}

void defend_log(const std::string& folder) {
  bound_log(&log_budgets().own);
  log_without_waiting();
  begin_log_anew(folder, limits::kLogBytes);
}

void say_limits() {
  constexpr uint32_t kForAll = 7 * limits::kClients;  // a function has seven
  if (descriptor_limit() < kForAll)
    log_warn("this proxy may have %u file descriptors (ulimit -Hn), fewer than %u functions need",
             descriptor_limit(), limits::kClients);
  if (const GroupLimit group = memory_group_limit(); group.bytes != UINT64_MAX)
    log_info(
        "control group %s limits the memory of this proxy, which holds its functions' pinned "
        "memory too, to %lu MiB",
        group.folder.c_str(), group.bytes >> 20);
  if (oom_score() > 0)
    log_info(
        "this proxy is among the first that the kernel ends when memory runs out "
        "(oom_score_adj %d)",
        oom_score());
}

}  // namespace tube::proxy
