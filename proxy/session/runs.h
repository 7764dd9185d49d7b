// A session's runs of launches: its side of launch coalescing (launch/coalescer.h), and which
// records end which streams' runs.
//
// Each stream has runs of its own, so threads and streams that launch at the same time do not end
// each other's. What a record ends is described with its call (`orders`, protocol/calls): a record
// that touches one stream ends that stream's run, right before the handler touches it
// (Session::stream_op); a record that no stream could tell ends none; every other one ends all.
// Order between streams is what events and the legacy stream's rule make it: both pass by here.
// Held launches become due when nothing comes for the session's patience, and when kOldest records
// came without their run being whole, however busy other streams are.
//
// Session thread only. Launches that are made here belong to calls that returned long ago: their
// errors go to `failed`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/cuda_api.h"
#include "proxy/launch/coalescer.h"
#include "sharedmem/abi.h"

namespace tube::proxy {

class ContextGate;
class ContextShares;
struct ContextShare;
struct Driver;
struct PlainLaunch;
class RunGraphs;
struct Stats;
struct StreamState;

class Runs {
 public:
  // A held launch could not be made on this GPU.
  using Failed = std::function<void(uint32_t gpu, CUresult error)>;
  // All outlive it. `patience_ns`, looked at with each record: how long launches that may
  // become a graph are held; 0: never. `gate`: nullptr when none is in front of the driver.
  Runs(const Driver& driver, ContextShares& shares, Stats& stats, const uint64_t& patience_ns,
       Failed failed, ContextGate* gate = nullptr);
  ~Runs();
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;

  // Whether there are runs at all.
  bool on() const { return patience_ns_ != 0; }
  uint64_t patience_ns() const { return patience_ns_; }
  // Before a record is executed.
  void before(const abi::RecordHeader& header);
  // Before anything but a launch that may be held goes to a stream.
  void make_way(StreamState& stream, const ContextShare& share);
  // Whether a plain launch on the stream may be held.
  bool may_hold(const StreamState& stream, const ContextShare& share) const;
  // Makes the stream's coalescer if it has none. In the stream's context.
  void begin(StreamState& stream);
  // A launch on a stream that has begun: made, or held. `sequence` is the record's.
  CUresult launch(StreamState& stream, const PlainLaunch& launch,
                  std::span<const std::byte> parameters, uint64_t sequence,
                  const Coalescer::Around* around = nullptr);
  bool holding() const { return !holding_.empty(); }
  // Nothing came in time: makes what is held.
  void give_up();
  // Makes the held launches of all streams.
  void end();
  // The same, and drops the graphs of kernels that are about to go or change.
  void forget();
  // The stream goes away.
  void drop(StreamState& stream);
  // The stream's work may never end, its graphs' included: they stay for good.
  void abandon(StreamState& stream);

 private:
  void end_run(StreamState& stream, CUresult (Coalescer::*how)());

  const Driver& driver_;
  ContextShares& shares_;
  Stats& stats_;
  const uint64_t& patience_ns_;
  const Failed failed_;
  std::unique_ptr<RunGraphs> graphs_;  // of all streams
  std::vector<StreamState*> streams_;  // that have a coalescer
  // To which a launch came since all runs ended last (StreamState::run_open).
  std::vector<StreamState*> open_;
  std::vector<StreamState*> holding_;  // whose coalescer holds launches, the longest first
};

}  // namespace tube::proxy
