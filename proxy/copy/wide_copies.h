// Large copies over the links of several GPUs: which copies, over how many, and all that are under
// way (docs/decisions/0016-paths.md).
//
// A copy that comes to a link (copy_link.h), has its bytes in a row and is not small is planned
// (policies/paths/multipath.h): over its own link alone, or over those of neighbours, too. In the
// latter case it is no claim of its link, but a wide copy (wide_copy.h), whose pieces are. For its
// session it is a LaneJob like any other.
//
// Copies of one function over one link hand out their pieces one after the other, in their order:
// the first one is there first, and the last pieces of one go beside the first of the next.
//
// On a neighbour's link its pieces count as those of a guest of that link: a function without needs
// there, beside which those who have them come first. While a small copy of the neighbour's own
// functions moves, either way, nothing is sent over its link, and no more over the others' than
// leaves it the host's memory; where there was one lately pieces are small and few under way,
// because these have to end first. While its large ones move, nothing goes over its link the same
// way: where all GPUs copy each keeps to its own.
//
// A proxy with one GPU has none of this.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "base/cuda_api.h"
#include "policies/paths/multipath.h"
#include "policies/paths/stand_back.h"
#include "proxy/copy/copy_link.h"
#include "proxy/copy/copy_path.h"
#include "proxy/copy/relay_buffers.h"
#include "proxy/copy/wide_copy.h"

namespace tube::proxy {

class Gpus;
class MemoryMap;
struct Driver;

class WideCopies {
 public:
  // Smaller copies are never wide. What a link serves as a small copy (policies/link_share.h) goes
  // before others' pieces there, and would lose that as pieces; nor has a copy of 16 MiB ever been
  // faster over several links (docs/performance.md).
  static constexpr uint64_t kLeastBytes = 16u << 20;

  // All outlive it. `most`: over so many links at the most; `always`: over so many whenever they
  // may be used, whatever was measured.
  struct Options {
    uint32_t most = policies::kMaxHostPaths;
    bool always = false;
    // How long a neighbour's small copies may hold others' pieces up at once (twice what one takes
    // beside them), and for how long after the last one these are small.
    uint64_t hold_ns = 1'000'000, hurry_ns = 100'000'000;
    // For how long after its own large copies a neighbour's link is left to it: the next one comes
    // soon, or none. And after how long of them others' copies do without it for good.
    uint64_t left_ns = 1'000'000, filled_ns = 4'000'000;
  };
  WideCopies(const Driver& driver, Gpus& gpus, MemoryMap& memory, PathTools::LinkOf link,
             const policies::HostLinks& links, const Options& options);
  // Nothing is under way any more.
  ~WideCopies();
  WideCopies(const WideCopies&) = delete;
  WideCopies& operator=(const WideCopies&) = delete;

  // The function's name on other GPUs' links.
  static uint64_t guest(uint64_t function) { return function | uint64_t{1} << 63; }
  static bool is_guest(uint64_t function) { return function >> 63 != 0; }

  // ---- sessions, by way of CopyLink
  // nullptr: the copy is its link's. Else it has been taken over; wake the pacing thread.
  std::shared_ptr<LaneJob> add(uint32_t gpu, bool to_gpu, LaneCopy& copy);
  // As CopyLink::take_back(): no byte of it moves when this returns.
  void take_back(LaneJob& job);

  // ---- the pacing thread, in any context
  CopyLink::Turn turn();
  // There is time: gives relay buffers back that nothing has used for a while. True: there are some
  // still.
  bool tidy();

  // Since the start. Any thread.
  struct Counts {
    uint64_t copies = 0, bytes = 0;  // over several links
    uint64_t relayed_bytes = 0;      // of these, over others' links
    uint64_t one_link = 0;           // large copies that were planned over one
    uint64_t regions = 0;            // large copies that are not bytes in a row
    uint64_t timed = 0;              // of those planned, learnt from
    uint64_t failed_paths = 0, taken_paths = 0;
    uint64_t held = 0;         // copies that stood still somewhere for neighbours' own
    uint64_t relay_bytes = 0;  // buffers at the moment
  };
  Counts counts() const;

 private:
  bool plan(uint32_t gpu, bool to_gpu, uint64_t bytes, policies::HostPlan* plan);
  uint32_t link_count() const;
  void take_stock();
  void over(const std::shared_ptr<WideCopy>& copy);
  bool filled(uint32_t gpu, policies::HostWay way, uint64_t now_ns) const;
  CopyLink::Small small_on(uint32_t gpu) const;
  bool hurry(const policies::HostPlan& plan) const;
  void look_at_small();
  void look_at_large();
  WideCopy::Lends lends(const WideCopy& copy, uint32_t gpu) const;

  Gpus& gpus_;
  const PathTools::LinkOf link_;
  const Options options_;
  RelayBuffers buffers_;
  PathTools tools_;
  std::atomic<uint32_t> lending_[policies::kHostWays] = {};  // a bit for each link that may help
  std::atomic<bool> fresh_{false};                           // something came
  uint64_t used_ns_ = 0;      // the pacing thread's: when something was under way last
  mutable std::mutex mutex_;  // before no other: links are asked without it
  std::condition_variable changed_;
  policies::Multipath paths_;
  uint64_t stock_ns_ = 0;  // when needs were looked at
  uint32_t over_one_ = 0;  // planned so, in a row
  std::list<std::shared_ptr<WideCopy>> came_;
  std::list<std::shared_ptr<WideCopy>> under_way_;  // changed by the pacing thread
  // The pacing thread's, in one turn: those under way that later ones may stand behind.
  std::vector<const WideCopy*> ahead_;
  policies::StandBack stand_back_[policies::kMaxHostLinks];
  uint32_t stood_back_for_ = 0;  // a bit for each GPU, in this turn
  // Since when their own large copies fill the links; 0: they do not.
  uint64_t filled_since_ns_[policies::kHostWays][policies::kMaxHostLinks] = {};
  Counts counts_;
};

}  // namespace tube::proxy
