// The copy paths behind every cuMemcpy form (calls/copy.cc, copy_paths.cc, calls/copy_2d.cc).
#pragma once

#include <cstdint>

#include "hook/objects/progress.h"
#include "hook/objects/thread.h"
#include "protocol/wire.gen.h"

namespace tube::hook {

enum class Side : uint32_t { kDevice, kPinned, kPageable };
// What the call says an address is. Module variables lie where the driver put them in the proxy,
// which may be a host address of this process too: a copy that names the side decides.
enum class Says : uint32_t { kHost, kDevice, kNothing };
Side side_of(uint64_t address, Says says);
inline bool gpu_visible(Side s) { return s != Side::kPageable; }

// One-dimensional copy on `stream` between any two kinds of memory. kNow: the semantics of the
// forms without Async (docs/facts.md, "Copies"): host memory may be reused or read when it returns;
// device to device does not wait. kBatch: as kAsync, and does not wait between host memory either.
enum class CopyForm : uint32_t { kNow, kAsync, kBatch };
struct CopySides {
  Says dst, src;
};
// Both sides are memory of the host that is not managed: every form then returns when the bytes are
// there ("API synchronization behavior" of CUDA's reference), but for batches and captures.
bool between_host_memory(uint64_t dst, Side to, uint64_t src, Side from);
CUresult copy_bytes(uint64_t dst, uint64_t src, uint64_t bytes, CopySides says, Stream* stream,
                    CopyForm form);
// Inside one allocation that this process made, so that a posted operation on it cannot be refused.
// Mapped memory, of one mapping or, outside of captures, a few side by side, is that for `stream`'s
// GPU while it is its own and open to it; nullptr: never.
bool surely_valid(uint64_t address, uint64_t bytes, const Stream* stream);
// Does it begin in an allocation of this process and go on behind it, into a neighbour's even? No
// copy may. The proxy does not look, nor know where an allocation of a pool ends (pool_cache.h).
bool surely_beyond(uint64_t address, uint64_t bytes);
// Of memory that is not surely valid: whether a copy in pieces may read all of it, or write to it.
// Natively a copy that goes beyond its memory is refused before a byte of either side is touched.
// One round trip; no chunk held.
enum class Access : uint32_t { kRead, kWrite };
CUresult may_copy(uint64_t address, uint64_t bytes, Access access);
// Is one of them mapped memory and the other on another GPU, or not known (0: an array)? Whether
// such a copy may be is for the driver to say.
bool mapped_and_far(uint64_t dst, uint64_t src);

// Some memory of this program is visible to other processes from now on, or theirs to it. Any
// context current; producer not held.
void note_memory_shared();

// A synchronous upload on a legacy stream that may be left behind, which later work of all the
// program's streams then comes behind.
struct LeftUpload {
  uint64_t posted = 0;  // of the stream's context, when nothing but uploads was pending
  bool left = false;    // the answer: that was so still when the record was written
};
// Pageable to GPU-visible: returns when `src` may be reused. `left`: at most one chunk.
CUresult upload(uint64_t dst, const std::byte* src, uint64_t bytes, Stream* stream,
                LeftUpload* left = nullptr);
// GPU-visible to pageable: returns when the bytes are there.
CUresult download(std::byte* dst, uint64_t src, uint64_t bytes, Stream* stream);

// The same two for large copies, by several threads (copy_team.h), without the look at what the
// stream's earlier work answered. `sure`: the GPU's side is surely_valid(). False: no thread is
// free to help, and nothing was done.
bool upload_by_team(uint64_t dst, const std::byte* src, uint64_t bytes, Stream* stream, bool sure,
                    CUresult* result);
bool download_by_team(std::byte* dst, uint64_t src, uint64_t bytes, Stream* stream, bool sure,
                      CUresult* result);

// A copy of `bytes` begins or goes on: large ones want more than the first chunks, so that filling
// and copying keep overlapping. At most a round trip.
void want_chunks_for(uint64_t bytes);
// A claimed staging chunk. The reserve (sharedmem/chunks.h) is for a copy that nothing stands in
// front of: its record is posted only while may_post().
struct StagingChunk {
  uint32_t chunk = 0;
  bool reserve = false;
  uint64_t posted = 0, legacy_posted = 0;  // reserve: when all in front was over
};
// Waits for a chunk of at least `bytes`. When none comes free, waits until the stream's work is
// over, and takes the reserve: kChunkBytes. The caller holds no chunk that it has not posted.
CUresult claim_chunk(Stream* stream, uint64_t bytes, StagingChunk* claimed);
// Producer held. False: other work has come into the stream, or in front of it.
bool may_post(const Stream* stream, const StagingChunk& claimed);
// Between a staging chunk and the GPU, `bytes` of both. CUDA_ERROR_NOT_READY: may_post() said no,
// and the chunk is the caller's still.
CUresult post_chunk(Stream* stream, wire::ChunkBecomes becomes, const StagingChunk& claimed,
                    uint64_t bytes, uint64_t device_address, bool sure, LeftUpload* left = nullptr);
// A result of the transport or chunk waits as a CUresult.
CUresult chunk_wait_code(shared::WaitResult result);

}  // namespace tube::hook
