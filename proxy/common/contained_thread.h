// A thread of the proxy's own, for as long as the proxy runs: it has a name, and what it throws
// ends one turn of it (contained.h).
#pragma once

#include <pthread.h>

#include <thread>
#include <utility>

#include "proxy/common/contained.h"

namespace tube::proxy {

// `run` on a thread, again whenever it throws, until it returns. `name`: of at most 15 letters;
// `what` completes "... failed". Both stay where they are. Not joinable: there is no thread, which
// has been logged. Whoever owns it tells `run` to return, and joins.
template <class Run>
[[nodiscard]] std::thread contained_thread(const char* name, const char* what, Run run) {
  std::thread thread;
  (void)contained(what, [&] {
    thread = std::thread([name, what, run = std::move(run)] {
      pthread_setname_np(pthread_self(), name);
      while (!contained(what, run)) {
      }
    });
  });
  return thread;
}

}  // namespace tube::proxy
