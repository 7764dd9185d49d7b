// Pinned host memory of the proxy's own, which holds what was moved off the GPUs (proxy/evict).
//
// It consists of chunks of 4 MiB, each a registration, whose pages are there before the driver sees
// them: registering one takes it a quarter of a millisecond, in which it serves nobody else (H200).
// A copy takes pieces of 2 MiB and more of them, none across two chunks. No client maps any of it.
// Chunks are made ahead, by a thread of its own, when memory is likely to have to move
// (proxy/evict/host_ahead.h); what is missing all the same is made by the session whose memory
// moves, which counts() tells. A chunk stays for the next eviction; the janitor gives chunks that
// nobody uses back when the proxy has no function left, because freeing them waits for the context.
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
#include "proxy/gpu/registrations.h"

namespace tube::proxy {

struct Driver;
class HostArena;
class HostBudget;

// A registration: granules of 2 MiB.
struct HostChunk {
  std::byte* at = nullptr;
  uint64_t bytes = 0;
  uint64_t used = 0;  // a bit for each granule
};

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
  // The bytes of `next` behind its own; both are as they were when this throws.
  void join(HostCopy& next);

 private:
  friend class HostArena;
  HostArena& arena_;
  uint64_t bytes_;
  std::vector<Piece> pieces_;
  std::vector<std::list<HostChunk>::iterator> chunks_;  // of the pieces
};

class HostArena {
 public:
  static constexpr uint64_t kGranule = 2u << 20;
  static constexpr uint64_t kChunk = policies::kRegisteredPiece;

  // Holds at most `most_bytes`, in whole granules; 0: nothing. `host` counts them.
  HostArena(const Driver& driver, uint64_t most_bytes, HostBudget* host = nullptr,
            Registrations* registrations = nullptr)
      : driver_(driver),
        most_(most_bytes / kGranule * kGranule),
        host_(host),
        registrations_(registrations) {}
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // Whole granules for `bytes`; makes chunks where there is no room. nullptr: there is none, or the
  // machine has none. A context is current. The copy must end before the arena.
  std::unique_ptr<HostCopy> take(uint64_t bytes);
  // One chunk more, unless `until_bytes` are held; waits for a moment in which that disturbs
  // nobody. False: they are, or it cannot be had. A context is current.
  bool make_ahead(uint64_t until_bytes);
  // The janitor's, or at the end: chunks that nobody uses go back. May wait for the whole context.
  void drop_idle();

  uint64_t most_bytes() const { return most_; }
  struct Counts {
    uint64_t held_bytes = 0, used_bytes = 0;
    uint64_t made_ahead_bytes = 0;       // of all that were ever made
    uint64_t made_on_request_bytes = 0;  // while memory was moving
  };
  Counts counts() const;

 private:
  friend class HostCopy;
  using Need = Registrations::Need;
  void give(const HostCopy& copy);
  void fill(HostCopy& copy, uint64_t* missing);
  bool reserve(uint64_t most, uint64_t* bytes);
  bool grow(uint64_t wanted);
  bool make(uint64_t most, Need need);
  bool map(uint64_t bytes, Need need, HostChunk* chunk);
  void unmake(const HostChunk& chunk);

  const Driver& driver_;
  const uint64_t most_;
  HostBudget* const host_;
  Registrations* const registrations_;
  mutable std::mutex mutex_;  // the members below
  // A chunk goes from one to the other with its node: nothing is allocated for it.
  std::list<HostChunk> room_, full_;
  uint64_t held_ = 0;  // with those that are being made
  uint64_t used_ = 0;
  uint64_t ahead_ = 0, on_request_ = 0;
};

}  // namespace tube::proxy
