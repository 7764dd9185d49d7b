// One link: copies of one direction between the host and one GPU. Used directly by one stream, or
// by the lane (policies/copy_way.h says which).
//
// The lane is one stream of the GPU's context that carries everybody's copies as chunks. Whose
// chunk is next decides policies/link_share.h; a few are in flight. A chunk is submitted when what
// its client's stream did before has happened, never as a wait inside the lane, which would hold
// everybody. When the last chunk of a copy is submitted the session hears of it, and lets the
// client's stream wait for the event behind it: work that is under way, and ends.
//
// Sessions ask, mark and add; the pacing thread (copy_engine.h) takes turns, and sessions do while
// that wakes or has no core. The lock is a leaf, and never held during a driver call that submits.
// Events are a few hundred nanoseconds each.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/cuda_api.h"
#include "policies/copy_way.h"
#include "policies/link_share.h"
#include "proxy/copy/machine_links.h"

namespace tube::proxy {

struct Driver;
class WideCopies;

// Bytes of the host's in several places: the runs follow each other in a copy.
struct HostRun {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
};
using HostRuns = std::vector<HostRun>;

// A copy for the lane, checked by its session, which keeps what it names until the copy is over.
struct LaneCopy {
  CUdeviceptr dst = 0, src = 0;  // bytes in a row, or
  bool is_region = false;
  CUDA_MEMCPY3D region{};
  // The host's end, whose address above is 0: the bytes from `runs_from` on in these.
  std::shared_ptr<const HostRuns> runs{};
  uint64_t runs_from = 0;
  uint64_t bytes = 0;
  uint64_t function = 0;    // the session
  CUdeviceptr done_at = 0;  // the GPU writes done_value there behind the copy; 0: nowhere
  uint64_t done_value = 0;
  CUevent before = nullptr;  // recorded behind what the stream did before, the link's own; nullptr:
                             // that is over
  // It is submitted, or failed. On whose turn it is, under the link's lock: must not call back.
  std::function<void()> told{};
  bool part = false;  // a piece of a wide copy (wide_copies.h): stays on this link
};

class LaneJob {
 public:
  explicit LaneJob(LaneCopy copy) : copy_(std::move(copy)) {}
  // Submitted whole, or failed. Any thread; error() and end() may be read once it is true.
  bool over() const { return over_.load(std::memory_order_acquire); }
  CUresult error() const { return error_; }
  // Recorded behind the last chunk: nullptr after an error, and when the copy has ended.
  // CopyLink::give() it back.
  CUevent end() const { return end_; }

 private:
  friend class CopyLink;
  friend class WideCopies;
  friend class WideCopy;
  LaneCopy copy_;
  WideCopies* wide_ = nullptr;  // it goes over several links; nullptr: over this one
  uint64_t number_ = 0;
  uint64_t arrived_ns_ = 0;
  uint64_t rows_ = 0;       // of a region, that were sent
  uint32_t in_flight_ = 0;  // chunks
  bool ready_ = false;
  bool small_ = false;  // counted in its link's small_jobs_
  bool large_ = false;  // counted in its link's large_jobs_
  std::atomic<bool> over_{false};
  CUresult error_ = CUDA_SUCCESS;
  CUevent end_ = nullptr;
};

class CopyLink {
 public:
  static constexpr uint64_t kScratchBytes = 4096;
  // In the context that is current for whoever takes turns. `scratch`: kScratchBytes of the GPU
  // that nobody reads; 0: none. `cell`: where it counts for other proxies; nullptr: nowhere. Both
  // outlive this, and `driver`.
  CopyLink(const Driver& driver, policies::LaneUse use, const policies::LinkShare::Options& share,
           CUdeviceptr scratch, LinkCell* cell = nullptr)
      : driver_(driver),
        use_(use),
        rest_ns_(share.rest_ns),
        scratch_(scratch),
        cell_(cell != nullptr ? *cell : own_cell_),
        share_(share) {}
  CopyLink(const CopyLink&) = delete;
  CopyLink& operator=(const CopyLink&) = delete;

