// Shared segments made before they are needed, so that a function that starts waits for no pages
// and no driver call.
//
// A segment takes 14 MiB of zeroed pages and a registration with the driver: 2 to 5 ms, most of
// what attaching cost. A thread of its own keeps some ready. How many follows demand: a function
// that finds none doubles the number, up to kMostSpares; a minute in which nobody came halves it,
// down to the configured one. Where a spare cannot be made (memory, the driver), the function that
// wants one makes its own and gets the error in words.
//
// A segment comes back when its function is surely gone (sharedmem/life_lock.h; forked children do
// not inherit the mapping), is wiped and used again. That is not for the pages: unregistering them
// would make all other functions stand still (docs/decisions/0009-context-gate.md). So segments
// beyond the target are given back to the driver when no function is there, and before that only
// those beyond limits::kKeptSegmentBytes, the large ones first. A segment that must not be used
// again is old at once. When there are more old segments than that, they are given back without
// waiting for a better moment. If they cannot be given back, no new function gets a segment beyond
// limits::kOldSegmentBytes of them.
//
// Giving one back to the driver may wait for the whole context: only drop_old() does it, which is
// the janitor's (janitor.h). Everything else here may be called by the server's thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

#include "base/cuda_api.h"
#include "base/result.h"
#include "proxy/common/client_limits.h"
#include "proxy/gpu/registrations.h"
#include "sharedmem/segment.h"

namespace tube::proxy {

struct Driver;
class Gpus;
class HostBudget;

// A segment whose first part is registered; its new owner unregisters it.
struct PreparedSegment {
  shared::Segment segment;
  CUdeviceptr registered = 0;  // device address of segment.registered()
  bool more_chunks = false;    // they are there and registered as well
};

// The segment's later chunks, each a registration of its own, all or none, ahead of need
// (proxy/gpu/registrations.h). Their memory is there. A thread of the proxy's own with a context of
// the GPU's. `owner`: the session.
CUresult register_more_chunks(const Driver& driver, const shared::Segment& segment,
                              Registrations* registrations = nullptr, uint64_t owner = 0);
// Waits for the whole context, as each unregistration does.
void unregister_more_chunks(const Driver& driver, const shared::Segment& segment,
                            Registrations* registrations = nullptr);

class SpareSegments {
 public:
  static constexpr uint32_t kMostSpares = 16;

  // `fewest`: kept at all times; 0 keeps none. `something_old` says that there is something for
  // drop_old(), or too much: any thread, without the lock.
  SpareSegments(const Driver& driver, Gpus& gpus, uint32_t fewest,
                std::function<void(bool too_many)> something_old = {},
                uint64_t most_old_bytes = limits::kOldSegmentBytes);
  // close() and drop_old(). Before the GPUs close.
  ~SpareSegments();
  SpareSegments(const SpareSegments&) = delete;
  SpareSegments& operator=(const SpareSegments&) = delete;

  // What counts the segments' pages; before any.
  void count_in(HostBudget* host) { host_ = host; }
  HostBudget* host() const { return host_; }
  void start();
  // A spare, or one made now on this thread, in the first GPU's context; an error when too much is
  // old. Any thread.
  Result<PreparedSegment> take(uint64_t session_id);
  // A segment whose function is gone. Still the caller's when this throws. Any thread.
  void give_back(PreparedSegment&& used);
  // One that must not be used again: somebody may still have it mapped. Any thread.
  void retire(PreparedSegment&& used);
  // What is beyond the target is old from now on. When no function is there. Any thread.
  void trim();
  // Ends the thread; all are old. Waits for the segment that is being made.
  void close();
  // Gives the old ones back to the driver: waits for the whole context, and leaves the first GPU's
  // current.
  void drop_old();
  struct Counts {
    uint32_t segments = 0;  // ready or on their way to be so
    uint32_t ready = 0;
    bool settled = true;  // none is being made or given back to the driver: their files and
                          // mappings are those of `segments`
    bool operator==(const Counts&) const = default;
  };
  Counts counts() const;

  // Makes one. The first GPU's context must be current.
  static Result<PreparedSegment> make(const Driver& driver, uint64_t session_id,
                                      Registrations* registrations = nullptr,
                                      Registrations::Need need = Registrations::Need::kNow);

 private:
  void run();
  void make_one(std::unique_lock<std::mutex>& lock);
  void bound();
  bool too_many_old() const;
  Result<PreparedSegment> make_counted(uint64_t session_id, Registrations::Need need);
  bool clean_one(std::unique_lock<std::mutex>& lock);

  const Driver& driver_;
  Gpus& gpus_;
  const uint32_t fewest_;
  const std::function<void(bool too_many)> something_old_;
  const uint64_t most_old_bytes_;
  HostBudget* host_ = nullptr;
  mutable std::mutex mutex_;  // rank 15: the members below
  std::condition_variable wanted_;
  // From one to another they go with their nodes: no memory is needed for it, and none that is
  // registered is ever lost.
  std::list<PreparedSegment> ready_;
  std::list<PreparedSegment> used_;  // not yet wiped
  std::list<PreparedSegment> old_;   // wait for drop_old()
  uint64_t wiping_bytes_ = 0;
  uint32_t wiping_ = 0;
  uint32_t unsettled_ = 0;  // of the thread's make() and of drop_old(), which are under way
  uint32_t target_;
  bool failed_ = false;  // the last one could not be made: not again before somebody asks
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tube::proxy
