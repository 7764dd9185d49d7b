// Large copies of pageable memory: pieces of a staging chunk each, which several threads fill or
// empty (hook/memory/copy_team.h) while the GPU is at others. What is posted, and in which order,
// is the calling thread's business alone; the rule of copy_paths.cc holds: it never waits for a
// chunk while it holds one.
//
//   upload     up to kPiecesFilled pieces are being filled; the oldest is posted as soon as it is
//              full, and the GPU hands its chunk back
//   download   up to kPiecesEmptied pieces are posted ahead; what the GPU has filled, oldest first,
//              is given to the threads, and the chunk is free when they are through
//
// In between the calling thread copies, too.
#include <algorithm>
#include <atomic>

#include "base/clock.h"
#include "base/cores.h"
#include "base/env.h"
#include "hook/memory/copy.h"
#include "hook/memory/copy_team.h"
#include "hook/objects/support.h"
#include "policies/copy_threads.h"

namespace tube::hook {
namespace {

using policies::kPiecesEmptied;
using policies::kPiecesFilled;
static_assert(kPiecesFilled <= TeamCopy::kPieces && kPiecesEmptied <= TeamCopy::kPieces);
static_assert(abi::kLaterChunkBytes <= TeamCopy::kMostPieceBytes &&
              abi::kChunkBytes >= policies::kLeastPieceBytes);

// A dozen small files; they change seldom. Threads that ask at once may both read them. The mask is
// each thread's own.
uint32_t cores_lately() {
  constexpr uint64_t kGoodForNs = 1'000'000'000;
  static constinit std::atomic<uint64_t> read_ns{0};
  static constinit std::atomic<uint32_t> cores{0};
  const uint64_t now = now_ns();
  if (const uint64_t at = read_ns.load(std::memory_order_acquire); at != 0 && now - at < kGoodForNs)
    return std::min(cores.load(std::memory_order_relaxed), affinity_cores());
  const uint32_t found = quota_cores();
  cores.store(found, std::memory_order_relaxed);
  read_ns.store(now, std::memory_order_release);
  return std::min(found, affinity_cores());
}

uint32_t helpers_for(uint64_t bytes) {
  const std::optional<uint64_t> asked = env_number(Env::kCopyThreads);
  if (asked.has_value()) return policies::copy_helpers(bytes, {}, asked);
  const uint32_t own = awake_copy_helpers(), running = runnable_threads();
  return policies::copy_helpers(bytes,
                                {.usable_cores = cores_lately(),
                                 .machine_cores = machine_cores(),
                                 .runnable = running > own ? running - own : 0},
                                asked);
}

// What both ways have in common: the pieces in flight, a ring whose places are the team's pieces.
class LargeCopy {
 protected:
  LargeCopy(Stream* stream, uint64_t bytes, bool sure, TeamCopy& team)
      : stream_(stream), left_(bytes), sure_(sure), team_(team) {}

  struct Place {
    uint32_t chunk;
    uint64_t bytes;
    uint64_t offset;  // in the copy
  };
  Place& at(uint32_t i) { return places_[index(i)]; }
  uint32_t index(uint32_t i) const { return (first_ + i) % TeamCopy::kPieces; }

  // Takes the next piece's place if there is a chunk; waits for one only when no piece is in
  // flight, and not for long. kDone with *opened false: none is free now.
  shared::WaitResult open(bool* opened) {
    constexpr uint64_t kAskAgain = 32u << 20;  // while the large chunks are being made
    if (done_ / kAskAgain != asked_) {
      asked_ = done_ / kAskAgain;
      want_chunks_for(left_);
    }
    const uint64_t bytes = policies::next_piece(done_, left_, pool_.largest());
    Place& place = at(count_);
    *opened = pool_.try_claim(&place.chunk, bytes);
    if (!*opened && count_ == 0) {
      const uint64_t until_ns = now_ns() + policies::kChunkPatienceNs;
      const shared::WaitResult got =
          pool_.claim(&place.chunk, probe_, bytes, [=] { return now_ns() >= until_ns; });
      if (got != shared::WaitResult::kDone) return got;
      *opened = place.chunk != shared::ChunkPool::kNoChunk;
    }
    if (!*opened) return shared::WaitResult::kDone;
    place.bytes = bytes;
    place.offset = done_;
    done_ += bytes;
    left_ -= bytes;
    ++count_;
    return shared::WaitResult::kDone;
  }
  // No piece is in flight and no chunk is free: the next bytes go the way of small copies, which
  // may take the reserve. `copy`: upload() or download(), of the bytes from an offset on.
  template <class Copy>
  CUresult copy_one(Copy copy) {
    const uint64_t bytes = std::min<uint64_t>(left_, abi::kChunkBytes), offset = done_;
    done_ += bytes;
    left_ -= bytes;
    return copy(offset, bytes);
  }
  void close_first() {
    first_ = index(1);
    --count_;
    team_.begin_with(first_);
  }

  Stream* const stream_;
  shared::ChunkPool& pool_ = connection().chunks;
  const shared::Probe probe_{probe_stream, stream_};
  uint64_t done_ = 0, left_, asked_ = 0;
  const bool sure_;
  TeamCopy& team_;
  Place places_[TeamCopy::kPieces];
  uint32_t first_ = 0, count_ = 0;
};

class LargeUpload : LargeCopy {
 public:
  LargeUpload(uint64_t dst, const std::byte* src, uint64_t bytes, Stream* stream, bool sure,
              TeamCopy& team)
      : LargeCopy(stream, bytes, sure, team), dst_(dst), src_(src) {}

