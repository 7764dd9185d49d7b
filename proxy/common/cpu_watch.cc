#include "proxy/common/cpu_watch.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/cores.h"

namespace tube::proxy {

void CpuWatch::begin(int pid) {
  pid_ = pid;
  clockid_t clock = 0;
  if (pthread_getcpuclockid(pthread_self(), &clock) != 0) return;
  clock_.store(clock, std::memory_order_relaxed);
  begun_.store(true, std::memory_order_release);
}

uint64_t CpuWatch::used_ns() const {
  timespec time{};
  if (!begun_.load(std::memory_order_acquire) ||
      clock_gettime(clock_.load(std::memory_order_relaxed), &time) != 0)
    return 0;
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

uint64_t CpuWatch::look(uint64_t records, uint32_t awake, bool alone) {
  const uint64_t now = now_ns();
  next_ = records + kRecords;
  if (asked_ns_ == 0 || now - asked_ns_ >= kQuotaNs) {
    asked_ns_ = now;
    cores_ = usable_cores();
    const uint32_t quota = quota_of_process(pid_);
    share_.store(quota < policies::kWholeCore ? quota : 0, std::memory_order_relaxed);
  }
  if (share() == 0) next_ = records + kRecordsWithout;
  return policy_.look({now, used_ns(), share(), policies::others_want_cores(cores_, awake, alone)});
}

}  // namespace tube::proxy
