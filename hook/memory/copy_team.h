// Threads that copy for a calling thread: the host's side of large pageable copies.
//
// The caller makes a TeamCopy and hands it pieces (a piece is one staging chunk's worth). A piece
// is divided into slices, a bit each; the threads and the caller take bits until none is left. The
// caller learns when a piece is done and does with it what only it may do: helpers make no CUDA
// calls, touch no connection, take no lock.
//
// Faults. What the program passed may not be there, and then the fault should come in the calling
// thread, where it came without helpers (a handler of the program may run, or jump out). So a piece
// with pages that are not resident is faulted in by system calls, which report instead of faulting;
// a slice where that fails, and a piece with a hole in it, is left to the caller, which sends the
// helpers away before it touches what faults. What is resident but protected faults in a helper:
// helpers block all signals but those of faults and of trapped system calls.
//
// Life. Helpers are started by the first large copy, sleep between copies, and leave when they had
// nothing to do for kLingerNs. They are detached and hold nothing, so the program's exit waits for
// none of them; in a forked child there are none, and no call gets here. Their state is never
// freed: a caller that a handler takes out of its copy leaves that copy's place taken, no more.
//
// Cores. They run with the policy SCHED_IDLE: they were taken on because cores stood idle, and are
// to cost nobody a wait who wakes on one of these. A helper that was put off its core in a slice
// leaves, and the caller does what nobody has taken; the next copy looks at the load anew.
//
// Cost: a slice is two atomic operations; waking helpers is one system call for each piece that
// finds them asleep.
#pragma once

#include <cstddef>
#include <cstdint>

#include "policies/copy_threads.h"

namespace tube::hook {

inline constexpr uint64_t kLingerNs = 200'000'000;

class TeamCopy {
 public:
  static constexpr uint32_t kPieces = policies::kPiecesEmptied;
  // The most that a piece may have.
  static constexpr uint64_t kMostPieceBytes = 16 * policies::kSliceBytes;
  // Which side of a piece is the program's own memory; the other is shared memory that is there.
  enum class Mine : uint8_t { kSource, kDestination };

  // At most `helpers` threads help; fewer when no more can be started. Not valid when four other
  // copies are under way. Until the end the calling thread cannot be cancelled (pthread_cancel).
  explicit TeamCopy(uint32_t helpers);
  // Every piece is done or cancelled.
  ~TeamCopy();
  TeamCopy(const TeamCopy&) = delete;
  TeamCopy& operator=(const TeamCopy&) = delete;
  bool valid() const { return copy_ != nullptr; }

  // Piece `index` (under kPieces, done) is to be copied. 0 < bytes <= kMostPieceBytes.
  void start(uint32_t index, std::byte* dst, const std::byte* src, uint64_t bytes, Mine mine);
  // The piece to begin with; then come those behind it, the first one behind the last.
  void begin_with(uint32_t index);
  // All bytes are there, for the calling thread and whoever it tells.
  bool done(uint32_t index) const;
  // Copies one slice of the oldest piece that has any left; false: there was none. May fault.
  bool help();
  // Until it is done or has a slice that is left to the caller: help() returned false.
  void wait(uint32_t index);
  // Nobody is at the piece any more when this returns; some of its bytes may be there.
  void cancel(uint32_t index);

  struct Copy;

 private:
  Copy* copy_ = nullptr;
  int cancelable_ = 0;
};

// Helpers that are awake at this moment: they count as running threads of the machine.
uint32_t awake_copy_helpers();

}  // namespace tube::hook
