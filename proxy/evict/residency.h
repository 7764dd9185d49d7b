// Whether the client's memory is on the GPUs: its session moves it to the host when others need the
// room (proxy/evict/evictor.h), and brings it back before the next record that may reach it.
//
// All of this happens on the session's thread, between two records:
//
//   asked      the client is at rest when no work of it is outstanding, no record is kept back and
//              nothing is captured. Then blocks move, as many as are wanted: each is copied, then
//              unmapped and given back, and its address stays. A client that does not come to rest
//              is stopped for up to kDrainNs once it has had its time; records wait in the ring.
//   a record   that may reach GPU memory, while some is away: first all blocks come back. Records
//              that only ask, mark a stream, or end something need none (works_away()).
//   an allocation that finds no memory waits here, and so may be asked itself meanwhile.
//   promises    (lazy_blocks.h) are backed before a record that may reach memory, too: all of them,
//               so that no pointer has to be found. The driver may refuse what was promised (other
//               processes on the GPU, fragments): then idle memory, kept code and others' memory
//               make room, for as long as an allocation waits; in the end this client alone is told
//               the driver's code, and gets it from every call from then on.
//
// A block is on the GPU with its bytes, or away with them in host memory, at every moment in which
// anybody looks, so whatever fails half-way leaves nothing to undo. Costs while nothing is short: a
// test of asked() and of lacks() with each record.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda_api.h"
#include "protocol/wire.gen.h"
#include "proxy/evict/block_moves.h"
#include "proxy/evict/evictor.h"
#include "proxy/evict/lazy_blocks.h"
#include "proxy/evict/record_reach.h"

namespace tube::proxy {

class BlockOffers;

class Residency {
 public:
  static constexpr uint64_t kDrainNs = 50'000'000;

  // Of its session.
  struct Hooks {
    std::function<bool()> at_rest;   // nothing of the client is outstanding
    std::function<bool()> go_on;     // what is kept back may go on now
    std::function<bool()> captures;  // it captures: it will not come to rest soon
    std::function<bool()> stop;      // the client is gone
    std::function<bool()> has_record;
    std::function<CUresult(uint32_t gpu)> make_current;
    std::function<bool(uint32_t gpu)> drop_code;  // kept code goes; false: there was none
    // Objects of the store go until about so much is free, and `take` is called behind each.
    std::function<CUresult(uint32_t gpu, uint64_t bytes, const std::function<CUresult()>& take)>
        move_objects;
    // The client's context on the GPU is over: each of its calls answers so.
    std::function<void(uint32_t gpu, CUresult error)> fail;
    RecordReach::Host host;
    // Waits for the client's work for a while; the kernels that still run then.
    std::function<std::vector<std::string>()> settle;
  };
  struct Client {
    uint64_t session = 0;
    int pid = 0;
    std::string name;
    std::shared_ptr<MemoryAccount> account;
    std::function<void()> wake;
  };
  struct Counts {
    std::atomic<uint64_t> evicted_bytes{0}, returned_bytes{0};
    std::atomic<uint64_t> returns{0};
    std::atomic<uint64_t> stalled_ns{0}, longest_ns{0};  // before records, until memory was back
    std::atomic<uint64_t> departures{0};                 // memory is not backed by address any more
  };

  Residency(const Driver& driver, MemoryMap& map, Hooks hooks)
      : driver_(driver),
        map_(map),
        hooks_(std::move(hooks)),
        lazy_(map, hooks_.at_rest),
        reach_(hooks_.host) {}
  // `evictor` nullptr, or one that is off: nothing ever moves. `gpus`: how many there are.
  // `pool` nullptr: there is none.
  void open(Evictor* evictor, BlockPool* pool, CopyEngine* engine, Client client,
            BlockOffers* offers, uint32_t gpus);
  // Nobody asks any more.
  void close();

  bool on() const { return member_ != nullptr; }
  bool asked() const { return member_ != nullptr && member_->asked(); }
  bool away() const { return away_; }
  // The session waits for memory here. Any thread.
  bool waits() const { return waits_.load(std::memory_order_relaxed); }
  // Whether records may have to wait: before().
  bool lacks() const { return away_ || lazy_.waits() || lazy_.by_address(); }
  LazyBlocks& lazy() { return lazy_; }
  const LazyBlocks& lazy() const { return lazy_; }
  // All that the record may reach is on its GPU afterwards. Another GPU's context may be current.
  CUresult before(wire::Call call, std::span<const std::byte> payload);
  // The function is not known to be safe any more, if it was: `why` is logged.
  void back_at_once(const char* why);

