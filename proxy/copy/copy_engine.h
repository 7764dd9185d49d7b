// The copy engine: the links of all GPUs and the thread that paces their lanes.
//
// The thread exists while copies go through lanes, and for a few seconds after; an idle proxy has
// none. It spins while something is in flight, naps while copies wait for their own streams, and
// sleeps otherwise.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "policies/copy_way.h"
#include "proxy/copy/copy_link.h"
#include "proxy/copy/machine_links.h"
#include "proxy/copy/wide_copies.h"
#include "sharedmem/core_offer.h"

namespace tube::proxy {

class Gpus;
class MemoryMap;

class CopyEngine {
 public:
  struct Options {
    policies::LaneUse use = policies::LaneUse::kNever;
    policies::LinkOrder order = policies::LinkOrder::kDeadlines;
    std::string links_path;  // where the proxies of this user count for each other; empty: nowhere
    std::string workflow;
    uint32_t weight = 0;  // of this proxy, for others to know
    uint32_t paths = 0;   // over how many links a copy goes: 1 one, 0 as many as pay, else so many
    bool many_cores = false;  // the thread may have one: else it offers its core at each look
  };
  // After the GPUs are open; all outlive this. `memory`: for relay buffers; nullptr: each copy goes
  // over one link. The first GPU's context is current afterwards.
  CopyEngine(const Driver& driver, Gpus& gpus, const Options& options, MemoryMap* memory = nullptr);
  // What other proxies do on their links. Any thread.
  std::vector<MachineLinks::Other> others() const {
    return machine_ != nullptr ? machine_->others() : std::vector<MachineLinks::Other>{};
  }
  // What the proxies of the machine tell each other; nullptr: nobody else is known. Any thread.
  MachineLinks* machine() { return machine_.get(); }
  // After the last session ended.
  ~CopyEngine();
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  policies::LaneUse use() const { return use_; }
  // Any thread. The link of a GPU and direction, for good.
  CopyLink& link(uint32_t gpu, bool to_gpu) { return *links_[number_of(gpu, to_gpu)]; }
  // What a function must reach over each of the links. Any thread.
  void needs(uint64_t session, const policies::FunctionNeeds& needs) {
    for (auto& link : links_) link->needs(session, needs);
  }
  // A session ended, with all its copies. Any thread.
  void forget(uint64_t session) {
    for (auto& link : links_) link->forget(session);
    if (wide_ == nullptr) return;
    for (auto& link : links_) link->forget(WideCopies::guest(session));
  }
  // Copies over several links; nullptr: there are none. Any thread.
  const WideCopies* wide() const { return wide_.get(); }
  // Whether some lane has copies. Any thread; a moment old.
  bool any_lane_busy() const {
    for (const auto& link : links_)
      if (link->lane_busy()) return true;
    return false;
  }
  // A copy was added to a lane. False: there is no thread to be had, nobody will send it. Any
  // thread.
  bool wake();
  // The same, and what the thread that paces would do first is done here while that wakes. The
  // caller is in the link's context, or nothing is.
  bool send(CopyLink& link);
  // For who waits for a copy of some lane and is awake: where the thread that paces has not looked
  // at the lanes for a while, those of the GPU whose context is current have their turns here.
  // Costs a look at the clock else. Any thread.
  void stand_in();

 private:
  static size_t number_of(uint32_t gpu, bool to_gpu) { return 2 * gpu + (to_gpu ? 1 : 0); }
  void run();
  CopyLink::Turn turns();
  void until_the_next_look(uint64_t asked);
  bool wake(bool* slept);
  std::optional<uint32_t> current_gpu() const;
  void meet(const Options& options);
  void widen(const Options& options, MemoryMap& memory);
  void look_at_others();

  const Driver& driver_;
  Gpus& gpus_;
  const policies::LaneUse use_;
  std::unique_ptr<MachineLinks> machine_;  // nullptr: nobody else is known
  // The pacing thread's: what others' links had moved when it looked last.
  uint64_t looked_ns_ = 0;
  std::map<std::pair<uint32_t, size_t>, uint64_t> seen_;  // by their slot and our link
  std::vector<CUdeviceptr> scratch_;                      // of each GPU, CopyLink::kScratchBytes
  const bool many_cores_;
  shared::CoreOffer offer_;  // the thread's
  std::vector<std::unique_ptr<CopyLink>> links_;
  std::unique_ptr<WideCopies> wide_;
  std::atomic<uint64_t> thread_looks_ns_{0};  // when it looked at the lanes last, or will next
  std::mutex mutex_;                          // leaf: what follows
  std::condition_variable changed_;
  std::thread thread_;
  bool runs_ = false;
  bool sleeps_ = false;
  bool stop_ = false;
  std::atomic<uint64_t> asked_{0};  // changes under the lock
};

}  // namespace tube::proxy
