// Pinned host memory of the proxy's own, which holds what was moved off the GPUs (proxy/evict).
//
// It consists of chunks of 8 MiB, whose pages are there before the driver sees them: registering
// them takes it half a millisecond, cuMemHostAlloc 3 to 5, in which it serves nobody else (H200). A
// copy takes pieces of 2 MiB and more of them, none across two chunks. No client maps any of it. A
// chunk is made when an eviction finds no room, by the session whose memory moves, once. It stays
// for the next eviction; the janitor gives chunks that nobody uses back when the proxy has no
// function left, because freeing them waits for the context.
//
// Any thread. `mutex_` (rank 21) is not held across system or driver calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Driver;
class HostArena;
class HostBudget;

// Room for one block's bytes: pieces, in the order of the bytes. Goes back with it.
class HostCopy {
 public:
  struct Piece {
    CUdeviceptr address;  // as host and GPU name it
    uint64_t bytes;
  };
  HostCopy(HostArena& arena, uint64_t bytes) : arena_(arena), bytes_(bytes) {}
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  const std::vector<Piece>& pieces() const { return pieces_; }
  uint64_t bytes() const { return bytes_; }

 private:
  friend class HostArena;
  HostArena& arena_;
  const uint64_t bytes_;
  std::vector<Piece> pieces_;
};

class HostArena {
 public:
  static constexpr uint64_t kGranule = 2u << 20;
  static constexpr uint64_t kChunk = 8u << 20;

  // Holds at most `most_bytes`, in whole granules; 0: nothing. `host` counts them.
  HostArena(const Driver& driver, uint64_t most_bytes, HostBudget* host = nullptr)
      : driver_(driver), most_(most_bytes / kGranule * kGranule), host_(host) {}
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // Whole granules for `bytes`; makes chunks where there is no room. nullptr: there is none, or the
  // machine has none. A context is current. The copy must end before the arena.
  std::unique_ptr<HostCopy> take(uint64_t bytes);
  // The janitor's, or at the end: chunks that nobody uses go back. May wait for the whole context.
  void drop_idle();

  uint64_t most_bytes() const { return most_; }
  struct Counts {
    uint64_t held_bytes = 0, used_bytes = 0;
  };
  Counts counts() const;

 private:
  friend class HostCopy;
  struct Chunk {
    std::byte* at = nullptr;
    uint64_t bytes = 0;
    uint64_t used = 0;  // a bit for each granule
    uint64_t all() const {
      const uint64_t granules = bytes / kGranule;
      return granules == 64 ? ~uint64_t{0} : (uint64_t{1} << granules) - 1;
    }
  };
  void give(const HostCopy& copy);
  void fill(HostCopy& copy, uint64_t* missing);
  bool grow(uint64_t wanted);
  bool make(uint64_t bytes, Chunk* chunk);
  void unmake(const Chunk& chunk);

  const Driver& driver_;
  const uint64_t most_;
  HostBudget* const host_;
  mutable std::mutex mutex_;  // the members below
  std::list<Chunk> chunks_;
  uint64_t held_ = 0;  // with those that are being made
  uint64_t used_ = 0;
};

}  // namespace tube::proxy
