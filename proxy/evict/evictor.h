// Who waits for GPU memory, and who is asked to move his to the host for it.
//
// Requests of a GPU stand in a queue: allocations that found no memory, and functions whose own
// memory is away and that have work. Only the first one takes memory and has others asked.
//
// Who waits has an age, from the begin of its wait to its end, whatever it waits for meanwhile: a
// function that returns to several GPUs keeps its age from the first one to the last (Standing).
// Queues are in order of age, and who waits can be asked itself, but only for those before it. So
// of all who wait, on whatever GPU, the oldest one gets what it needs and keeps what it has: two
// that need each other's memory never both hold half of it for good. A request for a return that
// gets nothing for a quarter of a second, while others wait, becomes the youngest of all; what it
// has so far is then others' to ask for.
//
// Who is asked decides policies/memory/eviction.h. Asking is a mark and a wake-up: the session of
// the asked function does the work itself, on its thread, when nothing of the function is
// outstanding (proxy/evict/residency.h). So no memory ever moves beside its function's records, and
// no thread of a session waits for another one's but in a request of its own. A session that cannot
// says until when it is not to be asked.
//
// An allocation waits for a bounded time, a return for as long as its client lives: its launch has
// been accepted. Neither holds a lock or the context gate meanwhile.
//
// Any thread. `mutex_` is a leaf.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "policies/memory/eviction.h"
#include "policies/memory/host_ahead.h"
#include "protocol/device_info.h"
#include "proxy/memory/host_arena.h"
#include "proxy/memory/memory_budgets.h"

namespace tube::proxy {

class BlockPool;
class MemoryMap;
struct Driver;

class Evictor {
 public:
  struct Options {
    policies::EvictionOrder order = policies::EvictionOrder::kQueue;
    uint64_t host_bytes = 0;  // that hold moved memory; 0: none moves
    uint64_t wait_ns = 2'000'000'000;
    uint64_t idle_ns = 0;  // ask_idle(): without a record for so long; 0: nobody
  };

  // A function.
  class Member {
   public:
    Member(uint64_t session, int pid, std::string name, std::shared_ptr<MemoryAccount> account,
           std::function<void()> wake)
        : session_(session),
          pid_(pid),
          name_(std::move(name)),
          account_(std::move(account)),
          wake_(std::move(wake)) {}
    bool asked() const { return asked_.load(std::memory_order_relaxed); }

   private:
    friend class Evictor;
    const uint64_t session_;
    const int pid_;
    const std::string name_;
    const std::shared_ptr<MemoryAccount> account_;
    const std::function<void()> wake_;
    std::atomic<bool> asked_{false};
    // The evictor's mutex_:
    std::map<uint32_t, uint64_t> wanted_;  // bytes, by GPU
    uint64_t not_before_ns_ = 0;
    uint64_t idle_again_ns_ = 0;  // it is not asked for its idleness before
    uint64_t age_ = 0;            // of its wait, the lower the older; 0: it does not wait
    // Of its own, because it is written whenever the session sleeps and wakes.
    mutable std::mutex turns_mutex_;  // leaf: the next one
    policies::Turns turns_;
  };

  // A move that was made.
  struct Move {
    uint64_t at_ns = 0;
    int pid = 0;
    std::string name;
    uint32_t gpu = 0;
    uint64_t bytes = 0;
    uint64_t took_ns = 0;
    bool to_gpu = false;
    std::string why;
  };
  struct Counts {
    uint64_t evictions = 0, evicted_bytes = 0;
    uint64_t returns = 0, returned_bytes = 0;
    uint64_t waited = 0, refused = 0;  // allocations that waited; of these, in vain
    uint32_t waiting = 0;              // now
  };

  // All outlive it.
  Evictor(const Driver& driver, MemoryMap& map, BlockPool& pool, HostArena& arena,
          const Options& options);
  Evictor(const Evictor&) = delete;
  Evictor& operator=(const Evictor&) = delete;

  bool on() const { return options_.host_bytes != 0; }
  const Options& options() const { return options_; }
  BlockPool& pool() { return pool_; }
  HostArena& arena() { return arena_; }

  // `wake` makes the session look at asked(): any thread, until leave().
  std::shared_ptr<Member> join(uint64_t session, int pid, std::string name,
                               std::shared_ptr<MemoryAccount> account, std::function<void()> wake);
  void leave(Member& member);

  // ---- the member's session
  // While there is one, the member waits, with an age from the outermost one's begin.
  class [[nodiscard]] Standing {
   public:
    Standing(Evictor& evictor, Member& who);
    Standing(const Standing&) = delete;
    Standing& operator=(const Standing&) = delete;
    ~Standing();