  CUresult run() {
    while (left_ != 0 || count_ != 0) {
      if (count_ != 0 && team_.done(first_)) {
        if (const CUresult r = post_first(); r != CUDA_SUCCESS) return give_up(r);
        continue;
      }
      if (left_ != 0 && count_ < kPiecesFilled) {
        bool opened = false;
        const shared::WaitResult got = open(&opened);
        if (got != shared::WaitResult::kDone) return chunk_wait_code(got);
        if (opened) {
          fill_last();
          continue;
        }
      }
      if (count_ == 0) {
        const CUresult r = copy_one([this](uint64_t offset, uint64_t bytes) {
          return upload(dst_ + offset, src_ + offset, bytes, stream_);
        });
        if (r != CUDA_SUCCESS) return r;
        continue;
      }
      if (!team_.help()) team_.wait(first_);
    }
    return CUDA_SUCCESS;
  }

 private:
  void fill_last() {
    const Place& place = at(count_ - 1);
    team_.start(index(count_ - 1), pool_.data(place.chunk), src_ + place.offset, place.bytes,
                TeamCopy::Mine::kSource);
  }
  // Refused or not, the chunk is handed back by the other side.
  CUresult post_first() {
    const Place place = at(0);
    close_first();
    pool_.hand_over(place.chunk);
    return post_chunk(stream_, wire::ChunkBecomes::kFree, StagingChunk{place.chunk}, place.bytes,
                      dst_ + place.offset, sure_);
  }
  CUresult give_up(CUresult why) {
    for (; count_ != 0; close_first()) {
      team_.cancel(first_);
      pool_.release(at(0).chunk);
    }
    return why;
  }

  const uint64_t dst_;
  const std::byte* const src_;
};

class LargeDownload : LargeCopy {
 public:
  LargeDownload(std::byte* dst, uint64_t src, uint64_t bytes, Stream* stream, bool sure,
                TeamCopy& team)
      : LargeCopy(stream, bytes, sure, team), dst_(dst), src_(src) {}

  CUresult run() {
    while ((left_ != 0 && error_ == CUDA_SUCCESS) || count_ != 0) {
      if (left_ != 0 && error_ == CUDA_SUCCESS && count_ < kPiecesEmptied) {
        bool opened = false;
        const shared::WaitResult got = open(&opened);
        if (got != shared::WaitResult::kDone) return chunk_wait_code(got);
        if (opened) {
          post_last();
          continue;
        }
      }
      if (count_ == 0) {
        error_ = copy_one([this](uint64_t offset, uint64_t bytes) {
          return download(dst_ + offset, src_ + offset, bytes, stream_);
        });
        continue;
      }
      if (emptying_ < count_ && pool_.filled(at(emptying_).chunk)) {
        empty_next();
      } else if (emptying_ != 0 && team_.done(first_)) {
        pool_.release(at(0).chunk);
        close_first();
        --emptying_;
      } else if (!team_.help()) {
        if (const CUresult r = wait(); r != CUDA_SUCCESS) return r;
      }
    }
    return error_;
  }

 private:
  void post_last() {
    const Place& place = at(count_ - 1);
    error_ = post_chunk(stream_, wire::ChunkBecomes::kFilled, StagingChunk{place.chunk},
                        place.bytes, src_ + place.offset, sure_);
    if (error_ == CUDA_SUCCESS) return;
    pool_.release(place.chunk);
    --count_;
  }
  void empty_next() {
    const Place& place = at(emptying_);
    team_.start(index(emptying_++), dst_ + place.offset, pool_.data(place.chunk), place.bytes,
                TeamCopy::Mine::kDestination);
  }
  // Nothing is left for the calling thread to copy: until the threads or the GPU are through with
  // the oldest piece. A sticky error leaves the chunks to the GPU: they are lost with the context.
  CUresult wait() {
    if (emptying_ != 0) {
      team_.wait(first_);
      return CUDA_SUCCESS;
    }
    const shared::WaitResult filled = pool_.wait_filled(at(0).chunk, probe_);
    return filled == shared::WaitResult::kDone ? CUDA_SUCCESS : chunk_wait_code(filled);
  }

  std::byte* const dst_;
  const uint64_t src_;
  uint32_t emptying_ = 0;  // the oldest pieces, which threads are at
  CUresult error_ = CUDA_SUCCESS;
};

template <class Copy, class Dst, class Src>
bool by_team(Dst dst, Src src, uint64_t bytes, Stream* stream, bool sure, CUresult* result) {
  const uint32_t helpers = helpers_for(bytes);
  if (helpers == 0) return false;
  TeamCopy team(helpers);
  if (!team.valid()) return false;
  *result = Copy(dst, src, bytes, stream, sure, team).run();
  return true;
}

}  // namespace

bool upload_by_team(uint64_t dst, const std::byte* src, uint64_t bytes, Stream* stream, bool sure,
                    CUresult* result) {
  return by_team<LargeUpload>(dst, src, bytes, stream, sure, result);
}

bool download_by_team(std::byte* dst, uint64_t src, uint64_t bytes, Stream* stream, bool sure,
                      CUresult* result) {
  return by_team<LargeDownload>(dst, src, bytes, stream, sure, result);
}

}  // namespace tube::hook
