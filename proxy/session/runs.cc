#include "proxy/session/runs.h"

#include <algorithm>
#include <utility>

#include "protocol/properties.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/stats.h"
#include "proxy/gpu/capture.h"
#include "proxy/launch/coalescer.h"
#include "proxy/launch/run_graphs.h"
#include "proxy/session/context_shares.h"

namespace tube::proxy {

namespace {

constexpr uint64_t kOldest = 1024;

}  // namespace

Runs::Runs(const Driver& driver, ContextShares& shares, Stats& stats, const uint64_t& patience_ns,
           Failed failed, ContextGate* gate)
    : driver_(driver),
      shares_(shares),
      stats_(stats),
      patience_ns_(patience_ns),
      failed_(std::move(failed)),
      graphs_(std::make_unique<RunGraphs>(
          driver, RunGraphs::Limits{limits::kRunGraphs, limits::kRunGraphBytes}, gate)) {}
Runs::~Runs() = default;

void Runs::before(const abi::RecordHeader& header) {
  if (wire::properties_of(header.call).orders == wire::Orders::kAll) return end();
  while (!holding_.empty() && header.sequence - holding_.front()->runs->held_since() > kOldest) {
    end_run(*holding_.front(), &Coalescer::give_up);
  }
}

void Runs::make_way(StreamState& stream, const ContextShare& share) {
  if (share.order.concerns_others(stream, share.legacy.get())) {
    end();
  } else if (stream.runs != nullptr) {
    end_run(stream, &Coalescer::boundary);
  }
}

bool Runs::may_hold(const StreamState& stream, const ContextShare& share) const {
  return !shares_.captures() && share.green == nullptr && stream.priority == 0 &&
         !stream.attributes;
}

void Runs::begin(StreamState& stream) {
  if (stream.runs != nullptr) return;
  const bool as_ever = stream.green == nullptr &&
                       shares_.placement().priority() == policies::LaunchPriority::kNormal;
  auto runs = std::make_unique<Coalescer>(
      driver_, *graphs_, stream.stream, shares_.current().gpu, stats_,
      as_ever ? Coalescer::Nodes::kOfContext : Coalescer::Nodes::kOfStream);
  streams_.push_back(&stream);
  stream.runs = std::move(runs);
}

CUresult Runs::launch(StreamState& stream, const PlainLaunch& launch,
                      std::span<const std::byte> parameters, uint64_t sequence,
                      const Coalescer::Around* around) {
  Coalescer& runs = *stream.runs;
  if (!stream.run_open) open_.push_back(&stream);  // in the list, or not open
  stream.run_open = true;
  const bool held = runs.holding();
  if (!held) holding_.reserve(holding_.size() + 1);
  const CUresult error = runs.launch(launch, parameters, sequence, around);
  if (runs.holding() && !held) holding_.push_back(&stream);
  if (!runs.holding() && held) std::erase(holding_, &stream);
  return error;
}

void Runs::give_up() {
  while (!holding_.empty()) end_run(*holding_.front(), &Coalescer::give_up);
}

void Runs::end() {
  // In the order in which they were held: order between streams is nobody's right, but costs
  // nothing.
  while (!holding_.empty()) end_run(*holding_.front(), &Coalescer::boundary);
  // The others have had no launch since they were here.
  for (StreamState* stream : open_) {
    stream->run_open = false;
    end_run(*stream, &Coalescer::boundary);
  }
  open_.clear();
}

// Makes the launches that are held.
void Runs::end_run(StreamState& stream, CUresult (Coalescer::*how)()) {
  if (!stream.runs->holding()) {
    (void)(stream.runs.get()->*how)();
    return;
  }
  std::erase(holding_, &stream);
  const ContextShares::Current before = shares_.current();
  const ContextShare* share = shares_.find(stream.context);
  CUresult error = share != nullptr ? shares_.make_current(*share) : CUDA_ERROR_INVALID_CONTEXT;
  if (error == CUDA_SUCCESS) error = (stream.runs.get()->*how)();
  const uint32_t gpu = shares_.current().gpu;
  if (before.gpu != ContextShares::Current{}.gpu) (void)shares_.make_current(before);
  if (error != CUDA_SUCCESS) failed_(gpu, error);
}

void Runs::forget() {
  end();
  for (StreamState* stream : streams_) stream->runs->forget();
  graphs_->drop_left();
}

void Runs::drop(StreamState& stream) {
  if (stream.runs == nullptr) return;
  end_run(stream, &Coalescer::boundary);
  std::erase(streams_, &stream);
  std::erase(open_, &stream);
  // A query would break a capture that it has joined, which goes on without it.
  if (shares_.captures() && is_capturing(driver_, stream.stream)) stream.runs->forget();
  stream.runs.reset();
}

void Runs::abandon(StreamState& stream) {
  (void)stream.runs.release();
  std::erase(streams_, &stream);
}

}  // namespace tube::proxy
