#include "proxy/session/copies.h"

#include <cstring>

#include "base/result.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/stats.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/ranges.h"
#include "proxy/session/context_shares.h"

namespace tube::proxy {

CopyKind Copies::kind_of(const Range& dst, const Range& src) {
  const auto is_host = [](const Range& range) {
    return range.kind == RangeKind::kPinned || range.kind == RangeKind::kRegistered;
  };
  if (is_host(src)) return is_host(dst) ? CopyKind::kHost : CopyKind::kUpload;
  if (is_host(dst)) return CopyKind::kDownload;
  return dst.device == src.device ? CopyKind::kDevice : CopyKind::kPeer;
}

CUresult Copies::issue(const CopyRequest& request) {
  if (request.bytes != 0 || request.region != nullptr) {
    Stats::add(stats_.copy_bytes, request.bytes);
    Stats::add(counter(request.kind));
    if (CUresult error = copy(request); error != CUDA_SUCCESS) return error;
  }
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

CUresult Copies::copy(const CopyRequest& request) {
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

// An array of another GPU than the record's can only be named together with its context.
CUresult Copies::copy_region(const CopyRequest& request) {
  const uint32_t from = request.src.array != nullptr ? request.src.gpu : request.gpu;
  const uint32_t to = request.dst.array != nullptr ? request.dst.gpu : request.gpu;
  if (from == request.gpu && to == request.gpu)
    return driver_.cuMemcpy3DAsync_v2(request.region, request.stream);
  CUDA_MEMCPY3D_PEER peer;
  // They differ in the contexts, which stand where reserved words are.
  static_assert(sizeof(peer) == sizeof(*request.region));
  std::memcpy(&peer, request.region, sizeof(peer));
  peer.srcContext = gpus_[from].context;
  peer.dstContext = gpus_[to].context;
  return driver_.cuMemcpy3DPeerAsync(&peer, request.stream);
}

CUresult Copies::take_more_chunks(std::string* why) {
  if (more_chunks_) return CUDA_SUCCESS;
  if (Status status = segment_.allocate_more_chunks(); !status.ok()) {
    *why = status.error().message;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult error =
      driver_.cuMemHostRegister_v2(segment_.more_chunks(), abi::kMoreChunksBytes,
                                   CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  more_chunks_ = error == CUDA_SUCCESS;
  return error;
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

}  // namespace tube::proxy
