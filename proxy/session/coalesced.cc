// The session's side of launch coalescing (coalescer.h): which records end which streams' runs.
//
// Each stream has runs of its own, so threads and streams that launch at the same time do not end
// each other's. What a record ends is described with its call (`orders`, protocol/calls): a record
// that touches one stream ends that stream's run, right before the handler touches it (stream_op);
// a record that no stream could tell ends none; every other one ends all. Order between streams is
// what events and the legacy stream's rule make it: both pass by here. Held launches become due
// when nothing comes for the session's patience, and when kOldest records came without their run
// being whole, however busy other streams are.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "protocol/properties.gen.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"
#include "sharedmem/accessors.h"

namespace tube::proxy {

namespace {

constexpr uint64_t kOldest = 1024;

}  // namespace

// Before a record is executed.
void Session::prepare_runs(const abi::RecordHeader& header) {
  if (wire::properties_of(header.call).orders == wire::Orders::kAll) return end_runs();
  while (!holding_.empty() && header.sequence - holding_.front()->runs->held_since() > kOldest) {
    end_run(*holding_.front(), &Coalescer::give_up);
  }
}

// Before anything but a launch that may be held goes to a stream.
void Session::make_way(StreamState& stream, const ContextShare& share) {
  if (share.order.concerns_others(stream, share.legacy.get())) {
    end_runs();
  } else if (stream.runs != nullptr) {
    end_run(stream, &Coalescer::boundary);
  }
}

StreamOp Session::launch_op(uint64_t untrusted_stream, bool plain) {
  if (!coalescing()) return stream_op(untrusted_stream);
  StreamOp op;
  op.state = stream_state(untrusted_stream, &op.error);
  if (op.state == nullptr) return op;
  StreamState& stream = *op.state;
  ContextShare* share = context(stream.context);
  plain = plain && !captures() && share != nullptr && share->green == nullptr &&
          stream.priority == 0 && !stream.attributes;
  // What has to be put in front of the launch comes behind what is held.
  if (!plain || share->order.concerns_others(stream, share->legacy.get()) ||
      stream.uploads_seen != uploads_)
    op = stream_op(untrusted_stream);
  if (!plain || op.error != CUDA_SUCCESS) return op;
  op.stream = stream.stream;
  op.error = make_current(*share);
  if (op.error == CUDA_SUCCESS)
    op.error = share->order.before(stream, share->legacy.get(), StreamUse::kWork, false);
  if (op.error != CUDA_SUCCESS) return op;
  if (stream.runs == nullptr) {
    stream.runs = std::make_unique<Coalescer>(driver(), run_graphs_, stream.stream, stats_);
    run_streams_.push_back(&stream);
  }
  op.in_run = true;
  return op;
}

CUresult Session::launch_in_run(const StreamOp& op, const PlainLaunch& launch,
                                std::span<const std::byte> parameters) {
  Coalescer& runs = *op.state->runs;
  if (!std::exchange(op.state->run_open, true)) open_runs_.push_back(op.state);
  const bool held = runs.holding();
  const CUresult error = runs.launch(launch, parameters, record_->sequence);
  if (runs.holding() && !held) holding_.push_back(op.state);
  if (!runs.holding() && held) std::erase(holding_, op.state);
  return error;
}

// Launches are held and the ring is empty: looks a little longer for the next record. False when
// nothing was held.
bool Session::held_go_on() {
  if (holding_.empty()) return false;
  const uint64_t end = now_ns() + shared_.coalesce_ns;
  while (now_ns() < end && !stop_.load(std::memory_order_relaxed)) {
    if (step()) return true;
  }
  while (!holding_.empty()) end_run(*holding_.front(), &Coalescer::give_up);
  return true;
}

void Session::end_runs() {
  // In the order in which they were held: order between streams is nobody's right, but costs
  // nothing.
  while (!holding_.empty()) end_run(*holding_.front(), &Coalescer::boundary);
  // The others have had no launch since they were here.
  for (StreamState* stream : open_runs_) {
    stream->run_open = false;
    end_run(*stream, &Coalescer::boundary);
  }
  open_runs_.clear();
}

// Makes the launches that are held. Their calls returned long ago: an error is an asynchronous one.
void Session::end_run(StreamState& stream, CUresult (Coalescer::*how)()) {
  if (!stream.runs->holding()) {
    (void)(stream.runs.get()->*how)();
    return;
  }
  std::erase(holding_, &stream);
  const uint32_t gpu_before = thread_gpu_;
  const CUcontext context_before = thread_context_;
  const ContextShare* share = context(stream.context);
  CUresult error = share != nullptr ? make_current(*share) : CUDA_ERROR_INVALID_CONTEXT;
  if (error == CUDA_SUCCESS) error = (stream.runs.get()->*how)();
  const uint32_t gpu = thread_gpu_;
  if (gpu_before != 0xffffffffu) (void)make_current(gpu_before, context_before);
  if (error == CUDA_SUCCESS) return;
  Stats::add(stats_.errors);
  report_if_sticky(gpu, error);
  shared::proxy_store_async_error(
      segment_.header(),
      {static_cast<uint32_t>(error), static_cast<uint32_t>(wire::Call::tubeLaunch), 0});
}

void Session::forget_runs() {
  end_runs();
  for (StreamState* stream : run_streams_) stream->runs->forget();
}

// The stream goes away.
void Session::drop_runs(StreamState& stream) {
  if (stream.runs == nullptr) return;
  end_run(stream, &Coalescer::boundary);
  std::erase(run_streams_, &stream);
  std::erase(open_runs_, &stream);
  stream.runs.reset();
}

}  // namespace tube::proxy
