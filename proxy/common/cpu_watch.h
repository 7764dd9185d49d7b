// What a session's thread uses of a core, against its function's quota (policies/cpu_share.h).
//
// The loop of the session asks due() after each record, one compare. Each kRecords records of a
// function with a quota the thread's clock is read (some 300 ns, as long as a record); of one
// without, each kRecordsWithout. The quota is its control groups' own, read anew when a second has
// passed; it may change while the function runs. The session's thread; used_ns(), share() and
// rested_ns(): any.
#pragma once

#include <ctime>

#include <atomic>
#include <cstdint>

#include "policies/cpu_share.h"

namespace tube::proxy {

class CpuWatch {
 public:
  // The session's thread, before its first record.
  void begin(int pid);
  bool due(uint64_t records) const { return records >= next_; }
  // How long to rest now; 0: not at all. `awake`, `alone`: of Activity.
  uint64_t look(uint64_t records, uint32_t awake, bool alone);
  void rested(uint64_t ns) { rested_ns_.fetch_add(ns, std::memory_order_relaxed); }

  // CPU time of the thread; 0 before it has begun and when it has ended.
  uint64_t used_ns() const;
  // In thousandths of a core; 0: it has no quota, as far as is known.
  uint32_t share() const { return share_.load(std::memory_order_relaxed); }
  uint64_t rested_ns() const { return rested_ns_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kRecords = 64, kRecordsWithout = 16'384;
  static constexpr uint64_t kQuotaNs = 1'000'000'000;

  int pid_ = 0;
  uint64_t next_ = kRecords * 16;
  uint64_t asked_ns_ = 0;
  uint32_t cores_ = 1;
  policies::CpuShare policy_;
  std::atomic<clockid_t> clock_{0};
  std::atomic<bool> begun_{false};
  std::atomic<uint32_t> share_{0};
  std::atomic<uint64_t> rested_ns_{0};
};

}  // namespace tube::proxy
