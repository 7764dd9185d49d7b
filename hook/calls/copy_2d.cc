// Copies with pitches, in two and three dimensions, and all copies with CUDA arrays. Both sides
// visible to the GPU: one record. A pageable side goes through staging chunks, packed tightly, as
// many rows at a time as a chunk holds; rows longer than a chunk go piece by piece.
//
// An array is visible to the GPU and has no address: its side of a record is its id. A region that
// surely lies in the array is posted; any other one waits for the driver's answer, so that its
// error shows at the call.
#include <algorithm>
#include <cstring>

#include "hook/calls/contexts.h"
#include "hook/graphs/graph_steps.h"
#include "hook/memory/copy.h"
#include "hook/memory/memory_map.h"
#include "hook/objects/array.h"
#include "hook/objects/capture.h"
#include "hook/objects/device_output.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

using wire::SideKind;

struct Box {
  Says says = Says::kNothing;
  const Array* array = nullptr;  // then base, pitch and height mean nothing
  bool no_array = false;         // it should be one, but the handle is not
  uint64_t base = 0;             // address of the whole side
  uint64_t pitch = 0;            // bytes per row
  uint64_t height = 0;           // rows per slice
  uint64_t origin[3] = {};

  uint64_t row(uint64_t y, uint64_t z) const {
    return base + ((origin[2] + z) * height + origin[1] + y) * pitch + origin[0];
  }
  SideKind kind() const { return array != nullptr ? SideKind::kArray : SideKind::kAddress; }
  uint64_t place() const { return array != nullptr ? array->id() : base; }
};

struct Job {
  Box src, dst;
  uint64_t extent[3] = {};  // bytes, rows, slices
  bool sure = true;         // the driver will not refuse it

  bool has_array() const { return src.array != nullptr || dst.array != nullptr; }
};

CUresult post_visible(const Job& job, Stream* stream) {
  Request<wire::tubeCopy3D> r(stream);
  r->stream = stream->id;
  r->src_kind = job.src.kind();
  r->dst_kind = job.dst.kind();
  r->src = job.src.place();
  r->dst = job.dst.place();
  r->src_pitch = job.src.pitch;
  r->dst_pitch = job.dst.pitch;
  r->src_height = job.src.height;
  r->dst_height = job.dst.height;
  std::memcpy(r->src_origin, job.src.origin, sizeof job.src.origin);
  std::memcpy(r->dst_origin, job.dst.origin, sizeof job.dst.origin);
  std::memcpy(r->extent, job.extent, sizeof job.extent);
  r->release_chunk = shared::kNoWord;
  return job.sure ? r.post() : r.call();
}

// What one chunk carries: `rows` rows of `width` bytes, from byte x of row y of slice z on.
struct Piece {
  uint64_t x, y, z, width, rows;
};

// Between the GPU's side and the chunk.
CUresult post_piece(const Job& job, Stream* stream, const StagingChunk& claimed, bool to_gpu,
                    const Piece& p) {
  const Box& gpu = to_gpu ? job.dst : job.src;
  const uint64_t chunk_address = uint64_t{claimed.chunk} << 20;
  const uint64_t place = gpu.array != nullptr ? gpu.array->id() : gpu.row(p.y, p.z) + p.x;
  Request<wire::tubeCopy3D> r(stream);
  if (!may_post(stream, claimed)) return CUDA_ERROR_NOT_READY;
  r->stream = stream->id;
  r->src_kind = to_gpu ? SideKind::kChunk : gpu.kind();
  r->dst_kind = to_gpu ? gpu.kind() : SideKind::kChunk;
  r->src = to_gpu ? chunk_address : place;
  r->dst = to_gpu ? place : chunk_address;
  if (gpu.array != nullptr) {
    uint64_t* origin = to_gpu ? r->dst_origin : r->src_origin;
    origin[0] = gpu.origin[0] + p.x, origin[1] = gpu.origin[1] + p.y,
    origin[2] = gpu.origin[2] + p.z;
  }
  r->src_pitch = to_gpu ? p.width : gpu.pitch;
  r->dst_pitch = to_gpu ? gpu.pitch : p.width;
  r->src_height = p.rows;
  r->dst_height = p.rows;
  r->extent[0] = p.width;
  r->extent[1] = p.rows;
  r->extent[2] = 1;
  r->release_chunk = claimed.chunk;
  r->becomes = to_gpu ? wire::ChunkBecomes::kFree : wire::ChunkBecomes::kFilled;
  return job.sure ? r.post() : r.call();
}

