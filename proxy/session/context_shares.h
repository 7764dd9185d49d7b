// The client's contexts: which share of which GPU's context each number stands for, and what
// belongs to a share as a whole - the legacy stream and its order, what ended streams have left to
// do, the limits, a green context's SMs - and the streams that a call about a whole context acts
// on.
//
// Session thread only, but for gpu() and has_used().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "base/cuda_api.h"
#include "proxy/gpu/placement.h"
#include "proxy/memory/memory_budgets.h"
#include "proxy/session/objects.h"
#include "proxy/session/stream_order.h"
#include "proxy/session/stream_state.h"

namespace tube::proxy {

struct Driver;
class Gpus;

// A context number of the client: a share of one GPU's context.
struct ContextShare {
  ContextShare(const Driver& driver, uint32_t number, uint32_t gpu, uint32_t flags);
  ~ContextShare();
  ContextShare(const ContextShare&) = delete;
  ContextShare& operator=(const ContextShare&) = delete;

  uint32_t number;
  uint32_t gpu;
  uint32_t flags;
  StreamOrder order;
  std::unique_ptr<StreamState> legacy;  // the stand-in for the legacy stream, made when first used
  // Waits for the non-blocking streams that went with work in them; made when one first does.
  std::unique_ptr<StreamState> ended;
  std::map<int32_t, uint64_t> limits;  // what the client set; the context's own: shared_limits.h
  MemoryCharge heap;                   // of malloc in kernels: what it wants beyond the default
  CUgreenCtx green = nullptr;          // a green context: `driver_context` is its
  CUcontext driver_context = nullptr;  // nullptr: the GPU's shared one
  bool own_sms() const { return driver_context != nullptr; }
};

class ContextShares {
 public:
  // All outlive it. `session` is the number under which limits are kept (shared_limits.h).
  ContextShares(const Driver& driver, Gpus& gpus, Objects& objects, uint64_t session);
  ~ContextShares();
  ContextShares(const ContextShares&) = delete;
  ContextShares& operator=(const ContextShares&) = delete;

  // A share of the primary context of every GPU.
  void open();
  // nullptr: no such context.
  ContextShare* find(uint32_t untrusted_number) {
    if (last_ != nullptr && last_->number == untrusted_number) return last_;
    return look_up(untrusted_number);
  }
  // The share that a record with this number acts on. Number 0, of a thread without a context, is
  // the primary of the GPU that the session worked on last: what other GPUs do is not its business.
  ContextShare* of_record(uint32_t untrusted_number) {
    return find(untrusted_number != 0 ? untrusted_number : home_ != 0 ? home_ : primary_of(0));
  }
  // A record with this number is about to act on `share`. True when records with number 0 now go to
  // another GPU than before.
  bool comes_home(uint32_t untrusted_number, const ContextShare& share) {
    if (untrusted_number == 0 || home_ == primary_of(share.gpu)) return false;
    home_ = primary_of(share.gpu);
    return true;
  }
  CUresult create(uint32_t untrusted_number, uint32_t untrusted_gpu, uint32_t flags);
  // A created context gets SMs of its own; `green` is the share's from then on.
  void make_green(uint32_t number, CUgreenCtx green, CUcontext context);
  // Behind everything that was made in it.
  void drop_green(ContextShare& share);
  // What the client set in the share counts no more.
  void forget_limits(const ContextShare& share);
  // The share ends; `anew`: and begins again with nothing in it.
  void erase(uint32_t number, bool anew);

  // What is current on the session's thread.
  struct Current {
    uint32_t gpu = 0xffffffffu;   // nothing yet
    CUcontext context = nullptr;  // nullptr: the GPU's shared one
  };
  const Current& current() const { return current_; }
  // Another thread than before is the session's: nothing is current there.
  void begin_thread() { current_ = {}; }
  CUresult make_current(uint32_t gpu) { return make_current(Current{gpu, nullptr}); }
  CUresult make_current(const ContextShare& share) {
    return make_current(Current{share.gpu, share.driver_context});
  }
  CUresult make_current(const Current& wanted) {
    if (current_.gpu == wanted.gpu && current_.context == wanted.context) return CUDA_SUCCESS;
    return switch_to(wanted);
  }
  // The GPU whose context was made current last, and whether one ever was. Any thread.
  uint32_t gpu() const { return gpu_.load(std::memory_order_relaxed); }
  bool has_used(uint32_t gpu) const {
    return (used_gpus_.load(std::memory_order_relaxed) & 1u << (gpu & 31)) != 0;
  }

