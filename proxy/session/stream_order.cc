#include "proxy/session/stream_order.h"

#include <algorithm>

#include "protocol/driver_table.gen.h"
#include "proxy/gpu/capture.h"

namespace tube::proxy {

bool StreamOrder::capturing(const StreamState& stream, bool captures) const {
  return captures && is_capturing(driver_, stream.stream);
}

CUresult StreamOrder::record_join(StreamState& stream) {
  if (stream.join == nullptr) {
    if (CUresult error = driver_.cuEventCreate(&stream.join, CU_EVENT_DISABLE_TIMING);
        error != CUDA_SUCCESS)
      return error;
  }
  return driver_.cuEventRecord(stream.join, stream.stream);
}

// `waiter` waits for everything in `waited` so far. The event is recorded anew each time: a wait
// keeps the record it saw.
CUresult StreamOrder::join(StreamState& waiter, StreamState& waited) {
  if (CUresult error = record_join(waited); error != CUDA_SUCCESS) return error;
  return driver_.cuStreamWaitEvent(waiter.stream, waited.join, 0);
}

CUresult StreamOrder::before_blocking(StreamState& stream, StreamState& legacy) {
  stream.seen_epoch = epoch_;
  epoch_seen_ = true;
  return position_held_ && legacy.join != nullptr
             ? driver_.cuStreamWaitEvent(stream.stream, legacy.join, 0)
             : join(stream, legacy);
}

CUresult StreamOrder::hold_position(StreamState& legacy) {
  if (position_held_ || epoch_ == 0)
    return CUDA_SUCCESS;  // in epoch 0 nobody waits for the legacy stream
  if (legacy.join == nullptr) {
    if (CUresult error = driver_.cuEventCreate(&legacy.join, CU_EVENT_DISABLE_TIMING);
        error != CUDA_SUCCESS)
      return error;
  }
  const CUresult error = driver_.cuEventRecord(legacy.join, legacy.stream);
  position_held_ = error == CUDA_SUCCESS;
  return error;
}

bool StreamOrder::leave_event(StreamState& stream, bool records) {
  constexpr size_t kMost = 1024;
  if (left_.size() >= kMost || (records && record_join(stream) != CUDA_SUCCESS)) return false;
  left_.push_back({stream.dirty_since, stream.join});
  stream.join = nullptr;
  return true;
}

CUresult StreamOrder::take_left(StreamState& legacy, uint64_t sequence) {
  CUresult first = CUDA_SUCCESS;
  std::erase_if(left_, [&](const Left& left) {
    if (left.since > sequence) return false;
    const CUresult error = driver_.cuStreamWaitEvent(legacy.stream, left.event, 0);
    if (first == CUDA_SUCCESS) first = error;
    driver_.cuEventDestroy_v2(left.event);
    return true;
  });
  return first;
}

void StreamOrder::forget_left() {
  for (const Left& left : left_) driver_.cuEventDestroy_v2(left.event);
  left_.clear();
  kept_mark_ = 0;
}

CUresult StreamOrder::before(StreamState& stream, StreamState* legacy, StreamUse use, bool captures,
                             uint64_t sequence) {
  if (stream.legacy) {
    CUresult error = CUDA_SUCCESS;
    if (use == StreamUse::kMarker && concerns_others(stream, legacy)) error = hold_position(stream);
    if (sequence >= kept_mark_) kept_mark_ = 0;
    if (!left_.empty() && error == CUDA_SUCCESS) error = take_left(stream, sequence);
    if (!dirty_.empty() && error == CUDA_SUCCESS) {
      const auto later = [&](const StreamState& each) { return each.dirty_since > sequence; };
      error = join_dirty(stream, captures, later);
    }
    if (use == StreamUse::kWork) position_held_ = false;
    if (use == StreamUse::kWork && epoch_seen_) {
      ++epoch_;
      epoch_seen_ = false;
    }
    return error;
  }
  if (!stream.blocking() || use == StreamUse::kMarker) return CUDA_SUCCESS;
  if (stream.dirty && stream.seen_epoch == epoch_) return CUDA_SUCCESS;
  if (capturing(stream, captures)) return CUDA_SUCCESS;
  CUresult error = CUDA_SUCCESS;
  if (stream.seen_epoch != epoch_ && legacy != nullptr) error = before_blocking(stream, *legacy);
  if (!stream.dirty) {
    stream.dirty = true;
    stream.dirty_since = sequence;
    dirty_.push_back(&stream);
  }
  return error;
}

CUresult StreamOrder::retire(StreamState& stream, StreamState* heir, bool captures) {
  if (stream.blocking() && !stream.dirty) return CUDA_SUCCESS;
  stream.dirty = false;
  dirty_.erase(std::remove(dirty_.begin(), dirty_.end(), &stream), dirty_.end());
  const bool captured = capturing(stream, captures);
  if (heir == nullptr || (captured && !works_behind_capture(stream))) return CUDA_SUCCESS;
  if (heir->legacy && kept_mark_ != 0 && leave_event(stream, !captured)) return CUDA_SUCCESS;
  const CUresult error = heir->legacy ? hold_position(*heir) : CUDA_SUCCESS;
  if (error != CUDA_SUCCESS) return error;
  return captured ? driver_.cuStreamWaitEvent(heir->stream, stream.join, 0) : join(*heir, stream);
}

CUresult StreamOrder::enter_capture(StreamState& stream) { return record_join(stream); }

bool StreamOrder::works_behind_capture(const StreamState& stream) const {
  return stream.join != nullptr && driver_.cuEventQuery(stream.join) == CUDA_ERROR_NOT_READY;
}

}  // namespace tube::proxy