// CUDA_ERROR_NOT_READY with the reserve: other work came in front, once more.
CUresult staged_piece_by(const StagingChunk& claimed, const Job& job, Stream* stream, bool to_gpu,
                         const Piece& p) {
  shared::ChunkPool& pool = connection().chunks;
  const uint32_t chunk = claimed.chunk;
  if (to_gpu) {
    for (uint64_t i = 0; i < p.rows; ++i) {
      std::memcpy(pool.data(chunk) + i * p.width,
                  reinterpret_cast<const void*>(job.src.row(p.y + i, p.z) + p.x), p.width);
    }
    pool.hand_over(chunk);
  }
  if (const CUresult r = post_piece(job, stream, claimed, to_gpu, p); r != CUDA_SUCCESS) {
    if (!to_gpu || (claimed.reserve && r == CUDA_ERROR_NOT_READY))
      pool.release(chunk);  // on the way to the GPU the other side hands it back, refused or not:
                            // it may be another thread's by now
    return r;
  }
  if (to_gpu) return CUDA_SUCCESS;
  if (const shared::WaitResult filled =
          pool.wait_filled(chunk, shared::Probe{probe_stream, stream});
      filled != shared::WaitResult::kDone)
    return chunk_wait_code(filled);
  for (uint64_t i = 0; i < p.rows; ++i) {
    std::memcpy(reinterpret_cast<void*>(job.dst.row(p.y + i, p.z) + p.x),
                pool.data(chunk) + i * p.width, p.width);
  }
  pool.release(chunk);
  return CUDA_SUCCESS;
}

CUresult staged_piece(const Job& job, Stream* stream, bool to_gpu, const Piece& p) {
  for (;;) {
    StagingChunk claimed;
    if (const CUresult r = claim_chunk(stream, abi::kChunkBytes, &claimed); r != CUDA_SUCCESS)
      return r;
    const CUresult r = staged_piece_by(claimed, job, stream, to_gpu, p);
    if (!claimed.reserve || r != CUDA_ERROR_NOT_READY) return r;
  }
}

