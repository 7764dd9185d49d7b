// Copies and memsets. Both sides of a copy are checked against what the client owns, then it goes
// through the door of all copies (session/copies.h).
//
// A chunk goes back to the client by the GPU's own write behind the copy; when the copy cannot be
// issued, the session hands it back instead, so that the client never waits for a chunk that is
// lost.
#include <string>

#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/calls/copy_region.h"
#include "proxy/common/region_reach.h"
#include "proxy/session/session.h"
#include "sharedmem/chunks.h"

namespace tube::proxy {

static_assert(static_cast<uint64_t>(wire::ChunkBecomes::kFree) == abi::kChunkFree &&
              static_cast<uint64_t>(wire::ChunkBecomes::kFilled) == abi::kChunkFilled);

CUresult handle(Session& session, const Decoded<wire::tubeCopy>& call, Reply<wire::tubeCopy>&) {
  if (call->bytes == 0) return CUDA_SUCCESS;
  const Range* const src = session.ranges().covering(call->src, call->bytes);
  if (src == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Range* dst = nullptr;
  if (CUresult error = session.check_target_range(call->dst, call->bytes, &dst);
      error != CUDA_SUCCESS)
    return error;
  StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  return session.copies().issue({.kind = Copies::kind_of(*dst, *src),
                                 .stream = op.stream,
                                 .state = op.state,
                                 .dst = {.address = call->dst, .range = dst},
                                 .src = {.address = call->src, .range = src},
                                 .bytes = call->bytes,
                                 .awaited = session.record().reply_slot != abi::kNoReply});
}

CUresult handle(Session& session, const Decoded<wire::tubeCopyInline>& call,
                Reply<wire::tubeCopyInline>&) {
  const auto data = call.blob(call->data);
  if (data.empty()) return CUDA_SUCCESS;
  const Range* dst = nullptr;
  if (CUresult error = session.check_target_range(call->dst, data.size(), &dst);
      error != CUDA_SUCCESS)
    return error;
  StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  // A captured copy would read these bytes at every launch of the graph, long after they are gone.
  if (session.captures()) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult error = session.driver().cuStreamIsCapturing(op.stream, &status);
    if (error != CUDA_SUCCESS) return error;
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return session.copies().issue({.kind = CopyKind::kInline,
                                 .stream = op.stream,
                                 .state = op.state,
                                 .dst = {.address = call->dst, .range = dst},
                                 .data = data.data(),
                                 .bytes = data.size(),
                                 .completion = {.call_returned = call->left != 0},
                                 .awaited = session.record().reply_slot != abi::kNoReply});
}

CUresult handle(Session& session, const Decoded<wire::tubeMoreChunks>&,
                Reply<wire::tubeMoreChunks>&) {
  std::string why;
  const CUresult error = session.copies().more_chunks().ask(&why);
  if (!why.empty())
    log_warn("function '%s' (pid %d) goes on with %u staging chunks: %s",
             session.client().name.c_str(), session.client().pid, abi::kFirstChunks, why.c_str());
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeMayCopy>& call,
                Reply<wire::tubeMayCopy>&) {
  return call->write != 0 ? session.check_target_range(call->dptr, call->bytes)
                          : session.check_device_range(call->dptr, call->bytes);
}

CUresult handle(Session& session, const Decoded<wire::tubeCopyChunk>& call,
                Reply<wire::tubeCopyChunk>&) {
  Copies& copies = session.copies();
  if (!shared::valid_chunk_range(copies.chunks(), call->chunk, call->chunk_offset, call->bytes))
    return CUDA_ERROR_INVALID_VALUE;
  const bool to_device = call->becomes == wire::ChunkBecomes::kFree;
  CopyEnd device{.address = call->dptr};
  if (to_device) {
    if (CUresult error = session.check_target_range(call->dptr, call->bytes, &device.range);
        error != CUDA_SUCCESS)
      return error;
  } else if (call->bytes != 0) {
    device.range = session.ranges().covering(call->dptr, call->bytes);
    if (device.range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  const CopyEnd chunk{.host = copies.chunk_data(call->chunk) + call->chunk_offset};
  StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  return copies.issue({.kind = to_device ? CopyKind::kStagedUp : CopyKind::kStagedDown,
                       .stream = op.stream,
                       .state = op.state,
                       .dst = to_device ? device : chunk,
                       .src = to_device ? chunk : device,
                       .bytes = call->bytes,
                       .completion = {.chunk = call->chunk,
                                      .chunk_state = static_cast<uint64_t>(call->becomes),
                                      .call_returned = to_device && call->left != 0},
                       .awaited = session.record().reply_slot != abi::kNoReply});
}

namespace {

// The GPU that an array was made on; that of the record's context when it is not known.
uint32_t gpu_of(Session& session, const Object& array) {
  const ContextShare* share = session.context(array.context);
  return share != nullptr ? share->gpu : session.context()->gpu;
}

CUmemorytype type_of(const CopyEnd& end) {
  return end.array != nullptr  ? CU_MEMORYTYPE_ARRAY
         : end.host != nullptr ? CU_MEMORYTYPE_HOST
                               : CU_MEMORYTYPE_UNIFIED;
}

CUresult resolve_side(Session& session, const CopySide& side, const uint64_t (&extent)[3],
                      bool written, CopyEnd& out) {
  if (side.kind == wire::SideKind::kArray) {
    const Object* array = session.objects().find(wire::Kind::kArray, side.address);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    out.array = array->handle<CUarray>();
    out.gpu = gpu_of(session, *array);
    return CUDA_SUCCESS;
  }
  if (extent[1] > 1 || extent[2] > 1) {
    if (side.pitch < extent[0] || (extent[2] > 1 && side.height < extent[1]))
      return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t bytes = 0;
  if (!region_reach({side.origin, extent, side.pitch, side.height}, &bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (side.kind == wire::SideKind::kAddress) {
    out.address = side.address;
    if (written) return session.check_target_range(side.address, bytes, &out.range);
    out.range = session.ranges().covering(side.address, bytes);
    return out.range != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t chunk = side.address >> 20;
  const uint64_t offset = side.address & (abi::kChunkBytes - 1);
  static_assert(abi::kChunkBytes == 1u << 20);
  if (side.kind != wire::SideKind::kChunk || chunk >= session.copies().chunks())
    return CUDA_ERROR_INVALID_VALUE;
  if (!shared::valid_chunk_range(session.copies().chunks(), static_cast<uint32_t>(chunk), offset,
                                 bytes))
    return CUDA_ERROR_INVALID_VALUE;
  out.host = session.copies().chunk_data(static_cast<uint32_t>(chunk)) + offset;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult build_copy(Session& session, const CopySide& src, const CopySide& dst,
                    const uint64_t (&extent)[3], CopyRegion* out) {
  // An array's side has no reach to check, and what is copied is counted and staged by its bytes.
  if (!region_bytes(extent, &out->bytes)) return CUDA_ERROR_INVALID_VALUE;
  CopyEnd& from = out->src;
  CopyEnd& to = out->dst;
  if (CUresult error = resolve_side(session, src, extent, false, from); error != CUDA_SUCCESS)
    return error;
  if (CUresult error = resolve_side(session, dst, extent, true, to); error != CUDA_SUCCESS)
    return error;
  CUDA_MEMCPY3D* const copy = &out->copy;
  *copy = {};
  copy->srcXInBytes = src.origin[0];
  copy->srcY = src.origin[1];
  copy->srcZ = src.origin[2];
  copy->srcMemoryType = type_of(from);
  copy->srcHost = from.host;
  copy->srcDevice = from.address;
  copy->srcArray = from.array;
  copy->srcPitch = src.pitch;
  copy->srcHeight = src.height;
  copy->dstXInBytes = dst.origin[0];
  copy->dstY = dst.origin[1];
  copy->dstZ = dst.origin[2];
  copy->dstMemoryType = type_of(to);
  copy->dstHost = to.host;
  copy->dstDevice = to.address;
  copy->dstArray = to.array;
  copy->dstPitch = dst.pitch;
  copy->dstHeight = dst.height;
  copy->WidthInBytes = extent[0];
  copy->Height = extent[1];
  copy->Depth = extent[2];
  return CUDA_SUCCESS;
}

namespace {

CopyKind kind_of(const CopyRegion& region) {
  if (region.src.host != nullptr) return CopyKind::kStagedUp;
  if (region.dst.host != nullptr) return CopyKind::kStagedDown;
  const auto range_of = [](const CopyEnd& end) {
    return end.range != nullptr
               ? *end.range
               : Range{.kind = RangeKind::kDevice, .device = static_cast<int>(end.gpu)};
  };
  return Copies::kind_of(range_of(region.dst), range_of(region.src));
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeCopy3D>& call, Reply<wire::tubeCopy3D>&) {
  constexpr uint32_t kNoChunk = CopyCompletion::kNoChunk;
  if (call->release_chunk != kNoChunk && call->release_chunk >= session.copies().chunks())
    return CUDA_ERROR_INVALID_VALUE;
  const bool nothing = call->extent[0] == 0 || call->extent[1] == 0 || call->extent[2] == 0;
  StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  CopyRegion region;
  CopyRequest request{.stream = op.stream,
                      .state = op.state,
                      .completion = {.chunk = call->release_chunk,
                                     .chunk_state = static_cast<uint64_t>(call->becomes)},
                      .awaited = session.record().reply_slot != abi::kNoReply};
  if (!nothing) {
    const CUresult error = build_copy(
        session, {call->src_kind, call->src, call->src_pitch, call->src_height, call->src_origin},
        {call->dst_kind, call->dst, call->dst_pitch, call->dst_height, call->dst_origin},
        call->extent, &region);
    if (error != CUDA_SUCCESS) return error;
    request.kind = kind_of(region);
    request.dst = region.dst;
    request.src = region.src;
    request.bytes = region.bytes;
    request.region = &region.copy;
    request.gpu = session.context()->gpu;
  }
  return session.copies().issue(request);
}

CUresult check_memset(Session& session, uint64_t dst, uint64_t pitch, uint32_t element,
                      uint64_t width, uint64_t height) {
  if ((element != 1 && element != 2 && element != 4) || dst % element != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (width == 0 || height == 0 || width >> 56 || height >> 56 || pitch >> 56)
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t row_bytes = width * element;
  if (height != 1 && (pitch < row_bytes || pitch % element != 0)) return CUDA_ERROR_INVALID_VALUE;
  const unsigned __int128 bytes = static_cast<unsigned __int128>(height - 1) * pitch + row_bytes;
  if (bytes >> 62) return CUDA_ERROR_INVALID_VALUE;
  return session.check_target_range(dst, static_cast<uint64_t>(bytes));
}

CUresult handle(Session& session, const Decoded<wire::tubeMemset>& call, Reply<wire::tubeMemset>&) {
  if (call->width == 0 || call->height == 0) return CUDA_SUCCESS;
  if (CUresult error = check_memset(session, call->dst, call->pitch, call->element_bytes,
                                    call->width, call->height);
      error != CUDA_SUCCESS)
    return error;
  const uint32_t element = call->element_bytes;
  const bool flat = call->height == 1;
  StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  const Driver& driver = session.driver();
  const auto value8 = static_cast<unsigned char>(call->value);
  const auto value16 = static_cast<unsigned short>(call->value);
  if (flat) {
    if (element == 1) return driver.cuMemsetD8Async(call->dst, value8, call->width, op.stream);
    if (element == 2) return driver.cuMemsetD16Async(call->dst, value16, call->width, op.stream);
    return driver.cuMemsetD32Async(call->dst, call->value, call->width, op.stream);
  }
  if (element == 1)
    return driver.cuMemsetD2D8Async(call->dst, call->pitch, value8, call->width, call->height,
                                    op.stream);
  if (element == 2)
    return driver.cuMemsetD2D16Async(call->dst, call->pitch, value16, call->width, call->height,
                                     op.stream);
  return driver.cuMemsetD2D32Async(call->dst, call->pitch, call->value, call->width, call->height,
                                   op.stream);
}

}  // namespace tube::proxy
