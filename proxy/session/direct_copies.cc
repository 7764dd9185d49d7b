#include "proxy/session/direct_copies.h"

#include <utility>

#include "proxy/copy/copy_link.h"
#include "proxy/gpu/capture.h"
#include "proxy/session/context_shares.h"
#include "proxy/session/stream_state.h"

namespace tube::proxy {
namespace {

// An event is less than a hundredth of so large a copy.
constexpr uint64_t kMostBytes = 4u << 20;
constexpr uint32_t kMostCopies = 64;

}  // namespace

void DirectCopies::issued(CopyLink& link, StreamState& stream, uint64_t bytes) {
  stream.crossed = &link;
  if (link_ != nullptr && (link_ != &link || stream_ != &stream)) {
    mark();
    if (ContextShare* share = shares_.find(stream.context)) (void)shares_.make_current(*share);
  }
  link_ = &link;
  stream_ = &stream;
  bytes_ += bytes;
  ++copies_;
}

void DirectCopies::mark_if_much() {
  if (copies_ >= kMostCopies || bytes_ >= kMostBytes) mark();
}

void DirectCopies::mark() {
  CopyLink* link = std::exchange(link_, nullptr);
  const uint64_t bytes = std::exchange(bytes_, 0);
  const uint32_t copies = std::exchange(copies_, 0);
  if (link == nullptr) return;
  ContextShare* share = shares_.find(stream_->context);
  if (share != nullptr && !(shares_.captures() && is_capturing(driver_, stream_->stream)) &&
      shares_.make_current(*share) == CUDA_SUCCESS) {
    link->mark(stream_->stream, bytes, copies);
    stream_->word_counts = true;
  } else {
    link->unclaim(bytes, copies);
  }
}

void DirectCopies::make_way(StreamState& stream) {
  if (stream.crossed != nullptr && stream.crossed->lane_busy())
    std::exchange(stream.crossed, nullptr)->lead_out(stream.stream);
}

void DirectCopies::word_follows(StreamState& stream, uint64_t* word, uint64_t value,
                                uint64_t session) {
  const bool counts = std::exchange(stream.word_counts, false);
  if (link_ != nullptr && stream_ == &stream)
    std::exchange(link_, nullptr)
        ->mark({word, value, session}, std::exchange(bytes_, 0), std::exchange(copies_, 0));
  else if (counts && stream.crossed != nullptr)
    stream.crossed->stands_behind({word, value, session});
}

}  // namespace tube::proxy