// A row longer than a chunk.
CUresult staged_row(const Job& job, Stream* stream, bool to_gpu, uint64_t y, uint64_t z) {
  const uint64_t width = job.extent[0];
  if (!job.has_array()) {  // the one-dimensional paths overlap filling and copying
    return to_gpu ? upload(job.dst.row(y, z), reinterpret_cast<const std::byte*>(job.src.row(y, z)),
                           width, stream)
                  : download(reinterpret_cast<std::byte*>(job.dst.row(y, z)), job.src.row(y, z),
                             width, stream);
  }
  for (uint64_t x = 0; x < width; x += abi::kChunkBytes) {
    const CUresult r = staged_piece(job, stream, to_gpu,
                                    {x, y, z, std::min<uint64_t>(abi::kChunkBytes, width - x), 1});
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult staged(const Job& job, Stream* stream, bool to_gpu) {
  const uint64_t width = job.extent[0];
  const uint64_t rows_per_chunk = abi::kChunkBytes / width;
  for (uint64_t z = 0; z < job.extent[2]; ++z) {
    for (uint64_t y = 0; y < job.extent[1];) {
      const uint64_t rows = std::clamp<uint64_t>(rows_per_chunk, 1, job.extent[1] - y);
      const CUresult r = rows_per_chunk == 0
                             ? staged_row(job, stream, to_gpu, y, z)
                             : staged_piece(job, stream, to_gpu, {0, y, z, width, rows});
      if (r != CUDA_SUCCESS) return r;
      y += rows;
    }
  }
  return to_gpu ? CUDA_SUCCESS : take_error();
}

CUresult host_to_host(const Job& job, Stream* stream) {
  if (const CUresult r = sync_stream(stream); r != CUDA_SUCCESS) return r;
  for (uint64_t z = 0; z < job.extent[2]; ++z) {
    for (uint64_t y = 0; y < job.extent[1]; ++y) {
      std::memmove(reinterpret_cast<void*>(job.dst.row(y, z)),
                   reinterpret_cast<const void*>(job.src.row(y, z)), job.extent[0]);
    }
  }
  return CUDA_SUCCESS;
}

constexpr uint64_t kMaxPitch = 0x7fffffff;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH

bool pitches_fit(const Box& b, const uint64_t extent[3]) {
  if (b.array != nullptr) return true;
  if (extent[1] > 1 || extent[2] > 1) {
    if (b.pitch < b.origin[0] + extent[0] || b.pitch > kMaxPitch) return false;
  }
  return extent[2] <= 1 || b.height >= b.origin[1] + extent[1];
}

Side side_of_box(const Box& b) {
  return b.array != nullptr ? Side::kDevice : side_of(b.base, b.says);
}

// Bytes from a side's base to the end of the region; kFar and more: too many to tell.
constexpr uint64_t kFar = uint64_t{1} << 40;  // the products below fit

uint64_t reach_of(const Box& b, const Job& job) {
  for (int i = 0; i < 3; ++i) {
    if (b.origin[i] > kFar || job.extent[i] > kFar) return kFar;
  }
  const unsigned __int128 last_row =
      static_cast<unsigned __int128>(b.origin[2] + job.extent[2] - 1) * b.height + b.origin[1] +
      job.extent[1] - 1;
  const unsigned __int128 end = last_row * b.pitch + b.origin[0] + job.extent[0];
  return end < kFar ? static_cast<uint64_t>(end) : kFar;
}

// The whole region in one allocation of this process, or pageable, or inside an array of a known
// layout. Host memory that the GPU sees at its base must hold all of the region, as natively.
bool surely_inside(const Box& b, const Job& job, const Stream* stream) {
  if (b.array != nullptr) return b.array->element_bytes != 0;
  if (b.says == Says::kHost && side_of_box(b) == Side::kPageable) return true;
  const uint64_t reach = reach_of(b, job);
  return reach < kFar && surely_valid(b.base, reach, stream);
}

// A side that the driver would refuse: an array with a plain layout that is known here, or memory.
bool surely_outside(const Box& b, const Job& job) {
  if (b.array == nullptr) return surely_beyond(b.base, reach_of(b, job));
  return b.array->element_bytes != 0 && !inside(*b.array, b.origin, job.extent);
}

CUDA_MEMCPY3D as_driver_copy(const Job& job, Side from, Side to) {
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = from == Side::kPageable ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED;
  c.dstMemoryType = to == Side::kPageable ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED;
  c.srcHost = reinterpret_cast<const void*>(job.src.base), c.srcDevice = job.src.base;
  c.dstHost = reinterpret_cast<void*>(job.dst.base), c.dstDevice = job.dst.base;
  if (job.src.array != nullptr)
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY,
    c.srcArray = static_cast<CUarray>(array_handle(Kind::kArray, job.src.array->id()));
  if (job.dst.array != nullptr)
    c.dstMemoryType = CU_MEMORYTYPE_ARRAY,
    c.dstArray = static_cast<CUarray>(array_handle(Kind::kArray, job.dst.array->id()));
  c.srcXInBytes = job.src.origin[0], c.srcY = job.src.origin[1], c.srcZ = job.src.origin[2];
  c.dstXInBytes = job.dst.origin[0], c.dstY = job.dst.origin[1], c.dstZ = job.dst.origin[2];
  c.srcPitch = job.src.pitch, c.srcHeight = job.src.height;
  c.dstPitch = job.dst.pitch, c.dstHeight = job.dst.height;
  c.WidthInBytes = job.extent[0], c.Height = job.extent[1], c.Depth = job.extent[2];
  return c;
}

CUresult run(Job& job, Stream* stream, bool synchronous) {
  if (job.extent[0] == 0 || job.extent[1] == 0 || job.extent[2] == 0)
    return CUDA_SUCCESS;  // of no array as well
  if (job.src.no_array || job.dst.no_array) return CUDA_ERROR_INVALID_VALUE;
  if ((job.src.array == nullptr && job.src.base == 0) ||
      (job.dst.array == nullptr && job.dst.base == 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (!pitches_fit(job.src, job.extent) || !pitches_fit(job.dst, job.extent))
    return CUDA_ERROR_INVALID_VALUE;
  job.sure = surely_inside(job.src, job, stream) && surely_inside(job.dst, job, stream);
  if ((job.has_array() || !job.sure) &&
      (surely_outside(job.src, job) || surely_outside(job.dst, job)))
    return CUDA_ERROR_INVALID_VALUE;
  const Side from = side_of_box(job.src), to = side_of_box(job.dst);
  if ((job.src.says == Says::kDevice && !gpu_visible(from)) ||
      (job.dst.says == Says::kDevice && !gpu_visible(to)))
    return CUDA_ERROR_INVALID_VALUE;
  const bool on_host =
      !capturing(stream) && between_host_memory(job.dst.base, to, job.src.base, from);
  if (gpu_visible(from) && gpu_visible(to)) {
    job.sure = job.sure && !mapped_and_far(job.dst.base, job.src.base);
    if (const CUresult r = post_visible(job, stream); r != CUDA_SUCCESS) return r;
    const bool waits = on_host || (synchronous && (from == Side::kPinned || to == Side::kPinned ||
                                                   memory_map().sync_memops(job.dst.base) ||
                                                   memory_map().sync_memops(job.src.base)));
    const CUresult r = waits ? settle_stream(stream) : CUDA_SUCCESS;
    if (synchronous) collect_output();
    return r;
  }
  if (capturing(stream)) return capture_copy(stream, as_driver_copy(job, from, to));
  if (!gpu_visible(from) && !gpu_visible(to)) return host_to_host(job, stream);
  const bool to_gpu = from == Side::kPageable;
  const Box& gpu = to_gpu ? job.dst : job.src;
  if (!job.sure && gpu.array == nullptr) {  // of an array only the driver knows
    const CUresult r =
        may_copy(gpu.base, reach_of(gpu, job), to_gpu ? Access::kWrite : Access::kRead);
    if (r != CUDA_SUCCESS) return r;
  }
  const CUresult r = staged(job, stream, to_gpu);
  const CUresult settled = r == CUDA_SUCCESS && (synchronous || on_host) && to_gpu
                               ? settle_stream(stream)
                               : r;  // as in copy_bytes
  if (synchronous) collect_output();
  return settled;
}

// The place of one side by its memory type.
CUresult place_of(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array,
                  Box* box) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      box->base = reinterpret_cast<uint64_t>(host);
      box->says = Says::kHost;
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_ARRAY:
      box->array = find_array(array);
      box->no_array = box->array == nullptr;
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
      box->base = device;
      box->says = type == CU_MEMORYTYPE_DEVICE ? Says::kDevice : Says::kNothing;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

template <class P>
CUresult places_of(const P* p, Job* job) {
  if (const CUresult r =
          place_of(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, &job->src);
      r != CUDA_SUCCESS)
    return r;
  return place_of(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, &job->dst);
}

CUresult job_of(const CUDA_MEMCPY2D* p, Job* job) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = places_of(p, job); r != CUDA_SUCCESS) return r;
  job->extent[0] = p->WidthInBytes, job->extent[1] = p->Height, job->extent[2] = 1;
  job->src.pitch = p->srcPitch != 0 ? p->srcPitch : p->srcXInBytes + p->WidthInBytes;
  job->dst.pitch = p->dstPitch != 0 ? p->dstPitch : p->dstXInBytes + p->WidthInBytes;
  job->src.origin[0] = p->srcXInBytes, job->src.origin[1] = p->srcY;
  job->dst.origin[0] = p->dstXInBytes, job->dst.origin[1] = p->dstY;
  job->src.height = p->srcY + p->Height;
  job->dst.height = p->dstY + p->Height;
  return CUDA_SUCCESS;
}

template <class P>
CUresult job_of_3d(const P* p, Job* job) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The driver looks at levels only for arrays.
  if ((p->srcLOD != 0 && p->srcMemoryType == CU_MEMORYTYPE_ARRAY) ||
      (p->dstLOD != 0 && p->dstMemoryType == CU_MEMORYTYPE_ARRAY)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult r = places_of(p, job); r != CUDA_SUCCESS) return r;
  job->extent[0] = p->WidthInBytes, job->extent[1] = p->Height, job->extent[2] = p->Depth;
  job->src.pitch = p->srcPitch != 0 ? p->srcPitch : p->srcXInBytes + p->WidthInBytes;
  job->dst.pitch = p->dstPitch != 0 ? p->dstPitch : p->dstXInBytes + p->WidthInBytes;
  job->src.origin[0] = p->srcXInBytes, job->src.origin[1] = p->srcY, job->src.origin[2] = p->srcZ;
  job->dst.origin[0] = p->dstXInBytes, job->dst.origin[1] = p->dstY, job->dst.origin[2] = p->dstZ;
  job->src.height = p->srcHeight != 0 ? p->srcHeight : p->srcY + p->Height;
  job->dst.height = p->dstHeight != 0 ? p->dstHeight : p->dstY + p->Height;
  return CUDA_SUCCESS;
}

CUresult run_on(CUresult parsed, Job& job, CUstream hStream, bool synchronous) {
  if (parsed != CUDA_SUCCESS) return parsed;
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = synchronous ? forbid_capture(stream) : admit_operation(stream);
      r != CUDA_SUCCESS)
    return r;
  return run(job, stream, synchronous);
}

