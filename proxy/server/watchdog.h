// Tells who makes no progress: a session's thread that stands in one call, the server's thread that
// stands in one round, work of a function that the GPU does not get on with.
//
// A thread of its own looks a few times within the limit, as long as there are functions, and only
// reads counts that are kept anyway. It ends nothing: what keeps others waiting for its program is
// ended by gate_watch.cc, when that is asked for. It takes no lock that the server's thread could
// stand behind, and waits for none.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "policies/progress.h"

namespace tube::proxy {

class Watchdog {
 public:
  struct Subject {
    policies::Progress progress;
    std::string who;   // "function 'x' (pid 7)"
    std::string what;  // "its thread is in cuModuleLoadData"
  };
  // False: cannot be looked at now. Adds all subjects; any thread but its own may hold what it
  // tries to take.
  using Gather = std::function<bool(std::vector<Subject>&)>;

  Watchdog(uint64_t limit_ns, Gather gather);
  ~Watchdog() { close(); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // The server's thread: between these it is in a round.
  void round_begins(uint64_t now_ns) { round_ns_.store(now_ns, std::memory_order_relaxed); }
  void round_ends() { round_ns_.store(0, std::memory_order_relaxed); }
  // There is something to watch: the thread starts, or looks again.
  void wake();
  void close();

  struct Standing {
    std::string who, what;
    uint64_t since_ns = 0;
  };
  // Those that stall, as of the last look. Any thread.
  std::vector<Standing> standing() const;

 private:
  void run();
  bool look();

  const uint64_t limit_ns_;
  const Gather gather_;
  std::atomic<uint64_t> round_ns_{0};
  policies::ProgressWatch functions_, server_;  // the thread's own
  mutable std::mutex mutex_;                    // leaf: what follows
  std::condition_variable changed_;
  std::vector<Standing> standing_;
  bool awake_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace tube::proxy
