// How bytes travel.
//
//   both sides GPU-visible   one posted tubeCopy
//   pageable -> GPU          up to 32 KiB inside the record; more through 1 MiB staging chunks,
//                            each posted as it is filled, so that filling and the GPU's copying
//                            overlap; the GPU hands chunks back. A copy that fills the first few
//                            asks the proxy for larger ones. A synchronous copy of up to 64
//                            KiB returns when its bytes are taken, as natively (leave_upload)
//   GPU -> pageable          chunks posted ahead (up to kAhead), emptied in order as the GPU fills
//                            them
//   8 MiB and more           in both directions by several threads (large_copies.cc)
//
// A thread that holds chunks never waits for another one: it empties its oldest first. So two
// threads cannot block each other with half the pool each. Who finds none free waits for its own
// stream only (staging_chunks.cc).
#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/log.h"
#include "hook/graphs/graph_steps.h"
#include "hook/memory/copy.h"
#include "hook/memory/memory_calls.h"
#include "hook/memory/memory_map.h"
#include "hook/objects/device_output.h"
#include "hook/objects/support.h"
#include "policies/copy_threads.h"

namespace tube::hook {
namespace {

constexpr uint32_t kAhead = 8;  // chunks in flight for one download: enough to hide the copy out
constexpr uint64_t kLeftBehind =
    64u << 10;  // of synchronous uploads: up to here the programming guide calls them asynchronous

constinit std::atomic<bool> g_memory_shared{false};

CUresult copy_visible(uint64_t dst, uint64_t src, uint64_t bytes, Stream* stream) {
  const bool sure = surely_valid(dst, bytes, stream) && surely_valid(src, bytes, stream) &&
                    !mapped_and_far(dst, src);
  if (!sure && (surely_beyond(dst, bytes) || surely_beyond(src, bytes)))
    return CUDA_ERROR_INVALID_VALUE;
  Request<wire::tubeCopy> r(stream);
  r->stream = stream->id;
  r->dst = dst;
  r->src = src;
  r->bytes = bytes;
  if (sure) return r.post();
  // An address this process has not handed out may be wrong: an immediate error stays immediate.
  // tubeCopy is a posted message, and a reply slot on it only makes the proxy answer.
  return r.call();
}

// Has all work before an upload on the legacy stream ended, other uploads aside? Those cannot fail.
// Natively an upload reports what went wrong before it, so with anything else under way it waits.
// `*posted`: what there was.
bool only_uploads_pending(const Stream* stream, uint64_t* posted) {
  Locked locked(connection().producer);
  *posted = stream->context->blocking_posted;
  return (*posted == stream->signalled || *posted == stream->uploads_until) &&
         mark_reached(Mark{stream->word, stream->value});
}

// Memory of others, or an object of the store, which counts as written once it is sealed.
bool others_may_read(uint64_t address) {
  Allocation a;
  return g_memory_shared.load(std::memory_order_relaxed) ||
         (memory_map().find(address, &a) && a.kind == MemoryKind::kOpened);
}

bool may_leave_upload(uint64_t dst, Side to, uint64_t bytes, const Stream* stream,
                      uint64_t* posted) {
  return to == Side::kDevice && bytes <= kLeftBehind && stream->legacy() && !others_may_read(dst) &&
         only_uploads_pending(stream, posted);
}

// A small synchronous upload: returns when the record has the bytes. Programs launch on other
// streams right away, and natively the data is there by then; here the proxy lets this program's
// other streams wait for it (Session::uploaded). Another process must find the data
// too, so copies to memory that other processes see do not come here. With other work in front of
// it after all, from another thread, they must not wait, and this call does.
CUresult leave_upload(uint64_t dst, const std::byte* src, uint64_t bytes, Stream* stream,
                      uint64_t posted) {
  static_assert(kLeftBehind <= abi::kChunkBytes);  // one record, whichever way it goes
  LeftUpload upload_left{posted};
  if (const CUresult r = upload(dst, src, bytes, stream, &upload_left); r != CUDA_SUCCESS) return r;
  bool shared = false;  // by now, by another thread, which waits for such uploads once
  {
    Locked locked(connection().producer);
    shared = g_memory_shared.load(std::memory_order_relaxed);
  }
  return shared || !upload_left.left ? settle_stream(stream) : take_error();
}

// The record of an upload is being written, with the producer lock held: whether it may be left.
bool is_left(Stream* stream, LeftUpload* upload) {
  if (upload == nullptr) return false;
  const uint64_t now = stream->context->blocking_posted;
  upload->left = now == upload->posted || now == stream->uploads_until;
  if (upload->left) stream->uploads_until = now + 1;  // with the record
  return upload->left;
}

}  // namespace

// The caller may have no current context: what is shared belongs to none.
void note_memory_shared() {
  if (g_memory_shared.exchange(true, std::memory_order_relaxed)) return;
  const auto finish = [](Context* context) {
    uint64_t posted = 0;
    if (only_uploads_pending(&context->legacy, &posted) && posted != 0)
      (void)settle_stream(&context->legacy);
  };
  for (uint32_t i = 0; i < process().device_count; ++i) finish(process().primaries[i]);
  if (Context* current = current_context(); current != nullptr && !current->primary)
    finish(current);
}

bool surely_valid(uint64_t address, uint64_t bytes, const Stream* stream) {
  constexpr int kFew = 8;  // a look at more costs what an answer does
  Allocation a;
  for (int i = 0; i < kFew && memory_map().find(address, &a); ++i) {
    const bool mapped = a.kind == MemoryKind::kMapped;
    if (mapped &&
        (stream == nullptr || a.own_device != static_cast<int32_t>(stream->context->device)))
      return false;
    if (i > 0 && (!mapped || capturing(stream))) return false;
    const uint64_t left = a.size_bytes - (address - a.base);
    if (bytes <= left) return true;
    address += left;
    bytes -= left;
  }
  return false;
}

bool surely_beyond(uint64_t address, uint64_t bytes) {
  Allocation a;
  if (!memory_map().find(address, &a) || bytes <= a.size_bytes - (address - a.base)) return false;
  return a.kind == MemoryKind::kDevice || a.kind == MemoryKind::kPinned ||
         a.kind == MemoryKind::kManaged || a.kind == MemoryKind::kRegistered;
}

CUresult may_copy(uint64_t address, uint64_t bytes, Access access) {
  if (surely_beyond(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  Request<wire::tubeMayCopy> r;
  r->dptr = address;
  r->bytes = bytes;
  r->write = access == Access::kWrite ? 1 : 0;
  return r.call();
}

bool mapped_and_far(uint64_t dst, uint64_t src) {
  if (process().device_count < 2) return false;
  Allocation a, b;
  const bool dst_known = memory_map().find(dst, &a), src_known = memory_map().find(src, &b);
  if (a.kind != MemoryKind::kMapped && b.kind != MemoryKind::kMapped) return false;
  // Opened memory and a graph's may be another GPU's than their context's.
  const auto gpu_of = [](const Allocation& x) -> int32_t {
    if (x.kind == MemoryKind::kMapped) return x.own_device;
    const bool its_contexts = x.kind == MemoryKind::kDevice || x.kind == MemoryKind::kPinned ||
                              x.kind == MemoryKind::kGlobal;
    return its_contexts && x.context != nullptr ? static_cast<int32_t>(x.context->device) : -1;
  };
  return !dst_known || !src_known || gpu_of(a) != gpu_of(b);
}

Side side_of(uint64_t address, Says says) {
  const Connection& c = connection();
  if (c.in_device_window(address)) return Side::kDevice;
  if (c.in_pinned_window(address)) return Side::kPinned;
  MemoryKind kind;
  if (!memory_map().outside_windows(address, &kind)) return Side::kPageable;
  if (kind == MemoryKind::kRegistered) return Side::kPinned;
  return says != Says::kHost ? Side::kDevice : Side::kPageable;
}

bool between_host_memory(uint64_t dst, Side to, uint64_t src, Side from) {
  const auto host = [](uint64_t address, Side side) {
    Allocation a;
    return side == Side::kPageable ||
           (side == Side::kPinned && memory_map().find(address, &a) && host_memory(a.kind));
  };
  return host(dst, to) && host(src, from);
}

CUresult post_chunk(Stream* stream, wire::ChunkBecomes becomes, const StagingChunk& claimed,
                    uint64_t bytes, uint64_t device_address, bool sure, LeftUpload* left) {
  Request<wire::tubeCopyChunk> r(stream);
  if (!may_post(stream, claimed)) return CUDA_ERROR_NOT_READY;
  r->stream = stream->id;
  r->becomes = becomes;
  r->chunk = claimed.chunk;
  r->chunk_offset = 0;
  r->bytes = static_cast<uint32_t>(bytes);
  r->dptr = device_address;
  r->left = is_left(stream, left) ? 1 : 0;
  return sure ? r.post() : r.call();
}

// The proxy makes them beside its other work: until then the first ones do.
void want_chunks_for(uint64_t bytes) {
  shared::ChunkPool& pool = connection().chunks;
  static std::atomic<bool> refused{false};
  if (bytes <= uint64_t{abi::kFirstChunks} / 2 * abi::kChunkBytes || pool.grown() ||
      refused.load(std::memory_order_relaxed))
    return;
  Request<wire::tubeMoreChunks> r;
  const CUresult answer = r.call();
  if (answer == CUDA_SUCCESS) pool.grow();
  else refused.store(answer != CUDA_ERROR_NOT_READY, std::memory_order_relaxed);
}

CUresult chunk_wait_code(shared::WaitResult result) {
  if (result == shared::WaitResult::kDone) return CUDA_SUCCESS;
  const CUresult code = transport_failed(result);
  (void)take_error();
  return code;
}

CUresult upload(uint64_t dst, const std::byte* src, uint64_t bytes, Stream* stream,
                LeftUpload* left) {
  const bool sure = surely_valid(
      dst, bytes, stream);  // otherwise each piece waits for its answer, see copy_visible
  if (!sure) {
    if (const CUresult r = may_copy(dst, bytes, Access::kWrite); r != CUDA_SUCCESS) return r;
  }
  // To memory of the host the driver would copy the record's bytes itself, behind the stream's
  // work.
  if (bytes <= abi::kMaxInlineCopyBytes && side_of(dst, Says::kNothing) != Side::kPinned) {
    Request<wire::tubeCopyInline> r(stream, blob_room(bytes));
    r->stream = stream->id;
    r->dst = dst;
    r->left = is_left(stream, left) ? 1 : 0;
    r.put(&wire::tubeCopyInline::data, src, static_cast<uint32_t>(bytes));
    return sure ? r.post() : r.call();
  }
  shared::ChunkPool& pool = connection().chunks;
  want_chunks_for(bytes);
  CUresult result = CUDA_SUCCESS;
  if (bytes >= policies::kLargeCopyBytes && upload_by_team(dst, src, bytes, stream, sure, &result))
    return result;
  while (bytes != 0) {
    StagingChunk claimed;
    if (const CUresult r = claim_chunk(stream, abi::kChunkBytes, &claimed); r != CUDA_SUCCESS)
      return r;
    const uint64_t piece = std::min<uint64_t>(bytes, abi::kChunkBytes);
    std::memcpy(pool.data(claimed.chunk), src, piece);
    pool.hand_over(claimed.chunk);
    // Refused or not, the chunk is handed back by the other side: by now it may be another
    // thread's.
    const CUresult r =
        post_chunk(stream, wire::ChunkBecomes::kFree, claimed, piece, dst, sure, left);
    if (claimed.reserve && r == CUDA_ERROR_NOT_READY) {
      pool.release(claimed.chunk);
      continue;
    }
    if (r != CUDA_SUCCESS) return r;
    dst += piece;
    src += piece;
    bytes -= piece;
  }
  return CUDA_SUCCESS;
}

CUresult download(std::byte* dst, uint64_t src, uint64_t bytes, Stream* stream) {
  const bool sure = surely_valid(src, bytes, stream);
  if (!sure) {
    if (const CUresult r = may_copy(src, bytes, Access::kRead); r != CUDA_SUCCESS) return r;
  }
  shared::ChunkPool& pool = connection().chunks;
  want_chunks_for(bytes);
  CUresult result = CUDA_SUCCESS;
  if (bytes >= policies::kLargeCopyBytes &&
      download_by_team(dst, src, bytes, stream, sure, &result))
    return result != CUDA_SUCCESS ? result : take_error();
  const shared::Probe probe{probe_stream, stream};
  struct InFlight {
    uint32_t chunk;
    uint64_t bytes;
  } flight[kAhead];
  uint32_t first = 0, count = 0;
  CUresult error = CUDA_SUCCESS;
  while ((bytes != 0 && error == CUDA_SUCCESS) || count != 0) {
    if (bytes != 0 && count < kAhead && error == CUDA_SUCCESS) {
      StagingChunk claimed;
      bool have = pool.try_claim(&claimed.chunk);
      if (!have && count == 0) {
        if (const CUresult r = claim_chunk(stream, abi::kChunkBytes, &claimed); r != CUDA_SUCCESS)
          return r;
        have = true;
      }
      if (have) {
        const uint64_t piece = std::min<uint64_t>(bytes, abi::kChunkBytes);
        error = post_chunk(stream, wire::ChunkBecomes::kFilled, claimed, piece, src, sure);
        if (error != CUDA_SUCCESS) {
          pool.release(claimed.chunk);
          if (claimed.reserve && error == CUDA_ERROR_NOT_READY) error = CUDA_SUCCESS;
          continue;
        }
        flight[(first + count++) % kAhead] = {claimed.chunk, piece};
        src += piece;
        bytes -= piece;
        continue;
      }
    }
    const InFlight oldest = flight[first];
    const shared::WaitResult filled = pool.wait_filled(oldest.chunk, probe);
    // A sticky error leaves the chunks to the GPU: they are lost with the context.
    if (filled != shared::WaitResult::kDone) return chunk_wait_code(filled);
    std::memcpy(dst, pool.data(oldest.chunk), oldest.bytes);
    pool.release(oldest.chunk);
    dst += oldest.bytes;
    first = (first + 1) % kAhead;
    --count;
  }
  return error != CUDA_SUCCESS ? error : take_error();
}

CUresult copy_bytes(uint64_t dst, uint64_t src, uint64_t bytes, CopySides says, Stream* stream,
                    CopyForm form) {
  const bool synchronous = form == CopyForm::kNow;
  if (bytes == 0) return CUDA_SUCCESS;
  if (dst == 0 || src == 0) return CUDA_ERROR_INVALID_VALUE;
  const Side to = side_of(dst, says.dst), from = side_of(src, says.src);
  // What the call says is device memory must be some that the GPU sees.
  if ((says.dst == Says::kDevice && !gpu_visible(to)) ||
      (says.src == Says::kDevice && !gpu_visible(from)))
    return CUDA_ERROR_INVALID_VALUE;
  const bool on_host =
      form != CopyForm::kBatch && !capturing(stream) && between_host_memory(dst, to, src, from);
  if (gpu_visible(to) && gpu_visible(from)) {
    if (const CUresult r = copy_visible(dst, src, bytes, stream); r != CUDA_SUCCESS) return r;
    const bool waits = on_host || (synchronous && (to == Side::kPinned || from == Side::kPinned ||
                                                   memory_map().sync_memops(dst) ||
                                                   memory_map().sync_memops(src)));
    const CUresult r = waits ? settle_stream(stream) : CUDA_SUCCESS;
    if (synchronous) collect_output();
    return r;
  }
  if (capturing(stream)) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = from == Side::kPageable ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED;
    copy.dstMemoryType = to == Side::kPageable ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED;
    copy.srcHost = reinterpret_cast<const void*>(src), copy.srcDevice = src;
    copy.dstHost = reinterpret_cast<void*>(dst), copy.dstDevice = dst;
    copy.WidthInBytes = bytes, copy.Height = 1, copy.Depth = 1;
    return capture_copy(stream, copy);
  }
  if (!gpu_visible(to) && !gpu_visible(from)) {
    if (const CUresult r = sync_stream(stream); r != CUDA_SUCCESS) return r;
    std::memmove(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), bytes);
    return CUDA_SUCCESS;
  }
  if (from == Side::kPageable) {
    const auto* bytes_of_it = reinterpret_cast<const std::byte*>(src);
    uint64_t posted = 0;
    const bool shows = synchronous && output_expected();
    if (synchronous && !shows && may_leave_upload(dst, to, bytes, stream, &posted))
      return leave_upload(dst, bytes_of_it, bytes, stream, posted);
    // A synchronous copy may natively return before the last DMA has ended, but in practice the
    // data is there. Here the proxy may not even have looked at the record yet: wait behind it.
    const CUresult r = upload(dst, bytes_of_it, bytes, stream);
    const CUresult settled =
        r == CUDA_SUCCESS && (synchronous || on_host) ? settle_stream(stream) : r;
    if (shows) collect_output();
    return settled;
  }
  const CUresult r = download(reinterpret_cast<std::byte*>(dst), src, bytes, stream);
  if (synchronous) collect_output();
  return r;
}

}  // namespace tube::hook