  // The stream behind the client's id. The id of the legacy stream is that of `record_context`'s
  // context, and the stand-in is made when it is first asked for. nullptr: *error says why.
  StreamState* stream(uint64_t untrusted_id, uint32_t record_context, CUresult* error);
  // The stream behind what ended streams of that context have left to do; as above.
  StreamState* ended_streams(uint32_t record_context, CUresult* error);
  // Where the client's streams are made.
  Placement& placement() { return placement_; }
  // A stream whose part of the GPU has changed comes into the new one, before its next operation.
  // `leaves` is called before its old stream of the driver goes.
  template <class Leaves>
  void keep_in_place(StreamState& stream, const ContextShare& share, Leaves&& leaves) {
    if (placement_.due(stream, share.gpu)) move(stream, share, leaves);
  }
  // Puts in front of an operation what the legacy stream's order demands (stream_order.h).
  // `sequence`: of its record.
  CUresult put_in_order(StreamState& stream, ContextShare& share, StreamUse use,
                        uint64_t sequence) {
    return share.order.before(stream, share.legacy.get(), use, captures(), sequence);
  }
  // A stream of the client is about to be destroyed: its work still counts for the legacy stream,
  // or, of a non-blocking one, for its context.
  void retire(StreamState& stream);
  // The stream is about to begin a capture, or perhaps to join one, unless it is in one already.
  CUresult enter_capture(StreamState& stream);
  // Ends the share's own streams, which nothing may use any more.
  void drop_own(ContextShare& share);

  // Streams that may be capturing: the legacy ordering asks the driver only then.
  void capture_started() { ++captures_; }
  void capture_ended() { captures_ -= captures_ != 0; }
  bool captures() const { return captures_ != 0; }
  // A stream that captures answers no query and cannot be destroyed: ends all captures.
  void end_captures();

  // Calls what(StreamState&, GPU) for the shares' own streams and for all streams of the client
  // until it says false. Whether it never did.
  template <class What>
  bool all_streams(What&& what) {
    for (auto& [number, share] : shares_) {
      if (share.legacy != nullptr && !what(*share.legacy, share.gpu)) return false;
      if (share.ended != nullptr && !what(*share.ended, share.gpu)) return false;
    }
    for (uint64_t id : objects_.ids(wire::Kind::kStream)) {
      auto& stream = static_cast<StreamState&>(*objects_.find(wire::Kind::kStream, id)->state);
      const ContextShare* share = find(stream.context);
      if (!what(stream, share != nullptr ? share->gpu : 0)) return false;
    }
    return true;
  }
  std::map<uint32_t, ContextShare>& all() { return shares_; }

 private:
  // The number of a GPU's primary context (protocol/handle_id.h).
  static constexpr uint32_t primary_of(uint32_t gpu) { return gpu + 1; }

  ContextShare* look_up(uint32_t untrusted_number);
  CUresult switch_to(const Current& wanted);
  CUresult make_own(ContextShare& share, std::unique_ptr<StreamState>& own);
  void move(StreamState& stream, const ContextShare& share, const std::function<void()>& leaves);

  const Driver& driver_;
  Gpus& gpus_;
  Objects& objects_;
  const uint64_t session_;
  Placement placement_;
  std::map<uint32_t, ContextShare> shares_;
  ContextShare* last_ = nullptr;  // that was asked for
  // The primary context of the GPU of the last record that had a context; 0: none had.
  uint32_t home_ = 0;
  Current current_;
  uint32_t captures_ = 0;
  std::atomic<uint32_t> gpu_{0};
  std::atomic<uint32_t> used_gpus_{0};  // bit per GPU
};

}  // namespace tube::proxy
