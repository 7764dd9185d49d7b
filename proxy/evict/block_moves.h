// The bytes of one session's blocks on their way between a GPU and host memory.
//
// They go through the copy lane of the link like everybody's large copies (proxy/copy/copy_link.h),
// a block as one copy whose host end lies in several places, over several links where that pays
// (wide_copies.h); several blocks may be under way. Without a copy engine they go on a stream of
// their own. The session's thread only; it waits in finish_oldest(), and nowhere else.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/cuda_api.h"
#include "proxy/copy/copy_link.h"
#include "proxy/memory/memory_map.h"

namespace tube::proxy {

class CopyEngine;
struct Driver;

class BlockMoves {
 public:
  // The session's share of a link for them is not its program's.
  static constexpr uint64_t share_of(uint64_t session) { return session | uint64_t{1} << 61; }

  // All outlive it. `engine` nullptr: there is none.
  BlockMoves(const Driver& driver, CopyEngine* engine, uint64_t session)
      : driver_(driver), engine_(engine), session_(session) {}
  ~BlockMoves();  // waits for what is under way
  BlockMoves(const BlockMoves&) = delete;
  BlockMoves& operator=(const BlockMoves&) = delete;

  // Begins the copy of a block or a part of it. The GPU's context is current, as for the others.
  // `copies`, which follow each other, stay until the move is finished; nothing else works with the
  // block. An error: nothing is under way.
  CUresult begin(uint32_t gpu, const MemoryMap::Movable& block,
                 std::span<const HostCopy* const> copies, bool to_gpu);
  size_t under_way() const { return moves_.size(); }
  struct Finished {
    MemoryMap::Movable block;
    CUresult error = CUDA_SUCCESS;
  };
  // Waits until the block that was begun first is copied. Precondition: one is under way.
  Finished finish_oldest();
  // Whether that would wait.
  bool oldest_waits();

 private:
  struct Move {
    MemoryMap::Movable block;
    CopyLink* link = nullptr;
    std::shared_ptr<LaneJob> job{};
    CUevent end = nullptr;  // without a lane
    CUresult error = CUDA_SUCCESS;
  };
  struct Told {  // shared with the pacing thread, which may tell when nobody waits any more
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t count = 0;
  };
  CUresult on_stream(Move& move, const HostRuns& runs, bool to_gpu);
  bool job_waits(Move& move);
  bool waits(Move& move);
  void nap();

  const Driver& driver_;
  CopyEngine* const engine_;
  const uint64_t session_;
  const std::shared_ptr<Told> told_ = std::make_shared<Told>();
  std::deque<Move> moves_;
  CUstream stream_ = nullptr;  // without a lane; of the GPU that was used last
  uint32_t stream_gpu_ = 0;
};

}  // namespace tube::proxy
