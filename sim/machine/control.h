// How a test looks at the copy engines (copy_engines.h) and moves their clock. These are the only
// names beside the driver's that the library exports. Any thread may ask; one at a time moves the
// clock. All of them need cuInit, and answer 0 where there are no engines.
//
// Another process than the one with the GPU, such as the test of a proxy, says the same in lines of
// text on the socket that TUBE_SIM_CONTROL names (sim/README.md).
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// A copy that an engine served; nanoseconds of the clock, or of the host where there is none.
struct TubeSimCopy {
  uint64_t context;  // a number that differs between contexts
  uint64_t stream;   // cuStreamGetId; of a graph's node: that of the launch
  uint64_t bytes;
  uint64_t ready_ns, begin_ns, end_ns;
  int device;
  int up;  // 1: to the device, 0: from it
};

uint64_t tube_sim_now(void);
// From now on copies end in the two calls below only. Returns when no bytes are moving.
void tube_sim_hold(int on);
// Ends the next copy, and returns when the events, words and copies that follow at once are done or
// on their way; 0: no copy is in hand. Only while held.
int tube_sim_step(void);
// Ends all copies that end until then, and lets it be then. Only while held, with the clock.
void tube_sim_advance_to(uint64_t ns);
// Copies that are ready or in hand; device -1: of all engines.
size_t tube_sim_pending(int device, int up);
// Returns when all engines together have so many.
void tube_sim_wait_for_pending(size_t count);
// Fills in up to `room` of those that ended behind the first `from`; answers how many have ended.
// 65,536 are remembered.
size_t tube_sim_served(size_t from, struct TubeSimCopy* copies, size_t room);
}

namespace tube::sim {

// Answers on the socket that the environment names, from a thread of its own; once a process.
void serve_control();

}  // namespace tube::sim
