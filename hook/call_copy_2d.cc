// Copies with pitches, in two and three dimensions. Both sides visible to the GPU: one record. A pageable side goes through
// staging chunks, packed tightly, as many rows at a time as a chunk holds; rows longer than a chunk go one by one as
// one-dimensional copies.
#include <algorithm>
#include <cstring>

#include "hook/copy.h"
#include "hook/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

struct Box {
  Says says = Says::kNothing;
  uint64_t base = 0;    // address of the whole side
  uint64_t pitch = 0;   // bytes per row
  uint64_t height = 0;  // rows per slice
  uint64_t origin[3] = {};

  uint64_t row(uint64_t y, uint64_t z) const { return base + ((origin[2] + z) * height + origin[1] + y) * pitch + origin[0]; }
};

struct Job {
  Box src, dst;
  uint64_t extent[3] = {};  // bytes, rows, slices
};

CUresult post_visible(const Job& job, Stream* stream) {
  Request<wire::tubeCopy3D> r(stream);
  r->stream = stream->id;
  r->src = job.src.base;
  r->dst = job.dst.base;
  r->src_pitch = job.src.pitch;
  r->dst_pitch = job.dst.pitch;
  r->src_height = job.src.height;
  r->dst_height = job.dst.height;
  std::memcpy(r->src_origin, job.src.origin, sizeof job.src.origin);
  std::memcpy(r->dst_origin, job.dst.origin, sizeof job.dst.origin);
  std::memcpy(r->extent, job.extent, sizeof job.extent);
  r->release_chunk = shared::kNoWord;
  return r.post();
}

// `rows` rows of slice z from row y on, between the GPU's side and the chunk.
CUresult post_rows(const Job& job, Stream* stream, uint32_t chunk, bool to_gpu, uint64_t y, uint64_t z, uint64_t rows) {
  const Box& gpu = to_gpu ? job.dst : job.src;
  const uint64_t width = job.extent[0];
  const uint64_t chunk_address = uint64_t{chunk} << 20;
  Request<wire::tubeCopy3D> r(stream);
  r->stream = stream->id;
  r->src_kind = to_gpu ? 1 : 0;
  r->dst_kind = to_gpu ? 0 : 1;
  r->src = to_gpu ? chunk_address : gpu.row(y, z);
  r->dst = to_gpu ? gpu.row(y, z) : chunk_address;
  r->src_pitch = to_gpu ? width : gpu.pitch;
  r->dst_pitch = to_gpu ? gpu.pitch : width;
  r->src_height = rows;
  r->dst_height = rows;
  r->extent[0] = width;
  r->extent[1] = rows;
  r->extent[2] = 1;
  r->release_chunk = chunk;
  r->release_value = static_cast<uint32_t>(to_gpu ? abi::kChunkFree : abi::kChunkFilled);
  return r.post();
}

CUresult staged_rows(const Job& job, Stream* stream, bool to_gpu, uint64_t y, uint64_t z, uint64_t rows) {
  shared::ChunkPool& pool = connection().chunks;
  const shared::Probe probe{probe_for_faults, stream};
  const uint64_t width = job.extent[0];
  uint32_t chunk = 0;
  if (const shared::WaitResult got = pool.claim(&chunk, probe); got != shared::WaitResult::kDone) return chunk_wait_code(got);
  if (to_gpu) {
    for (uint64_t i = 0; i < rows; ++i) {
      std::memcpy(pool.data(chunk) + i * width, reinterpret_cast<const void*>(job.src.row(y + i, z)), width);
    }
  }
  if (const CUresult r = post_rows(job, stream, chunk, to_gpu, y, z, rows); r != CUDA_SUCCESS) {
    pool.release(chunk);
    return r;
  }
  if (to_gpu) return CUDA_SUCCESS;
  if (const shared::WaitResult filled = pool.wait_filled(chunk, probe); filled != shared::WaitResult::kDone) return chunk_wait_code(filled);
  for (uint64_t i = 0; i < rows; ++i) {
    std::memcpy(reinterpret_cast<void*>(job.dst.row(y + i, z)), pool.data(chunk) + i * width, width);
  }
  pool.release(chunk);
  return CUDA_SUCCESS;
}