  // The session is about to sleep for want of records, or woke.
  void sleeps(uint64_t now_ns);
  void woke(uint64_t now_ns);
  // Somebody asks. True: memory has moved.
  bool serve();
  // The same while a record is executed: nothing else of the client goes on meanwhile, so memory
  // leaves only if the client is at rest already.
  void serve_within();
  // All memory of the client back on its GPUs. Waits for others' to go as long as the client lives;
  // then, and when the driver fails, an error.
  CUresult come_back();
  // `take` asks the driver for memory of which there was none; again as others' memory goes. The
  // last answer of `take`.
  CUresult make_room(uint32_t gpu, uint64_t bytes, const std::function<CUresult()>& take);

  // The block is one piece of the driver's memory afterwards, as handing it on needs (IPC), by way
  // of the host. Waits until nothing of the client is outstanding, as long as an allocation waits;
  // then CUDA_ERROR_OUT_OF_MEMORY, as without room.
  CUresult unite(BlockId block);

  // From now on nothing is backed while work runs that could reach it by another way, so that no
  // later record hides what that way misses. Not for neighbours: it waits for the GPU.
  void set_profiled() {
    profiled_ = true;
    lazy_.set_profiled();
  }
  // Kernels that did not end while that was waited for.
  const std::vector<std::string>& unsure() const { return unsure_; }

  const Counts& counts() const { return counts_; }

 private:
  struct Leaving {
    MemoryMap::Movable block;
    MemoryMap::Copies copies;
  };
  bool needs_none(wire::Call call, std::span<const std::byte> payload);
  uint64_t quiet_ns(uint64_t now_ns) const;
  bool drain(uint64_t end_ns, bool within_record);
  void serve_idle(const Evictor::Wanted& wanted);
  // `stop`: no further block goes.
  uint64_t move_out(const Evictor::Wanted& wanted, const std::function<bool()>& stop);
  uint64_t move_out(uint32_t gpu, std::span<const MemoryMap::Movable> blocks,
                    std::span<const size_t> which, const std::function<bool()>& stop);
  CUresult begin_leaving(uint32_t gpu, Leaving& block);
  void finish_leaving(std::vector<Leaving>& leaving, uint64_t* moved);
  void withdraw_idle();
  CUresult bring(uint32_t gpu, bool* all);
  CUresult bring_block(const MemoryMap::Movable& block, uint32_t gpu);
  void finish_coming();
  CUresult come_back(uint32_t gpu);
  uint64_t away_bytes(uint32_t gpu) const;
  CUresult back_promises();
  CUresult back_promises(uint32_t gpu);
  Evictor::End request(uint32_t gpu, bool allocation, const std::function<uint64_t()>& bytes,
                       const std::function<bool()>& again, std::function<bool()> stop);
  void wait_for_room(uint32_t gpu, bool allocation, const std::function<uint64_t()>& bytes,
                     const std::function<bool()>& take, std::function<bool()> stop);

  const Driver& driver_;
  MemoryMap& map_;
  const Hooks hooks_;
  LazyBlocks lazy_;
  RecordReach reach_;
  bool profiled_ = false;
  std::vector<std::string> unsure_;
  Evictor* evictor_ = nullptr;
  BlockPool* pool_ = nullptr;
  Client client_;
  BlockOffers* offers_ = nullptr;
  uint32_t gpus_ = 0;
  std::shared_ptr<Evictor::Member> member_;
  std::unique_ptr<BlockMoves> moves_;
  bool away_ = false;
  std::atomic<bool> waits_{false};  // in a request
  uint64_t slept_ns_ = 0;           // since when it has had no record; 0: it has
  uint64_t came_ns_ = 0;            // when it came back, and how long that took
  uint64_t took_ns_ = 0;
  uint64_t calls_ns_ = 0;           // of the move under way: the driver's, for memory
  uint64_t pause_ns_ = 0;           // until it may be asked again
  CUresult failed_ = CUDA_SUCCESS;  // of a copy back
  CUresult lost_ = CUDA_SUCCESS;    // what was promised is not to be had
  Counts counts_;
};

}  // namespace tube::proxy
