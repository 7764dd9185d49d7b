#include "sim/machine/control.h"

#include "sim/machine/copy_engines.h"
#include "sim/machine/state.h"

using namespace tube::sim;

namespace {

CopyEngines* engines() { return initialized() ? state().copy_engines.get() : nullptr; }

TubeSimCopy plain(const ServedCopy& c) {
  return {c.context,  c.stream, c.transfer.bytes,  c.ready_ns,
          c.begin_ns, c.end_ns, c.transfer.device, c.transfer.up ? 1 : 0};
}

}  // namespace

SIM_API uint64_t tube_sim_now(void) {
  if (engines() == nullptr) return 0;
  Lock lock(state().mutex);
  return engines()->now();
}

SIM_API void tube_sim_hold(int on) {
  if (engines() == nullptr) return;
  Lock lock(state().mutex);
  engines()->hold(lock, on != 0);
}

SIM_API int tube_sim_step(void) {
  if (engines() == nullptr) return 0;
  Lock lock(state().mutex);
  return engines()->held() && engines()->step(lock) ? 1 : 0;
}

SIM_API void tube_sim_advance_to(uint64_t ns) {
  if (engines() == nullptr) return;
  Lock lock(state().mutex);
  if (engines()->held() && engines()->has_clock()) engines()->advance_to(lock, ns);
}

SIM_API size_t tube_sim_pending(int device, int up) {
  if (engines() == nullptr) return 0;
  Lock lock(state().mutex);
  return device < 0 ? engines()->pending() : engines()->pending(device, up != 0);
}

SIM_API void tube_sim_wait_for_pending(size_t count) {
  if (engines() == nullptr) return;
  Lock lock(state().mutex);
  engines()->wait_for_pending(lock, count);
}

SIM_API size_t tube_sim_served(size_t from, TubeSimCopy* copies, size_t room) {
  if (engines() == nullptr) return 0;
  Lock lock(state().mutex);
  const auto& kept = engines()->served();
  const size_t ended = engines()->ended(), forgotten = ended - kept.size();
  for (size_t i = 0; i < room && from + i < ended; ++i)
    copies[i] = from + i < forgotten ? TubeSimCopy{} : plain(kept[from + i - forgotten]);
  return ended;
}