   private:
    Evictor& evictor_;
    Member* who_;  // nullptr: it waited already
  };
  // Whether it is at work, for the order of evictions.
  void at_work(Member& member, bool works, uint64_t now_ns);
  struct Wanted {
    uint32_t gpu = 0;
    uint64_t bytes = 0;
    std::string why;    // "for" somebody, or its own idleness
    bool idle = false;  // the latter: only if it still is
  };
  // What it is asked for. Nothing: nobody wants it any more.
  std::optional<Wanted> wanted(Member& member);
  // It has moved what it was asked for, or cannot; `until_ns`: it is not to be asked again before,
  // for its idleness, or by others.
  void answered(Member& member, const Wanted& wanted, uint64_t until_ns);
  // It moves memory off the GPU until `moves` is false: nobody who waits gives up meanwhile.
  void moving(uint32_t gpu, bool moves);
  // Some memory is free.
  void progress();
  void note(const Member& member, uint32_t gpu, uint64_t bytes, uint64_t took_ns, bool to_gpu,
            std::string why);

  struct Caller {
    std::function<bool()> make_current;  // the GPU's context; false: it is over
    std::function<uint64_t()> bytes;     // that are missing still, at most
    std::function<bool()> again;         // takes what there is; true: the request is served
    std::function<void()> serve;         // what the caller itself is asked for, on any GPU
    std::function<void()> last_resort;   // called when no function has memory to give
    std::function<bool()> stop;          // nobody waits for the answer any more
  };
  enum class End : uint8_t { kServed, kRefused, kStopped };
  // Waits in `who`'s session until again() is true. kRefused: all that others could move is not
  // enough, there is no room on the host, or time is over (`wait_ns` while nothing moves;
  // kMovingWaits times that altogether).
  End request(Member& who, uint32_t gpu, bool allocation, const Caller& caller);
  // Asks functions that have sent nothing for a while for all their memory. The host keeps room for
  // as much as any function may come to hold, `most_held` (of a GPU that has so much, by the
  // limits): what others take meanwhile asks nobody, as there is room on the GPU, and who comes
  // back must be able to change places with them. Any thread.
  void ask_idle(std::span<const uint64_t> gpu_bytes);
  // How many functions there are.
  uint32_t functions() const;
  // What functions hold of a GPU that has so much. Asks no driver.
  policies::HostAheadGpu outlook(uint32_t gpu, uint64_t total_bytes) const;
  // Told when functions come or go; before any does.
  void on_functions(std::function<void()> changed) { functions_changed_ = std::move(changed); }
  // Whether nobody else has memory on the GPU that could move.
  bool alone(const Member& who, uint32_t gpu) const;

  // ---- looking
  Counts counts() const;
  // The last ones, the newest last.
  std::vector<Move> history() const;

 private:
  static constexpr size_t kHistory = 64;
  static constexpr uint64_t kMovingWaits = 10;
  struct Ticket {
    Member* who;
    uint64_t first_ns = 0;  // since when it is the first; 0: it is not
    // The session's alone: what is missing, and when that became less.
    uint64_t missing_bytes = UINT64_MAX;
    uint64_t gained_ns = 0;
  };

  struct Others {
    std::vector<policies::EvictionCandidate> able;
    uint64_t movable = 0;
    uint64_t largest = 0;  // what the function holds that holds most
  };
  std::vector<std::shared_ptr<Member>> members() const;
  // What the function could move: what is there, and what has never been made.
  struct Movable {
    uint64_t there = 0, promised = 0;
  };
  Movable movable(const Member& member, uint32_t gpu) const;
  // `patient`: those who will be quiet in a moment are among them.
  Others others(const Member& who, uint32_t gpu, bool patient) const;
  uint64_t room(uint32_t gpu, bool anew);
  enum class Ask : uint8_t { kAhead, kRefused };  // before anything was tried; after that failed
  bool ask(const Ticket& ticket, uint32_t gpu, bool allocation, uint64_t bytes, Ask when);
  bool still(uint32_t gpu, uint64_t seen) const;
  bool too_long(uint32_t gpu, uint64_t waited_ns) const;
  void ask_idle(const std::shared_ptr<Member>& member, uint32_t gpu, uint64_t most_held);
  void want(Member& member, uint32_t gpu, uint64_t bytes);
  void line_up(uint32_t gpu, Ticket& ticket);
  bool is_first(uint32_t gpu, Ticket& ticket);
  void rotate(uint32_t gpu, Ticket& ticket);
  void withdraw(uint32_t gpu);
  void quit(uint32_t gpu, Ticket& ticket);

  const Driver& driver_;
  MemoryMap& map_;
  BlockPool& pool_;
  HostArena& arena_;
  const Options options_;
  std::function<void()> functions_changed_;
  mutable std::mutex mutex_;  // the members below
  std::condition_variable changed_;
  uint64_t changes_ = 0;
  uint64_t ages_ = 0;
  std::vector<std::shared_ptr<Member>> members_;
  std::array<std::deque<Ticket*>, info::kMaxDevices> queues_;  // the oldest first
  std::array<uint32_t, info::kMaxDevices> moving_{};  // members that move memory off the GPU
  Counts counts_;
  std::deque<Move> history_;
  // What the driver said that a GPU has free, and what this proxy held of it then. It is asked
  // seldom: while memory moves its answer takes milliseconds, in which it serves nobody else.
  struct Free {
    uint64_t asked_ns = 0, bytes = 0, held = 0;
  };
  std::array<Free, info::kMaxDevices> free_{};
};

}  // namespace tube::proxy