// ---- one-dimensional copies with an array: bytes of its first row ----

Box array_box(CUarray array, uint64_t offset) {
  Box b;
  b.array = find_array(array);
  b.no_array = b.array == nullptr;
  b.origin[0] = offset;
  return b;
}

Box memory_box(uint64_t address, Says says, uint64_t bytes) {
  Box b;
  b.base = address;
  b.says = says;
  b.pitch = bytes;
  b.height = 1;
  return b;
}
Box host_box(const void* p, uint64_t bytes) {
  return memory_box(reinterpret_cast<uint64_t>(p), Says::kHost, bytes);
}

CUresult copy_flat(const Box& dst, const Box& src, uint64_t bytes, CUstream hStream,
                   bool synchronous) {
  Job job;
  job.src = src;
  job.dst = dst;
  job.extent[0] = bytes, job.extent[1] = 1, job.extent[2] = 1;
  return run_on(CUDA_SUCCESS, job, hStream, synchronous);
}

}  // namespace

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return copy_flat(array_box(dstArray, dstOffset), array_box(srcArray, srcOffset), ByteCount,
                   nullptr, true);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return copy_flat(memory_box(dstDevice, Says::kDevice, ByteCount), array_box(srcArray, srcOffset),
                   ByteCount, nullptr, true);
}
CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount) {
  return copy_flat(array_box(dstArray, dstOffset), memory_box(srcDevice, Says::kDevice, ByteCount),
                   ByteCount, nullptr, true);
}
CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  return copy_flat(host_box(dstHost, ByteCount), array_box(srcArray, srcOffset), ByteCount, nullptr,
                   true);
}
CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                         size_t ByteCount) {
  return copy_flat(array_box(dstArray, dstOffset), host_box(srcHost, ByteCount), ByteCount, nullptr,
                   true);
}
CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  return copy_flat(host_box(dstHost, ByteCount), array_box(srcArray, srcOffset), ByteCount, hStream,
                   false);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                              size_t ByteCount, CUstream hStream) {
  return copy_flat(array_box(dstArray, dstOffset), host_box(srcHost, ByteCount), ByteCount, hStream,
                   false);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) {
  Job job;
  const CUresult parsed = job_of(pCopy, &job);
  return run_on(parsed, job, nullptr, true);
}
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) { return hook::cuMemcpy2D_v2(pCopy); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  Job job;
  const CUresult parsed = job_of(pCopy, &job);
  return run_on(parsed, job, hStream, false);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) {
  Job job;
  const CUresult parsed = job_of_3d(pCopy, &job);
  return run_on(parsed, job, nullptr, true);
}
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  Job job;
  const CUresult parsed = job_of_3d(pCopy, &job);
  return run_on(parsed, job, hStream, false);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  Job job;
  if (const CUresult parsed = job_of_3d(pCopy, &job); parsed != CUDA_SUCCESS) return parsed;
  return in_peer_order(pCopy->dstContext, pCopy->srcContext,
                       [&] { return run_on(CUDA_SUCCESS, job, nullptr, true); });
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  Job job;
  const CUresult parsed = job_of_3d(pCopy, &job);
  return run_on(parsed, job, hStream, false);
}

}  // namespace tube::hook
