// Copies and memsets. Both sides of a copy are checked against what the client owns, then it goes
// straight on its stream.
//
// A chunk goes back to the client by the GPU's own write behind the copy; when the copy cannot be
// issued, the session hands it back instead, so that the client never waits for a chunk that is
// lost.
#include <cstring>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/calls/copy_region.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"
#include "sharedmem/chunks.h"

namespace tube::proxy {

static_assert(static_cast<uint64_t>(wire::ChunkBecomes::kFree) == abi::kChunkFree &&
              static_cast<uint64_t>(wire::ChunkBecomes::kFilled) == abi::kChunkFilled);

CUresult handle(Session& session, const Decoded<wire::tubeCopy>& call, Reply<wire::tubeCopy>&) {
  if (call->bytes == 0) return CUDA_SUCCESS;
  if (CUresult error = session.check_device_range(call->dst, call->bytes); error != CUDA_SUCCESS)
    return error;
  if (CUresult error = session.check_device_range(call->src, call->bytes); error != CUDA_SUCCESS)
    return error;
  StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  session.count_copy(call->bytes);
  return session.driver().cuMemcpyAsync(call->dst, call->src, call->bytes, op.stream);
}

CUresult handle(Session& session, const Decoded<wire::tubeCopyInline>& call,
                Reply<wire::tubeCopyInline>&) {
  const auto data = call.blob(call->data);
  if (data.empty()) return CUDA_SUCCESS;
  if (CUresult error = session.check_device_range(call->dst, data.size()); error != CUDA_SUCCESS)
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
  session.count_copy(data.size());
  // Pageable to the driver: it takes the bytes before it returns.
  const CUresult error =
      session.driver().cuMemcpyHtoDAsync_v2(call->dst, data.data(), data.size(), op.stream);
  if (error == CUDA_SUCCESS && call->left != 0) session.uploaded(*op.state);
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeMoreChunks>&,
                Reply<wire::tubeMoreChunks>&) {
  return session.take_more_chunks();
}

CUresult handle(Session& session, const Decoded<wire::tubeCopyChunk>& call,
                Reply<wire::tubeCopyChunk>&) {
  if (!shared::valid_chunk_range(session.chunks(), call->chunk, call->chunk_offset, call->bytes))
    return CUDA_ERROR_INVALID_VALUE;
  const bool to_device = call->becomes == wire::ChunkBecomes::kFree;
  const Driver& driver = session.driver();
  std::byte* const chunk = session.chunk_data(call->chunk) + call->chunk_offset;
  StreamOp op;
  op.error = session.check_device_range(call->dptr, call->bytes);
  if (op.error == CUDA_SUCCESS) op = session.stream_op(call->stream);
  if (op.error == CUDA_SUCCESS && call->bytes != 0) {
    session.count_copy(call->bytes);
    op.error = to_device ? driver.cuMemcpyHtoDAsync_v2(call->dptr, chunk, call->bytes, op.stream)
                         : driver.cuMemcpyDtoHAsync_v2(chunk, call->dptr, call->bytes, op.stream);
  }
  if (op.error == CUDA_SUCCESS)
    op.error = driver.cuStreamWriteValue64_v2(op.stream, session.chunk_state_address(call->chunk),
                                              static_cast<uint64_t>(call->becomes), 0);
  if (op.error == CUDA_SUCCESS && to_device && call->left != 0) session.uploaded(*op.state);
  return op.error;
}

namespace {

// Bytes from the side's start to behind its last one; false when the sum leaves 2^62.
bool reach(const CopySide& side, const uint64_t (&extent)[3], uint64_t* bytes) {
  unsigned __int128 rows =
      static_cast<unsigned __int128>(side.origin[2] + extent[2] - 1) * side.height +
      side.origin[1] + extent[1] - 1;
  unsigned __int128 end = rows * side.pitch + side.origin[0] + extent[0];
  if (end > (static_cast<unsigned __int128>(1) << 62)) return false;
  *bytes = static_cast<uint64_t>(end);
  return true;
}

struct ResolvedSide {
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
  CUdeviceptr device = 0;
  void* host = nullptr;
  CUarray array = nullptr;
};

CUresult resolve_side(Session& session, const CopySide& side, const uint64_t (&extent)[3],
                      ResolvedSide& out) {
  if (side.kind == wire::SideKind::kArray) {
    auto array = session.resolve<CUarray>(wire::Kind::kArray, side.address);
    out.type = CU_MEMORYTYPE_ARRAY;
    out.array = array.handle;
    return array.error;
  }
  for (int i = 0; i < 3; ++i) {
    if (side.origin[i] >> 60 || extent[i] >> 60) return CUDA_ERROR_INVALID_VALUE;
  }
  if (extent[1] > 1 || extent[2] > 1) {
    if (side.pitch < extent[0] || (extent[2] > 1 && side.height < extent[1]))
      return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t bytes = 0;
  if (!reach(side, extent, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (side.kind == wire::SideKind::kAddress) {
    out.device = side.address;
    return session.check_device_range(side.address, bytes);
  }
  const uint64_t chunk = side.address >> 20;
  const uint64_t offset = side.address & (abi::kChunkBytes - 1);
  static_assert(abi::kChunkBytes == 1u << 20);
  if (side.kind != wire::SideKind::kChunk || chunk >= session.chunks())
    return CUDA_ERROR_INVALID_VALUE;
  if (!shared::valid_chunk_range(session.chunks(), static_cast<uint32_t>(chunk), offset, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  out.type = CU_MEMORYTYPE_HOST;
  out.host = session.chunk_data(static_cast<uint32_t>(chunk)) + offset;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult build_copy(Session& session, const CopySide& src, const CopySide& dst,
                    const uint64_t (&extent)[3], CUDA_MEMCPY3D* copy) {
  ResolvedSide from;
  ResolvedSide to;
  if (CUresult error = resolve_side(session, src, extent, from); error != CUDA_SUCCESS)
    return error;
  if (CUresult error = resolve_side(session, dst, extent, to); error != CUDA_SUCCESS) return error;
  *copy = {};
  copy->srcXInBytes = src.origin[0];
  copy->srcY = src.origin[1];
  copy->srcZ = src.origin[2];
  copy->srcMemoryType = from.type;
  copy->srcHost = from.host;
  copy->srcDevice = from.device;
  copy->srcArray = from.array;
  copy->srcPitch = src.pitch;
  copy->srcHeight = src.height;
  copy->dstXInBytes = dst.origin[0];
  copy->dstY = dst.origin[1];
  copy->dstZ = dst.origin[2];
  copy->dstMemoryType = to.type;
  copy->dstHost = to.host;
  copy->dstDevice = to.device;
  copy->dstArray = to.array;
  copy->dstPitch = dst.pitch;
  copy->dstHeight = dst.height;
  copy->WidthInBytes = extent[0];
  copy->Height = extent[1];
  copy->Depth = extent[2];
  return CUDA_SUCCESS;
}

namespace {

// The GPU that an array was made on; `other` for a side that is none: an address says by itself
// where it is.
uint32_t array_gpu(Session& session, wire::SideKind kind, uint64_t untrusted_id, uint32_t other) {
  const Object* array = kind == wire::SideKind::kArray
                            ? session.objects().find(wire::Kind::kArray, untrusted_id)
                            : nullptr;
  const ContextShare* share = array != nullptr ? session.context(array->context) : nullptr;
  return share != nullptr ? share->gpu : other;
}

// An array of another GPU than the stream's can only be named together with its context.
CUresult issue_copy(Session& session, const wire::tubeCopy3D& call, const CUDA_MEMCPY3D& copy,
                    CUstream stream) {
  const uint32_t here = session.context()->gpu;
  const uint32_t from = array_gpu(session, call.src_kind, call.src, here);
  const uint32_t to = array_gpu(session, call.dst_kind, call.dst, here);
  if (from == here && to == here) return session.driver().cuMemcpy3DAsync_v2(&copy, stream);
  CUDA_MEMCPY3D_PEER peer;
  static_assert(sizeof(peer) ==
                sizeof(copy));  // they differ in the contexts, which stand where reserved words are
  std::memcpy(&peer, &copy, sizeof(peer));
  peer.srcContext = session.shared().gpus[from].context;
  peer.dstContext = session.shared().gpus[to].context;
  return session.driver().cuMemcpy3DPeerAsync(&peer, stream);
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeCopy3D>& call, Reply<wire::tubeCopy3D>&) {
  constexpr uint32_t kNoChunk = 0xffffffffu;
  const bool releases = call->release_chunk != kNoChunk;
  if (releases && call->release_chunk >= session.chunks()) return CUDA_ERROR_INVALID_VALUE;
  const bool nothing = call->extent[0] == 0 || call->extent[1] == 0 || call->extent[2] == 0;
  StreamOp op = session.stream_op(call->stream);
  if (op.error == CUDA_SUCCESS && !nothing) {
    CUDA_MEMCPY3D copy;
    op.error = build_copy(
        session, {call->src_kind, call->src, call->src_pitch, call->src_height, call->src_origin},
        {call->dst_kind, call->dst, call->dst_pitch, call->dst_height, call->dst_origin},
        call->extent, &copy);
    if (op.error == CUDA_SUCCESS)
      session.count_copy(call->extent[0] * call->extent[1] * call->extent[2]);
    if (op.error == CUDA_SUCCESS) op.error = issue_copy(session, call.fixed, copy, op.stream);
  }
  if (!releases || op.error != CUDA_SUCCESS) return op.error;
  return session.driver().cuStreamWriteValue64_v2(op.stream,
                                                  session.chunk_state_address(call->release_chunk),
                                                  static_cast<uint64_t>(call->becomes), 0);
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
  return session.check_device_range(dst, static_cast<uint64_t>(bytes));
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