  // ---- sessions; the link's context is current
  // How a copy to `stream` goes now. kDirect: it is counted; mark() or unclaim() must follow, once
  // for several.
  policies::CopyChoice ask(CUstream stream, const policies::CopyAsk& ask);
  // A word of a session that the GPU writes behind a copy; it never falls.
  struct Word {
    uint64_t* at;
    uint64_t value;
    uint64_t session;
  };
  // The copies have ended when what the stream was given so far has, or when the word says so.
  void mark(CUstream stream, uint64_t bytes, uint32_t copies);
  void mark(const Word& word, uint64_t bytes, uint32_t copies);
  void unclaim(uint64_t bytes, uint32_t copies);
  // It stands behind a copy that an event marked, and that has ended before it is written: two
  // pieces of the lane in flight would keep it waiting. Counts for no longer than the lane goes on
  // without a pause; what takes longer stands behind other work.
  void stands_behind(const Word& word);
  // Copies of the link's own functions that are long enough to feel what others' copies take from
  // them, and that somebody waits for. Smaller ones wait for nothing but what is in flight.
  static constexpr uint64_t kLeastSmall = 1u << 20;
  static constexpr uint64_t kMostSmall = policies::LinkShare::Options{}.chunk_alone;
  struct Small {
    bool there = false;    // waits for the link, or moves
    uint64_t came_ns = 0;  // the last one; 0: there was none
  };
  // Any thread; a moment old. One that goes directly may stand behind its stream's work for as long
  // as that takes; it counts until nothing goes directly any more.
  Small small() const {
    return {small_.load(std::memory_order_relaxed), small_came_ns_.load(std::memory_order_relaxed)};
  }
  // Whether longer copies of the link's own functions fill it, through the lane, or did in the
  // last `lately_ns`. What goes directly is short. Any thread; a moment old.
  bool filled(uint64_t now_ns, uint64_t lately_ns) const {
    const uint64_t went = large_went_ns_.load(std::memory_order_relaxed);
    return large_.load(std::memory_order_relaxed) ||
           (went != 0 && now_ns >= went && now_ns - went < lately_ns);
  }
  // Whether the lane has copies. Any thread; a moment old.
  bool lane_busy() const { return lane_busy_.load(std::memory_order_relaxed); }
  // Whether the link is not this stream's alone. Any thread; a moment old.
  bool busy_beside(CUstream stream) const {
    const CUstream direct = direct_user_.load(std::memory_order_relaxed);
    return lane_busy() || (direct != nullptr && direct != stream);
  }
  // Out of the copy engine's queue: a memset of the scratch bytes. Not while the stream captures.
  void lead_out(CUstream stream);
  // Events to record, from the pool. nullptr: the driver has none, *error says why.
  CUevent event(CUresult* error);
  void give(CUevent event);
  // Large copies may go over other GPUs' links as well. Before there are sessions; outlives this.
  void widen(WideCopies* wide, uint32_t gpu, bool to_gpu) {
    wide_ = wide;
    gpu_ = gpu;
    to_gpu_ = to_gpu;
  }
  std::shared_ptr<LaneJob> add(LaneCopy copy);
  // What a function must reach, and what it got through the lane. Any thread.
  void needs(uint64_t function, const policies::FunctionNeeds& needs);
  policies::LinkUse use(uint64_t function);
  // A session ended: its share is nobody's, its words are not looked at any more.
  void forget(uint64_t function);
  // The client is gone: nothing more of it is submitted, and none of its chunks is in flight when
  // this returns. Waits for what is in flight, a millisecond.
  void take_back(LaneJob& job);
  // The same where nothing of it is in flight or being submitted; false: something is. Of a job
  // that is no wide copy. Never waits.
  bool take_back_quiet(LaneJob& job);

  // Nothing of the job is in flight or being submitted. Any thread.
  bool quiet(const LaneJob& job);
  // What the SLOs of this proxy's functions ask of the link. Any thread.
  uint64_t needed_bytes_per_s();

  // ---- the pacing thread, and for turn() also sessions in the link's context (copy_engine.h)

  // What other proxies move over the link at the moment; what this one's functions need is counted
  // anew.
  void take_stock(std::span<uint64_t> others);
  // What the link carried lately while pieces followed each other and no other proxy used it; 0:
  // that has not been seen. Any thread.
  uint64_t measured_bytes_per_s() const { return measured_.load(std::memory_order_relaxed); }
  enum class Turn : uint8_t { kIdle, kWaits, kAhead, kBusy };
  // One look: takes note of what has ended, submits a chunk if it may. kWaits: copies wait for
  // their own streams; kAhead: two chunks or more are in flight and there was nothing to do, so the
  // next look may come a little later; kBusy: something is in flight, or another thread has its
  // turn.
  Turn turn();
  // When the last one began. Any thread.
  uint64_t turned_ns() const { return turned_ns_.load(std::memory_order_relaxed); }
  // Nobody takes turns any more.
  void close();