CUresult staged(const Job& job, Stream* stream, bool to_gpu) {
  const uint64_t width = job.extent[0];
  const uint64_t rows_per_chunk = abi::kChunkBytes / width;
  for (uint64_t z = 0; z < job.extent[2]; ++z) {
    for (uint64_t y = 0; y < job.extent[1];) {
      CUresult r;
      uint64_t rows = 1;
      if (rows_per_chunk == 0) {
        r = to_gpu ? upload(job.dst.row(y, z), reinterpret_cast<const std::byte*>(job.src.row(y, z)), width, stream)
                   : download(reinterpret_cast<std::byte*>(job.dst.row(y, z)), job.src.row(y, z), width, stream);
      } else {
        rows = std::min(rows_per_chunk, job.extent[1] - y);
        r = staged_rows(job, stream, to_gpu, y, z, rows);
      }
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
      std::memmove(reinterpret_cast<void*>(job.dst.row(y, z)), reinterpret_cast<const void*>(job.src.row(y, z)), job.extent[0]);
    }
  }
  return CUDA_SUCCESS;
}

bool pitches_fit(const Box& b, const uint64_t extent[3]) {
  if (extent[1] > 1 || extent[2] > 1) {
    if (b.pitch < b.origin[0] + extent[0]) return false;
  }
  return extent[2] <= 1 || b.height >= b.origin[1] + extent[1];
}

CUresult run(const Job& job, Stream* stream, bool synchronous) {
  if (job.extent[0] == 0 || job.extent[1] == 0 || job.extent[2] == 0) return CUDA_SUCCESS;
  if (job.src.base == 0 || job.dst.base == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!pitches_fit(job.src, job.extent) || !pitches_fit(job.dst, job.extent)) return CUDA_ERROR_INVALID_VALUE;
  const Side from = side_of(job.src.base, job.src.says), to = side_of(job.dst.base, job.dst.says);
  if (gpu_visible(from) && gpu_visible(to)) {
    if (const CUresult r = post_visible(job, stream); r != CUDA_SUCCESS) return r;
    return synchronous && (from == Side::kPinned || to == Side::kPinned) ? sync_stream(stream) : CUDA_SUCCESS;
  }
  if (capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!gpu_visible(from) && !gpu_visible(to)) return host_to_host(job, stream);
  const CUresult r = staged(job, stream, from == Side::kPageable);
  return r == CUDA_SUCCESS && synchronous && from == Side::kPageable ? sync_stream(stream) : r;  // as in copy_bytes
}

// The address of one side by its memory type; false for arrays, which do not exist here.
bool base_of(CUmemorytype type, const void* host, CUdeviceptr device, Box* box) {
  if (type == CU_MEMORYTYPE_HOST) {
    box->base = reinterpret_cast<uint64_t>(host);
    box->says = Says::kHost;
    return true;
  }
  box->base = device;
  box->says = type == CU_MEMORYTYPE_DEVICE ? Says::kDevice : Says::kNothing;
  return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

CUresult job_of(const CUDA_MEMCPY2D* p, Job* job) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!base_of(p->srcMemoryType, p->srcHost, p->srcDevice, &job->src) ||
      !base_of(p->dstMemoryType, p->dstHost, p->dstDevice, &job->dst)) {
    return unsupported("cuMemcpy2D with arrays", "arrays are not forwarded yet");
  }
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
  if (!base_of(p->srcMemoryType, p->srcHost, p->srcDevice, &job->src) ||
      !base_of(p->dstMemoryType, p->dstHost, p->dstDevice, &job->dst)) {
    return unsupported("cuMemcpy3D with arrays", "arrays are not forwarded yet");
  }
  job->extent[0] = p->WidthInBytes, job->extent[1] = p->Height, job->extent[2] = p->Depth;
  job->src.pitch = p->srcPitch != 0 ? p->srcPitch : p->srcXInBytes + p->WidthInBytes;
  job->dst.pitch = p->dstPitch != 0 ? p->dstPitch : p->dstXInBytes + p->WidthInBytes;
  job->src.origin[0] = p->srcXInBytes, job->src.origin[1] = p->srcY, job->src.origin[2] = p->srcZ;
  job->dst.origin[0] = p->dstXInBytes, job->dst.origin[1] = p->dstY, job->dst.origin[2] = p->dstZ;
  job->src.height = p->srcHeight != 0 ? p->srcHeight : p->srcY + p->Height;
  job->dst.height = p->dstHeight != 0 ? p->dstHeight : p->dstY + p->Height;
  return CUDA_SUCCESS;
}

CUresult run_on(CUresult parsed, const Job& job, CUstream hStream, bool synchronous) {
  if (parsed != CUDA_SUCCESS) return parsed;
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (synchronous || stream->legacy()) {
    if (const CUresult r = forbid_capture(stream); r != CUDA_SUCCESS) return r;
  }
  return run(job, stream, synchronous);
}

}  // namespace

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
  const CUresult parsed = job_of_3d(pCopy, &job);
  return run_on(parsed, job, nullptr, true);
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  Job job;
  const CUresult parsed = job_of_3d(pCopy, &job);
  return run_on(parsed, job, hStream, false);
}

}  // namespace tube::hook
