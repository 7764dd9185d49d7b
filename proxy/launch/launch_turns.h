// Turns for long launches on each GPU (policies/launch_admission.h), and how their ends are seen.
//
// Behind each long launch the session records an event. Who looks whether it has happened are the
// sessions whose launches are held: the one that is next looks without pause where cores are free,
// the others now and then (session/long_launches.h). There is no thread, and while nothing is held
// nobody looks but the next long launch.
//
// Turns belong to all long launches of all functions, so a lock guards each GPU's. It is a leaf; in
// it are event queries, a few hundred nanoseconds each. A launch that is not long never comes here.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "base/cuda_api.h"
#include "policies/launch_admission.h"
#include "policies/proxy_shares.h"
#include "proxy/gpu/quiet_moments.h"
#include "proxy/launch/asked_word.h"
#include "proxy/launch/step_times.h"

namespace tube::proxy {

struct Driver;
class Gpus;
class MachineLinks;

// Two events of a GPU's shared context, around work on one stream.
struct TimedWork {
  CUevent begin = nullptr, end = nullptr;
};

// A long launch's turn.
class LaunchTurn {
 public:
  bool granted() const { return granted_.load(std::memory_order_acquire); }

 private:
  friend class LaunchTurns;
  uint32_t gpu_ = 0;
  uint64_t number_ = 0;
  uint64_t function_ = 0;
  bool quiet_ = false;
  std::atomic<bool> granted_{false};
  std::shared_ptr<TimedWork> work_;  // once it is submitted
  std::function<void()> told_;
};

// A session, as the turns know it. What it points at stays until leave().
struct LaunchUser {
  uint64_t session = 0;
  const std::atomic<uint64_t>* records = nullptr;  // it executed: whether it uses the GPUs
  const AskedWord* word = nullptr;                 // whether work of it is outstanding
  const StepTimes* steps = nullptr;
  uint64_t slo_ns = 0;  // 0: none
};

class LaunchTurns final : public QuietMoments {
 public:
  struct Options {
    policies::LaunchOrder order = policies::LaunchOrder::kFeedback;
    uint64_t longest_hold_ns = 100'000'000;
    uint64_t long_ns = 1'000'000;              // 0: every launch is long
    uint32_t weight = policies::kProxyWeight;  // of this proxy among those of its GPUs
  };
  // All outlive it.
  LaunchTurns(const Driver& driver, Gpus& gpus, const Options& options);
  // After the last session ended.
  ~LaunchTurns();
  LaunchTurns(const LaunchTurns&) = delete;
  LaunchTurns& operator=(const LaunchTurns&) = delete;

  policies::LaunchOrder order() const { return options_.order; }
  uint32_t weight() const { return options_.weight; }
  // Where the proxies of the machine tell each other what they use; nullptr: nowhere. Before the
  // first session.
  void meet(MachineLinks* machine) { machine_ = machine; }
  // A session came. Behind leave() none of its launches waits. Any thread.
  void join(const LaunchUser& user);
  void leave(uint64_t session);
  // The session's kernels run on multiprocessors of this GPU that are its alone, or no more: it is
  // in nobody's way there, and nobody in its. Any thread.
  void set_apart(uint64_t session, uint32_t gpu, bool apart);

  // ---- the sessions
  // From how long on a launch must ask.
  uint64_t long_ns() const { return long_ns_.load(std::memory_order_relaxed); }
  // Whether a kernel of so many blocks keeps others' blocks waiting: what fits into half of the
  // GPU at one block a multiprocessor is dealt out at once.
  bool fills(uint32_t gpu, uint64_t blocks) const {
    return blocks * 2 > gpus_of_[gpu]->sms || options_.long_ns == 0;
  }
  // Its number is given here. `told`: the turn came, on another session's thread and under the
  // lock: must not call back.
  std::shared_ptr<LaunchTurn> ask(uint32_t gpu, const policies::LongLaunch& launch,
                                  std::function<void()> told);
  // The launch is submitted, with these events around it.
  void started(LaunchTurn& turn, std::shared_ptr<TimedWork> work);
  // It is not made, or nobody can see its end.
  void drop(LaunchTurn& turn);
  // Takes note of what has ended and gives the turns that are due. Whether the turn is the next
  // one.
  bool look(LaunchTurn& turn);
  // Whether a long launch of another function is in flight.
  bool beside(uint32_t gpu, uint64_t session);
  // The same, or waits.
  bool others(uint32_t gpu, uint64_t session);

  // Two events to record, back to the pool with the last reference. nullptr: the driver has none.
  // The GPU's context is current.
  std::shared_ptr<TimedWork> work(uint32_t gpu);
  bool ended(const TimedWork& work) const;
  // 0: unknown. It has ended.
  uint64_t took_ns(const TimedWork& work) const;

  // A moment without long launches, for a call that needs the whole context idle. Stands for it as
  // long as a hold may last. Any thread.
  std::unique_ptr<Moment> quiet(uint64_t owner, CUdevice device) override;

  // What is in flight on a GPU, then what waits. Any thread.
  std::vector<policies::LaunchSeen> seen(uint32_t gpu);
  // What a function got on all GPUs. Any thread.
  policies::LaunchUse use(uint64_t session);

 private:
  struct OneGpu {
    explicit OneGpu(const policies::LaunchAdmission::Options& options) : admission(options) {}
    uint64_t sms = 1;
    uint64_t bit = 1;  // User::apart
    uint32_t index = 0;
    std::mutex mutex;  // leaf: until `spare_mutex`
    policies::LaunchAdmission admission;
    policies::ProxyShares shares{{}};
    uint64_t running = 0;                            // long launches in flight, as others are told
    uint64_t looked_ns = 0;                          // at other proxies
    bool others_want = false;                        // some of them did then
    std::vector<std::shared_ptr<LaunchTurn>> turns;  // that wait or are in flight
    std::mutex spare_mutex;                          // leaf: the next one
    std::vector<TimedWork> spare;
    size_t made = 0;  // at most so many can be given back
  };
  class QuietTurn;
  // A session, and when it last did something.
  struct User : LaunchUser {
    uint64_t seen = 0;
    uint64_t active_ns = 0;
    uint64_t apart = 0;  // bit per GPU
  };

  bool shared(uint64_t session, uint32_t gpu, uint64_t now);
  bool knows(uint64_t session);
  policies::ShortWork short_work(const OneGpu& gpu, uint64_t now);
  void go_on(OneGpu& gpu, uint64_t now, bool shared);
  void look_at_proxies(OneGpu& gpu, uint64_t now);
  void tell_proxies(OneGpu& gpu);
  void note_threshold();

  const Driver& driver_;
  Gpus& gpus_;
  const Options options_;
  MachineLinks* machine_ = nullptr;
  std::vector<std::unique_ptr<OneGpu>> gpus_of_;
  std::atomic<uint64_t> long_ns_{0};
  std::atomic<uint64_t> made_{0};
  std::mutex users_mutex_;  // leaf: what follows
  std::vector<User> users_;
  uint64_t counted_ns_ = 0;  // when their records were looked at
};

}  // namespace tube::proxy