 private:
  struct Chunk {
    CUevent end;
    std::shared_ptr<LaneJob> job;
    uint64_t bytes;
  };
  struct Direct {
    CUevent end;  // nullptr: the word
    Word word;
    uint64_t bytes;
  };
  struct Piece {
    std::shared_ptr<LaneJob> job;
    uint64_t offset = 0, bytes = 0;  // of what the copy asks of the link
    uint64_t row = 0, rows = 0;      // of a region
    bool last = false;
  };

  void moved(uint64_t bytes) { cell_.bytes.fetch_add(bytes, std::memory_order_relaxed); }
  bool ended(CUevent end) const;
  bool ended(const Direct& direct) const;
  void measure(uint64_t bytes);
  void note_busy() {
    lane_busy_.store(!jobs_.empty() || !chunks_.empty(), std::memory_order_relaxed);
    const bool direct = claims_ != 0 || !direct_.empty();
    direct_user_.store(direct ? direct_stream_ : nullptr, std::memory_order_relaxed);
    if (!direct) direct_small_ = false;
    small_.store(small_jobs_ != 0 || direct_small_, std::memory_order_relaxed);
    large_.store(large_jobs_ != 0, std::memory_order_relaxed);
  }
  static bool is_large(const LaneCopy& copy);
  static bool is_small(uint64_t bytes) { return bytes >= kLeastSmall && bytes <= kMostSmall; }
  void small_came() { small_came_ns_.store(now_ns(), std::memory_order_relaxed); }
  void went(LaneJob& job);
  void leave_queue(LaneJob& job);
  void end_taken_back(LaneJob& job);
  CUresult make_lane();
  bool reap_chunks();  // whether one had ended
  void reap_direct();
  void reap_words();
  void make_ready();
  bool next(Piece* piece);
  CUresult submit(const Piece& piece);
  CUresult submit_rows(const Piece& piece);
  CUresult submit_runs(const Piece& piece);
  CUresult failed_within(CUresult error, bool sent);
  CUresult finish(const Piece& piece);
  void submitted(const Piece& piece, CUresult error, CUevent chunk_end, CUevent job_end);
  CUevent event_locked(CUresult* error);

  const Driver& driver_;
  const policies::LaneUse use_;
  const uint64_t rest_ns_;  // LinkShare::Options
  const CUdeviceptr scratch_;
  std::atomic<uint64_t> led_out_{0};
  WideCopies* wide_ = nullptr;
  uint32_t gpu_ = 0;  // as wide_ calls this link
  bool to_gpu_ = false;
  std::atomic<uint64_t> measured_{0};
  LinkCell own_cell_;
  LinkCell& cell_;
  std::atomic<bool> lane_busy_{false};
  std::atomic<CUstream> direct_user_{nullptr};  // has copies in flight
  std::atomic<bool> small_{false}, large_{false};
  std::atomic<uint64_t> small_came_ns_{0}, large_went_ns_{0}, turned_ns_{0};
  std::mutex turning_;  // only ever tried; whose turn it is has the lane and `submitting_`
  CUstream lane_ = nullptr;
  std::mutex mutex_;  // leaf: everything below
  std::condition_variable changed_;
  std::list<std::shared_ptr<LaneJob>> jobs_;  // not over, in their order
  // small(), or what fills it; ready, with bytes that have not arrived.
  uint32_t small_jobs_ = 0, large_jobs_ = 0;
  std::vector<Chunk> chunks_;  // in flight, a few, the oldest first
  uint64_t chunk_bytes_ = 0;   // of them all
  std::deque<Direct> direct_;
  std::vector<std::pair<Word, uint64_t>> words_;  // stands_behind(), since when
  CUstream direct_stream_ = nullptr;
  uint64_t direct_bytes_ = 0;
  uint32_t claims_ = 0;        // direct copies that are not marked yet
  bool direct_small_ = false;  // a small() one came since there were none
  bool others_move_ = false;
  uint64_t piece_ended_ns_ = 0;  // with another one in flight behind it; 0: with none
  policies::LinkShare share_;
  LaneJob* submitting_ = nullptr;
  uint64_t made_ = 0;
  std::vector<CUevent> events_;
};

}  // namespace tube::proxy
