#include "proxy/session/lane_copies.h"

#include <utility>

#include "protocol/driver_table.gen.h"
#include "proxy/session/context_shares.h"
#include "proxy/session/direct_copies.h"
#include "proxy/session/stream_state.h"

namespace tube::proxy {

CUresult LaneCopies::add(CopyLink& link, LaneCopy copy, StreamState& stream, bool beside,
                         const ParkKeys& keys, Ends ends) {
  CUresult no_event = CUDA_SUCCESS;
  // Or the event would stand behind the lane's copies.
  if (!beside) DirectCopies::make_way(stream);
  // Behind nothing the copy may go at once, and an event takes the GPU a moment.
  if (!beside && driver_.cuStreamQuery(stream.stream) != CUDA_SUCCESS) {
    copy.before = link.event(&no_event);
    if (copy.before == nullptr) return no_event;
    if (CUresult error = driver_.cuEventRecord(copy.before, stream.stream); error != CUDA_SUCCESS) {
      link.give(copy.before);
      return error;
    }
  }
  copy.told = [this] { nudge(); };
  going_.push_back({&link, link.add(std::move(copy)), &stream, keys, std::move(ends)});
  parked_.hold(keys);
  return CUDA_SUCCESS;
}

void LaneCopies::take_back_last() {
  Going& last = going_.back();
  last.link->take_back(*last.job);
  parked_.let_go(last.keys);
  going_.pop_back();
}

bool LaneCopies::settle() {
  if (!nudged_.exchange(false, std::memory_order_acquire)) return false;
  // In the order of acceptance: two copies of one stream never wait at a time.
  for (size_t i = 0; i < going_.size();) {
    if (!going_[i].job->over()) {
      ++i;
      continue;
    }
    Going done = std::move(going_[i]);
    going_.erase(going_.begin() + static_cast<ptrdiff_t>(i));
    let_go(done);
  }
  return true;
}

void LaneCopies::let_go(Going& going) {
  CUresult error = going.job->error();
  ContextShare* share = shares_.find(going.stream->context);
  if (share != nullptr && shares_.make_current(*share) == CUDA_SUCCESS && error == CUDA_SUCCESS) {
    if (going.job->end() != nullptr)  // else it has ended
      error = driver_.cuStreamWaitEvent(going.stream->stream, going.job->end(), 0);
    DirectCopies::make_way(*going.stream);
  }
  if (error == CUDA_SUCCESS && going.ends.waits) going.ends.waits(*going.stream, going.job->end());
  going.link->give(going.job->end());
  parked_.let_go(going.keys);
  if (error != CUDA_SUCCESS && going.ends.failed) going.ends.failed(error);
}

void LaneCopies::take_all_back() {
  for (Going& going : going_) {
    going.link->take_back(*going.job);
  }
  going_.clear();
}

}  // namespace tube::proxy
