#include "proxy/session/copies.h"

#include <cstring>
#include <optional>
#include <utility>

#include "base/result.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/stats.h"
#include "proxy/copy/copy_engine.h"
#include "proxy/gpu/capture.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/ranges.h"
#include "proxy/session/context_shares.h"
#include "proxy/session/lane_copies.h"
#include "sharedmem/accessors.h"
#include "sharedmem/chunks.h"
#include "sharedmem/words.h"

namespace tube::proxy {

CopyKind Copies::kind_of(const Range& dst, const Range& src) {
  if (src.is_host()) return dst.is_host() ? CopyKind::kHost : CopyKind::kUpload;
  if (dst.is_host()) return CopyKind::kDownload;
  return dst.device == src.device ? CopyKind::kDevice : CopyKind::kPeer;
}

CUresult Copies::issue(const CopyRequest& request, bool* held) {
  if (request.bytes != 0 || request.region != nullptr) {
    Stats::add(stats_.copy_bytes, request.bytes);
    Stats::add(counter(request.kind));
    bool in_lane = false;
    const CUresult error = move(request, &in_lane);
    if (held != nullptr) *held = in_lane;
    const CopyCompletion& completion = request.completion;
    if (error == CUDA_SUCCESS && completion.chunk_state == abi::kChunkFilled)
      asked_.asked_chunk(&segment_.chunk_state(completion.chunk));
    if (error != CUDA_SUCCESS || in_lane) return error;
  }
  const CUresult error = complete(request);
  direct_.mark_if_much();
  return error;
}

CUresult Copies::complete(const CopyRequest& request) {
  const CopyCompletion& completion = request.completion;
  if (completion.chunk != CopyCompletion::kNoChunk) {
    const CUresult error = driver_.cuStreamWriteValue64_v2(
        request.stream, registered_ + shared::chunk_state_offset(completion.chunk),
        completion.chunk_state, 0);
    if (error != CUDA_SUCCESS) return error;
  }
  if (completion.call_returned) uploaded(*request.state);
  return CUDA_SUCCESS;
}

namespace {

// Whether a copy of this kind crosses the bus, and which way.
enum class Crossing : uint8_t { kNo, kUp, kDown };

Crossing crossing_of(CopyKind kind) {
  switch (kind) {
    case CopyKind::kUpload:
    case CopyKind::kStagedUp:
    case CopyKind::kInline: return Crossing::kUp;
    case CopyKind::kDownload:
    case CopyKind::kStagedDown: return Crossing::kDown;
    case CopyKind::kDevice:
    case CopyKind::kPeer:
    case CopyKind::kHost:
    case CopyKind::kCount: break;
  }
  return Crossing::kNo;
}

// Whose memory it is; nothing: it is host memory.
std::optional<uint32_t> gpu_of(const CopyEnd& end) {
  if (end.array != nullptr) return end.gpu;
  if (end.range == nullptr || end.range->is_host()) return std::nullopt;
  return static_cast<uint32_t>(end.range->device);
}

bool on_host(const CopyRequest& request) {
  const auto host = [](const CopyEnd& end) {
    return end.host != nullptr || (end.range != nullptr && end.range->is_host());
  };
  return host(request.dst) && (request.data != nullptr || host(request.src));
}

CUdeviceptr address_of(const CopyEnd& end) {
  return end.host != nullptr ? reinterpret_cast<CUdeviceptr>(end.host) : end.address;
}

}  // namespace

void Copies::use_lanes(CopyEngine* engine, LaneCopies* lanes, uint64_t session,
                       const policies::FunctionNeeds& needs, std::function<Failed()> failed) {
  engine_ = engine;
  lanes_ = lanes;
  session_ = session;
  failed_ = std::move(failed);
  if (engine == nullptr || needs.slo_ns == 0) return;
  engine->needs(session, needs);
  if (needs.infer_ns != 0) return;
  timer_ = std::make_unique<InferenceTimer>(driver_, [this, needs](uint64_t ns) {
    engine_->needs(session_, {.slo_ns = needs.slo_ns, .infer_ns = ns});
  });
}

void Copies::stand_in() {
  if (engine_ != nullptr) engine_->stand_in();
}

uint64_t Copies::least_lifted() const {
  return engine_ != nullptr ? policies::lifted_bytes(engine_->use()) : 0;
}

// On the client's stream or in the lane, as the link is used at the moment.
CUresult Copies::move(const CopyRequest& request, bool* in_lane) {
  const Crossing crossing = crossing_of(request.kind);
  if (crossing == Crossing::kNo || on_host(request)) return copy(request);
  const bool up = crossing == Crossing::kUp;
  policies::CopyChoice choice{.why = policies::CopyReason::kOff};
  CopyLink* link = nullptr;
  if (request.kind == CopyKind::kInline) choice.why = policies::CopyReason::kInline;
  else if (engine_ != nullptr) link = link_of(request, up, &choice.why);
  if (link != nullptr)
    choice = link->ask(request.stream, {.to_gpu = up,
                                        .stays = request.awaited,
                                        .readable = up && readable(*link, request),
                                        .bytes = request.bytes});
  const bool timed = timer_ != nullptr && link != nullptr && !request.beside;
  if (timed && !up) timer_->downloads(request.stream);
  CUresult error = CUDA_SUCCESS;
  if (choice.way == policies::CopyWay::kLane) {
    error = send_by_lane(*link, request, in_lane);
    if (error == CUDA_SUCCESS && !*in_lane) choice.why = policies::CopyReason::kNoThread;
  } else {
    error = choice.why == policies::CopyReason::kTaken ? copy_taken(request) : copy(request);
  }
  ways_.add(up, choice.why, request.bytes);
  if (choice.way == policies::CopyWay::kDirect) {
    if (error != CUDA_SUCCESS) link->unclaim(request.bytes, 1);
    else if (request.beside) link->mark(request.stream, request.bytes, 1);
    else direct_.issued(*link, *request.state, request.bytes);
  }
  if (timed && up && !*in_lane) timer_->uploaded(request.stream);
  return error;
}

CUresult Copies::write_word(StreamState& stream, uint32_t word, uint64_t value) {
  const bool counts = (stream.crossed != nullptr || direct_.unmarked()) &&
                      !(shares_.captures() && is_capturing(driver_, stream.stream));
  if (counts) DirectCopies::make_way(stream);
  const CUresult error = driver_.cuStreamWriteValue64_v2(
      stream.stream, registered_ + shared::word_offset(word), value, 0);
  if (error == CUDA_SUCCESS && counts)
    direct_.word_follows(stream, &segment_.word(word), value, session_);
  // In a capture nobody writes it.
  if (error == CUDA_SUCCESS && !shares_.captures()) asked_.asked(&segment_.word(word), value);
  return error;
}

// nullptr: the copy stays on its stream and no link counts it; *why says why.
CopyLink* Copies::link_of(const CopyRequest& request, bool to_gpu, policies::CopyReason* why) {
  const ContextShare* share = shares_.find(request.state->context);
  *why = policies::CopyReason::kGreen;
  if (share == nullptr || share->driver_context != nullptr) return nullptr;
  const CopyEnd& device = to_gpu ? request.dst : request.src;
  const uint32_t gpu =
      device.range != nullptr ? static_cast<uint32_t>(device.range->device) : device.gpu;
  *why = policies::CopyReason::kOtherGpu;
  if (gpu != share->gpu) return nullptr;
  *why = policies::CopyReason::kCaptured;
  if (shares_.captures() && is_capturing(driver_, request.stream)) return nullptr;
  return &engine_->link(gpu, to_gpu);
}

CUresult Copies::send_by_lane(CopyLink& link, const CopyRequest& request, bool* in_lane) {
  LaneCopy copy{.dst = address_of(request.dst),
                .src = address_of(request.src),
                .is_region = request.region != nullptr,
                .bytes = request.bytes,
                .function = session_};
  if (copy.is_region) copy.region = *request.region;
  const CopyCompletion completion = request.completion;
  if (completion.chunk != CopyCompletion::kNoChunk) {
    copy.done_at = registered_ + shared::chunk_state_offset(completion.chunk);
    copy.done_value = completion.chunk_state;
  }
  ParkKeys keys;
  request.state->add_keys(keys, true);
  if (request.holds != 0) keys.add(request.holds, true);
  LaneCopies::Ends ends;
  if (completion.call_returned) keys.add(ParkKeys::order(ParkKeys::Order::kUploads, 0), true);
  const bool timed =
      timer_ != nullptr && crossing_of(request.kind) == Crossing::kUp && !request.beside;
  ends.waits = [this, completion, behind = request.behind, timed](StreamState& stream,
                                                                  CUevent end) {
    if (behind) behind(&stream, end);
    if (completion.call_returned) uploaded(stream);
    if (timed) timer_->uploaded(stream.stream);
  };
  ends.failed = [this, completion, behind = request.behind, failed = failed_()](CUresult error) {
    failed(error);
    if (behind) behind(nullptr, nullptr);
    if (completion.chunk != CopyCompletion::kNoChunk)
      shared::store_word(segment_.chunk_state(completion.chunk), completion.chunk_state);
  };
  if (CUresult error =
          lanes_->add(link, std::move(copy), *request.state, request.beside, keys, std::move(ends));
      error != CUDA_SUCCESS)
    return error;
  *in_lane = engine_->send(link);
  if (*in_lane) return CUDA_SUCCESS;
  lanes_->take_back_last();
  return this->copy(request);
}

// On the request's stream; what its GPU does not reach is done by the memory's own.
CUresult Copies::copy(const CopyRequest& request) {
  const ContextShare* share = shares_.find(request.state->context);
  const bool to_far = share != nullptr && far_.is_far(share->gpu, request.dst.range);
  const bool from_far = share != nullptr && far_.is_far(share->gpu, request.src.range);
  if (!to_far && !from_far) return copy_here(request);
  const std::optional<uint32_t> to = gpu_of(request.dst);
  const std::optional<uint32_t> from = gpu_of(request.src);
  if (to && from && *to != *from) return copy_peer(request, *to, *from);
  // A second stream would come into the capture: the driver says what it thinks of the copy.
  if (shares_.captures() && is_capturing(driver_, request.stream)) return copy_here(request);
  const uint32_t gpu = to_far ? *to : *from;
  return far_.on(gpu, request.stream, [&](CUstream stream) {
    CopyRequest there = request;
    there.stream = stream;
    there.gpu = gpu;
    return copy_here(there);
  });
}

// Between GPUs that do not reach each other. The driver takes memory that is mapped for one of them
// when it is told whose it is.
CUresult Copies::copy_peer(const CopyRequest& request, uint32_t to, uint32_t from) {
  if (request.region != nullptr) {
    CUDA_MEMCPY3D region = *request.region;
    for (CUmemorytype* type : {&region.srcMemoryType, &region.dstMemoryType}) {
      if (*type == CU_MEMORYTYPE_UNIFIED) *type = CU_MEMORYTYPE_DEVICE;
    }
    CopyRequest named = request;
    named.region = &region;
    return copy_region(named, to, from);
  }
  return driver_.cuMemcpyPeerAsync(request.dst.address, gpus_[to].context, request.src.address,
                                   gpus_[from].context, request.bytes, request.stream);
}

// The driver copies between host memory with the CPU, for which it waits for the stream in this
// thread. A batch comes in the stream's order, and the call returns at once (H200).
CUresult Copies::copy_on_host(const CopyRequest& request) {
  constexpr size_t kRowsAtOnce = 256;
  CUmemcpyAttributes order{};
  order.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t sizes[kRowsAtOnce], first = 0, count = 0;
  CUdeviceptr to[kRowsAtOnce], from[kRowsAtOnce];
  const auto send = [&] {
    return driver_.cuMemcpyBatchAsync_v2(to, from, sizes, std::exchange(count, 0), &order, &first,
                                         1, request.stream);
  };
  CUDA_MEMCPY3D row_of_bytes{};
  row_of_bytes.WidthInBytes = request.bytes, row_of_bytes.Height = row_of_bytes.Depth = 1;
  const CUDA_MEMCPY3D& c = request.region != nullptr ? *request.region : row_of_bytes;
  const CUdeviceptr dst = address_of(request.dst), src = address_of(request.src);
  for (size_t z = 0; z < c.Depth; ++z) {
    for (size_t y = 0; y < c.Height; ++y) {
      to[count] = dst + ((c.dstZ + z) * c.dstHeight + c.dstY + y) * c.dstPitch + c.dstXInBytes;
      from[count] = src + ((c.srcZ + z) * c.srcHeight + c.srcY + y) * c.srcPitch + c.srcXInBytes;
      sizes[count++] = c.WidthInBytes;
      if (count < kRowsAtOnce) continue;
      if (const CUresult error = send(); error != CUDA_SUCCESS) return error;
    }
  }
  return count == 0 ? CUDA_SUCCESS : send();
}

CUresult Copies::copy_here(const CopyRequest& request) {
  const bool batch = request.data == nullptr && driver_.cuMemcpyBatchAsync_v2 != nullptr &&
                     on_host(request) &&
                     !(shares_.captures() && is_capturing(driver_, request.stream));
  if (batch) return copy_on_host(request);
  if (request.region != nullptr) return copy_region(request);
  switch (request.kind) {
    case CopyKind::kInline:  // pageable to the driver: it takes the bytes before it returns
      return driver_.cuMemcpyHtoDAsync_v2(request.dst.address, request.data, request.bytes,
                                          request.stream);
    case CopyKind::kStagedUp:
      return driver_.cuMemcpyHtoDAsync_v2(request.dst.address, request.src.host, request.bytes,
                                          request.stream);
    case CopyKind::kStagedDown:
      return driver_.cuMemcpyDtoHAsync_v2(request.dst.host, request.src.address, request.bytes,
                                          request.stream);
    case CopyKind::kUpload:
    case CopyKind::kDownload:
    case CopyKind::kDevice:
    case CopyKind::kPeer:
    case CopyKind::kHost:
    case CopyKind::kCount: break;
  }
  return driver_.cuMemcpyAsync(request.dst.address, request.src.address, request.bytes,
                               request.stream);
}

// Whether the driver can take the bytes of an upload with the call: they are few, the proxy can
// read them, and what is before the copy on its stream, which may write them, has ended.
bool Copies::readable(const CopyLink& link, const CopyRequest& request) const {
  if (!link.busy_beside(request.stream) || request.region != nullptr ||
      request.bytes <= policies::kFreePinnedBytes || request.bytes > policies::kTakenBytes)
    return false;
  const Range* range = request.src.range;
  const bool ours = request.kind == CopyKind::kStagedUp ||
                    (request.kind == CopyKind::kUpload && range->kind == RangeKind::kPinned &&
                     request.src.address + request.bytes <= range->base + range->bytes);
  return ours && driver_.cuStreamQuery(request.stream) == CUDA_SUCCESS;
}

// By way of memory that the driver takes for pageable: it has the bytes when the call returns.
CUresult Copies::copy_taken(const CopyRequest& request) {
  taken_.resize(policies::kTakenBytes);
  std::memcpy(taken_.data(), reinterpret_cast<const void*>(address_of(request.src)), request.bytes);
  return driver_.cuMemcpyHtoDAsync_v2(request.dst.address, taken_.data(), request.bytes,
                                      request.stream);
}

// An array of another GPU than the record's can only be named together with its context.
CUresult Copies::copy_region(const CopyRequest& request) {
  const uint32_t from = request.src.array != nullptr ? request.src.gpu : request.gpu;
  const uint32_t to = request.dst.array != nullptr ? request.dst.gpu : request.gpu;
  if (from == request.gpu && to == request.gpu)
    return driver_.cuMemcpy3DAsync_v2(request.region, request.stream);
  return copy_region(request, to, from);
}

CUresult Copies::copy_region(const CopyRequest& request, uint32_t to, uint32_t from) {
  CUDA_MEMCPY3D_PEER peer;
  // They differ in the contexts, which stand where reserved words are.
  static_assert(sizeof(peer) == sizeof(*request.region));
  std::memcpy(&peer, request.region, sizeof(peer));
  peer.srcContext = gpus_[from].context;
  peer.dstContext = gpus_[to].context;
  return driver_.cuMemcpy3DPeerAsync(&peer, request.stream);
}

// An upload went to the stream whose synchronous call returns before the GPU has the bytes. If it
// is a legacy stream's, work of the client's other streams that comes later waits for them. For
// uploads that have nothing but uploads before them, or these streams would wait for more.
void Copies::uploaded(StreamState& stream) {
  if (!stream.legacy) return;
  CUresult error = stream.uploaded != nullptr
                       ? CUDA_SUCCESS
                       : driver_.cuEventCreate(&stream.uploaded, CU_EVENT_DISABLE_TIMING);
  if (error == CUDA_SUCCESS) error = driver_.cuEventRecord(stream.uploaded, stream.stream);
  if (error != CUDA_SUCCESS)
    return;  // the driver has no more events or the context is dead: the next call says so
  stream.uploads_seen = ++uploads_;
  upload_stream_ = &stream;
}

// An upload on another legacy stream waited for the last one itself, so there is one to wait for. A
// stream that is being captured does its work later, on a stream that comes by here.
CUresult Copies::wait_for_uploads(StreamState& stream) {
  const bool in_order = upload_stream_ == nullptr || upload_stream_ == &stream ||
                        (stream.blocking() && stream.context == upload_stream_->context);
  if (!in_order) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (shares_.captures()) {
      if (CUresult error = driver_.cuStreamIsCapturing(stream.stream, &status);
          error != CUDA_SUCCESS)
        return error;
    }
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_SUCCESS;
    if (CUresult error = driver_.cuStreamWaitEvent(stream.stream, upload_stream_->uploaded, 0);
        error != CUDA_SUCCESS)
      return error;
  }
  stream.uploads_seen = uploads_;
  return CUDA_SUCCESS;
}

void Copies::settle_uploads() {
  if (upload_stream_ == nullptr || uploads_settled_ == uploads_) return;
  (void)driver_.cuEventSynchronize(upload_stream_->uploaded);
  uploads_settled_ = uploads_;
}

}  // namespace tube::proxy
