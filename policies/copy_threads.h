// How a large copy of pageable memory is divided: among how many threads, into which pieces.
//
// One core moves 9.5 GB/s into pinned memory, four 31, eight 48, twelve 55, which is the link
// (H200 host, streaming stores). So a large copy takes helpers, at most one for every second core
// that nobody uses: what the machine's other threads need stays free, and of several functions that
// begin at once each finds fewer idle cores than the one before.
//
// Threads fill a piece while the GPU takes the one before. What does not overlap is the first piece
// and the last: so both ends of a copy are small pieces, and between them are as large ones as
// the staging chunks allow, because each piece costs the link a pause.
//
// Pure functions over plain values. The threads are hook/memory/copy_team.h.
#pragma once

#include <cstdint>
#include <optional>

namespace tube::policies {

// Below this, waking helpers costs more than they save (one core: 0.8 ms for this much).
inline constexpr uint64_t kLargeCopyBytes = 8u << 20;
inline constexpr uint32_t kMostCopyHelpers = 11;  // with the calling thread 55 GB/s: the link
// The least that a helper should have to do: 0.2 ms of one core.
inline constexpr uint64_t kBytesPerHelper = 2u << 20;

struct HostLoad {
  uint32_t usable_cores = 1;   // of this process: affinity and quotas
  uint32_t machine_cores = 1;  // all that `runnable` may be on
  // Threads of the machine that run or want to, the calling one included, this process's own
  // helpers not. 0: not known, and then nothing else runs.
  uint32_t runnable = 0;
};

// Cores that nobody would use if the calling thread copied alone. Threads that run elsewhere on the
// machine are taken to be spread evenly over its cores.
uint32_t idle_cores(const HostLoad& load);

// How many threads shall help the calling one with a copy of `bytes`. `asked`: threads in all, by
// TUBE_COPY_THREADS; takes the place of the load.
uint32_t copy_helpers(uint64_t bytes, const HostLoad& load, std::optional<uint64_t> asked);

// Threads take slices of pieces.
inline constexpr uint64_t kSliceBytes = 256u << 10;
inline constexpr uint64_t kLeastPieceBytes = 1u << 20;
// A helper whose slice took so long, 27 us on its own, was put off its core meanwhile: others want
// that, and a helper comes back to it late. It takes no more of them.
inline constexpr uint64_t kPutOffNs = 1'000'000;
// Upload: pieces that threads fill at once. Two keep the threads busy; the third and fourth are for
// the moments at which the calling thread is elsewhere.
inline constexpr uint32_t kPiecesFilled = 4;
// Download: pieces that the GPU or threads are at.
inline constexpr uint32_t kPiecesEmptied = 8;

// How long a copy waits for a staging chunk before it takes it that all of them may stand behind
// streams that wait for the program. A chunk that moves is free again within a millisecond, a few
// when many functions' copies take turns.
inline constexpr uint64_t kChunkPatienceNs = 5'000'000;

// The next piece of a copy of which `done` bytes are in earlier pieces and `left` are not: whole
// slices, at most `largest` (at least kLeastPieceBytes), or all that is left.
uint64_t next_piece(uint64_t done, uint64_t left, uint64_t largest);

}  // namespace tube::policies
