#include "proxy/gpu/slow_calls.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/driver_calls.gen.h"

namespace tube::proxy {
namespace {

// An entry of the table is a plain function without room for an object: written once, before
// threads.
uint64_t g_least_ns = 0;

void tell(const char* name, uint64_t began_ns, uint64_t ended_ns) {
  char thread[16] = "";
  (void)pthread_getname_np(pthread_self(), thread, sizeof thread);
  log_warn("slow call: %s took %lu us until %lu, thread %s", name, (ended_ns - began_ns) / 1000,
           ended_ns, thread);
}

template <int kNumber, class... Arguments>
struct Watched {
  static inline CUresult (*call)(Arguments...) = nullptr;
  static inline const char* name = nullptr;

  static CUresult timed(Arguments... arguments) {
    const uint64_t began_ns = now_ns();
    const CUresult result = call(arguments...);
    const uint64_t ended_ns = now_ns();
    if (ended_ns - began_ns >= g_least_ns) tell(name, began_ns, ended_ns);
    return result;
  }
};

struct Watch {
  template <int kNumber, class... Arguments>
  void operator()(const char* name, CUresult (*&entry)(Arguments...)) const {
    using Entry = Watched<kNumber, Arguments...>;
    Entry::call = entry;
    Entry::name = name;
    entry = &Entry::timed;
  }
};

}  // namespace

void watch_slow_calls(Driver& table, uint64_t least_us) {
  g_least_ns = least_us * 1000;
  each_driver_call(table, Watch{});
}

}  // namespace tube::proxy
