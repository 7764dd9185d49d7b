#include "proxy/copy/copy_path.h"

#include <utility>

#include "protocol/driver_table.gen.h"
#include "proxy/copy/wide_copies.h"
#include "proxy/gpu/gpus.h"

namespace tube::proxy {

// ---- PathTools

PathTools::PathTools(const Driver& driver, Gpus& gpus, RelayBuffers& buffers, LinkOf link)
    : driver_(driver), gpus_(gpus), buffers_(buffers), link_(std::move(link)) {
  peers_.resize(gpus.count());
  for (Peers& peers : peers_) peers.streams.resize(2 * size_t{gpus.count()});
}

PathTools::~PathTools() {
  for (uint32_t gpu = 0; gpu < peers_.size(); ++gpu) {
    if (driver_.cuCtxSetCurrent(gpus_[gpu].context) != CUDA_SUCCESS) continue;
    for (CUevent event : peers_[gpu].events) (void)driver_.cuEventDestroy_v2(event);
    for (CUstream stream : peers_[gpu].streams)
      if (stream != nullptr) (void)driver_.cuStreamDestroy_v2(stream);
  }
}

CUresult PathTools::stream(uint32_t gpu, uint32_t relay, bool to_gpu, CUstream* stream) {
  CUstream& made = peers_[gpu].streams[2 * size_t{relay} + (to_gpu ? 1 : 0)];
  if (made == nullptr) {
    const CUresult error = driver_.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
    if (error != CUDA_SUCCESS) return made = nullptr, error;
  }
  *stream = made;
  return CUDA_SUCCESS;
}

CUresult PathTools::peer_copy(uint32_t gpu, uint32_t relay, bool to_gpu, CUdeviceptr dst,
                              CUdeviceptr src, uint64_t bytes, CUevent* end) {
  const CUcontext own = gpus_[gpu].context, other = gpus_[relay].context;
  std::vector<CUevent>& events = peers_[gpu].events;
  CUstream on = nullptr;
  CUevent event = nullptr;
  CUresult error = driver_.cuCtxSetCurrent(own);
  if (error == CUDA_SUCCESS) error = stream(gpu, relay, to_gpu, &on);
  if (error != CUDA_SUCCESS) return error;
  if (events.empty()) {
    error = driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (error != CUDA_SUCCESS) return error;
  } else {
    event = events.back();
    events.pop_back();
  }
  error =
      driver_.cuMemcpyPeerAsync(dst, to_gpu ? own : other, src, to_gpu ? other : own, bytes, on);
  if (error == CUDA_SUCCESS) {
    error = driver_.cuEventRecord(event, on);
    // Nobody could tell its end otherwise.
    if (error != CUDA_SUCCESS) (void)driver_.cuStreamSynchronize(on);
  }
  if (error != CUDA_SUCCESS) events.push_back(event);
  else *end = event;
  return error;
}

// ---- CopyPath

bool CopyPath::ready() {
  if (closed_ || held_) return false;
  if (direct() || spare_ != 0) return true;
  spare_ = tools_.buffers().take(over_);
  return spare_ != 0;
}

void CopyPath::drop_spare() {
  if (spare_ != 0) tools_.buffers().give(over_, std::exchange(spare_, 0));
}

// The hop over the link of `over_`.
LaneCopy CopyPath::claim(const Item& item) const {
  LaneCopy claim{.dst = copy_.dst + item.piece.offset,
                 .src = copy_.src + item.piece.offset,
                 .bytes = item.piece.bytes,
                 .function = direct() ? copy_.function : WideCopies::guest(copy_.function),
                 .part = true};
  if (!direct()) (copy_.to_gpu ? claim.dst : claim.src) = item.buffer;
  if (copy_.runs != nullptr) {
    (copy_.to_gpu ? claim.src : claim.dst) = 0;
    claim.runs = copy_.runs;
    claim.runs_from = item.piece.offset;
  }
  return claim;
}

CUresult CopyPath::begin(Item& item, bool over_link) {
  if (over_link) {
    item.job = tools_.link(over_, copy_.to_gpu).add(claim(item));
    return CUDA_SUCCESS;
  }
  const CUdeviceptr dst = copy_.dst + item.piece.offset, src = copy_.src + item.piece.offset;
  return tools_.peer_copy(copy_.gpu, over_, copy_.to_gpu, copy_.to_gpu ? dst : item.buffer,
                          copy_.to_gpu ? item.buffer : src, item.piece.bytes, &item.peer_end);
}

CUresult CopyPath::send(const policies::Pieces::Piece& piece) {
  Item item{.piece = piece, .buffer = std::exchange(spare_, 0)};
  if (CUresult error = begin(item, direct() || copy_.to_gpu); error != CUDA_SUCCESS) {
    give_back(item);
    return error;
  }
  under_way_.push_back(std::move(item));
  return CUDA_SUCCESS;
}

void CopyPath::give_back(const Item& item) {
  if (item.buffer != 0) tools_.buffers().give(over_, item.buffer);
}

CopyPath::Hop CopyPath::look_at_link(Item& item, CUresult* error) {
  CopyLink& link = tools_.link(over_, copy_.to_gpu);
  LaneJob& job = *item.job;
  if (!job.over()) {
    if (!stopped_ || !link.take_back_quiet(job)) return Hop::kGoesOn;
    item.job.reset();
    return Hop::kFailed;
  }
  *error = job.error();
  if (*error != CUDA_SUCCESS) {  // its first chunks may be under way
    if (!link.quiet(job)) return Hop::kGoesOn;
    item.job.reset();
    return Hop::kFailed;
  }
  *error = tools_.driver().cuEventQuery(job.end());
  if (*error == CUDA_ERROR_NOT_READY) return Hop::kGoesOn;
  link.give(job.end());
  item.job.reset();
  return *error == CUDA_SUCCESS ? Hop::kEnded : Hop::kFailed;
}

CopyPath::Hop CopyPath::look_at_peer(Item& item, CUresult* error) {
  *error = tools_.driver().cuEventQuery(item.peer_end);
  if (*error == CUDA_ERROR_NOT_READY) return Hop::kGoesOn;
  tools_.give(copy_.gpu, std::exchange(item.peer_end, nullptr));
  return *error == CUDA_SUCCESS ? Hop::kEnded : Hop::kFailed;
}

CopyPath::Hop CopyPath::look_at(Item& item, CUresult* error) {
  if (item.waits) return Hop::kEnded;
  return item.job != nullptr ? look_at_link(item, error) : look_at_peer(item, error);
}

std::optional<CopyPath::End> CopyPath::look() {
  for (auto item = under_way_.begin(); item != under_way_.end();) {
    const bool over_link = item->job != nullptr;
    CUresult error = CUDA_SUCCESS;
    Hop hop = look_at(*item, &error);
    const bool another = !direct() && over_link == copy_.to_gpu;
    if (hop == Hop::kEnded && another && !stopped_) {
      item->waits = held_ && !over_link;
      if (item->waits) {
        ++item;
        continue;
      }
      error = begin(*item, !over_link);
      hop = error == CUDA_SUCCESS ? Hop::kGoesOn : Hop::kFailed;
    }
    if (hop == Hop::kGoesOn) {
      ++item;
      continue;
    }
    const End end{item->piece, error};
    give_back(*item);
    item = under_way_.erase(item);
    if (!stopped_) return end;
  }
  return std::nullopt;
}

}  // namespace tube::proxy
