#include "hook/memory/copy_team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <climits>
#include <iterator>

#include "base/clock.h"
#include "base/cpu_pause.h"
#include "base/futex.h"
#include "base/page.h"
#include "hook/memory/streaming_copy.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace tube::hook {

namespace {

constexpr uint32_t kCopies = 4;  // large copies of one process that helpers share; more go alone
constexpr uint64_t kSlice = policies::kSliceBytes;
constexpr uint32_t kMostSlices = TeamCopy::kMostPieceBytes / kSlice;
static_assert(kMostSlices <= 32);
// How long helpers look for the next piece before they sleep: less than waking them costs.
constexpr uint32_t kLooks = 400;  // 40 ns each

// The word is a futex, which wants a plain integer.
std::atomic_ref<uint32_t> word(uint32_t& plain) { return std::atomic_ref<uint32_t>(plain); }

}  // namespace

// Who may write: the caller the plain members, while no bit is set in `todo` and none is pending;
// whoever takes a bit of `todo` (acquire) sees them and owns that slice.
struct Piece {
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;
  uint64_t bytes = 0;
  TeamCopy::Mine mine = TeamCopy::Mine::kSource;
  bool absent = false;               // some pages of the program's side are not resident
  std::atomic<uint32_t> todo{0};     // slices that nobody has taken
  std::atomic<uint32_t> left{0};     // slices that only the caller may take
  std::atomic<uint32_t> pending{0};  // slices that are not copied
};

struct TeamCopy::Copy {
  std::atomic<bool> taken{false};
  std::atomic<uint32_t> helpers{0};  // those with a lower number may help
  std::atomic<uint32_t> oldest{0};   // the piece to begin with: a hint
  uint32_t news = 0;                 // futex: counts slices that helpers ended
  std::atomic<bool> caller_waits{false};
  Piece pieces[TeamCopy::kPieces];
};

namespace {

struct Team {
  TeamCopy::Copy copies[kCopies];
  std::atomic<uint32_t> numbers{0};  // of helpers that there are, a bit each
  std::atomic<uint32_t> awake{0};
  std::atomic<uint32_t> asleep{0};
  uint32_t started = 0;  // futex: counts pieces
};
constinit Team g_team;

// The caller put slices up; either a helper that goes to sleep sees the new count, or the caller
// sees the helper: both are sequentially consistent.
void announce_piece() {
  word(g_team.started).fetch_add(1, std::memory_order_seq_cst);
  if (g_team.asleep.load(std::memory_order_seq_cst) != 0) futex_wake(&g_team.started, INT_MAX);
}

// A helper ended a slice, whose bytes the caller sees when it sees the bit or the count. The same
// protocol with the caller as the sleeper.
void tell_caller(TeamCopy::Copy& copy) {
  word(copy.news).fetch_add(1, std::memory_order_seq_cst);
  if (copy.caller_waits.load(std::memory_order_seq_cst)) futex_wake(&copy.news, 1);
}

// One bit, which is the taker's; 0 when there is none. Partner: TeamCopy::start.
uint32_t take_bit(std::atomic<uint32_t>& bits) {
  uint32_t now = bits.load(std::memory_order_relaxed);
  while (now != 0) {
    const uint32_t lowest = now & (~now + 1);
    if (bits.compare_exchange_weak(now, now & ~lowest, std::memory_order_acquire,
                                   std::memory_order_relaxed))
      return lowest;
  }
  return 0;
}

struct Slice {
  std::byte* dst;
  const std::byte* src;
  uint64_t bytes;
};

Slice slice_of(const Piece& piece, uint32_t bit) {
  const uint64_t begin = static_cast<uint64_t>(std::countr_zero(bit)) * kSlice;
  return {piece.dst + begin, piece.src + begin, std::min(kSlice, piece.bytes - begin)};
}

struct Pages {
  uint64_t begin, bytes;
  void* start() const { return reinterpret_cast<void*>(begin); }
};
Pages pages_of(const std::byte* memory, uint64_t bytes) {
  const auto address = reinterpret_cast<uint64_t>(memory);
  const uint64_t begin = address / kPage * kPage;
  return {begin, (address + bytes + kPage - 1) / kPage * kPage - begin};
}

// Linux 5.14 and newer. Older ones say of every page what newer ones say of a protected one.
bool kernel_faults_in() {
  alignas(kPage) static std::byte own[kPage];
  return madvise(own, kPage, MADV_POPULATE_READ) == 0;
}

// False: touching the slice would fault for good, or may. An older kernel cannot tell, and the
// slice is taken to be there.
bool fault_in(const Slice& slice, TeamCopy::Mine mine) {
  const bool source = mine == TeamCopy::Mine::kSource;
  const Pages pages = pages_of(source ? slice.src : slice.dst, slice.bytes);
  const int advice = source ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
  const int saved = errno;
  const bool there =
      madvise(pages.start(), pages.bytes, advice) == 0 || (errno == EINVAL && !kernel_faults_in());
  errno = saved;
  return there;
}

enum class Resident : uint8_t { kAll, kSome, kHole };

Resident resident(const std::byte* memory, uint64_t bytes) {
  unsigned char there[TeamCopy::kMostPieceBytes / kPage + 1];
  const Pages pages = pages_of(memory, bytes);
  const int saved = errno;
  if (mincore(pages.start(), pages.bytes, there) != 0) {
    const bool hole = errno == ENOMEM;
    errno = saved;
    return hole ? Resident::kHole : Resident::kSome;
  }
  bool all = true;
  for (uint64_t i = 0; i < pages.bytes / kPage; ++i) all = all && (there[i] & 1) != 0;
  return all ? Resident::kAll : Resident::kSome;
}

void end_slice(Piece& piece) { piece.pending.fetch_sub(1, std::memory_order_release); }

enum class Help : uint8_t { kNone, kDone, kPutOff };

// A helper's slice of the copy's pieces, oldest first.
Help help_one(TeamCopy::Copy& copy) {
  const uint32_t oldest = copy.oldest.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < TeamCopy::kPieces; ++i) {
    Piece& piece = copy.pieces[(oldest + i) % TeamCopy::kPieces];
    const uint32_t bit = take_bit(piece.todo);
    if (bit == 0) continue;
    const Slice slice = slice_of(piece, bit);
    Help help = Help::kDone;
    if (piece.absent && !fault_in(slice, piece.mine)) {
      piece.left.fetch_or(bit, std::memory_order_release);
    } else {
      const uint64_t begin_ns = now_ns();
      streaming_copy(slice.dst, slice.src, slice.bytes);
      end_slice(piece);
      if (now_ns() - begin_ns >= policies::kPutOffNs) help = Help::kPutOff;
    }
    tell_caller(copy);
    return help;
  }
  return Help::kNone;
}

// All slices that nobody has taken are the caller's.
void withdraw(TeamCopy::Copy& copy) {
  for (Piece& piece : copy.pieces)
    piece.left.fetch_or(piece.todo.exchange(0, std::memory_order_acquire),
                        std::memory_order_relaxed);
}

// Whether somebody has taken a slice and not ended it.
bool under_way(const TeamCopy::Copy& copy) {
  return std::any_of(std::begin(copy.pieces), std::end(copy.pieces), [](const Piece& piece) {
    // In this order: a slice that is given to the caller in between is looked at again.
    const int left = std::popcount(piece.left.load(std::memory_order_acquire));
    return piece.pending.load(std::memory_order_acquire) != static_cast<uint32_t>(left);
  });
}

// The calling thread: until it is settled, which a helper that ends or leaves a slice may do.
template <class Settled>
void wait_until(TeamCopy::Copy& copy, const Settled& settled) {
  for (uint32_t i = 0; i < kLooks; ++i) {
    if (settled()) break;
    cpu_pause();
  }
  copy.caller_waits.store(true, std::memory_order_seq_cst);
  while (true) {
    const uint32_t seen = word(copy.news).load(std::memory_order_seq_cst);
    if (settled()) break;
    futex_wait(&copy.news, seen, kNoTimeout);
  }
  copy.caller_waits.store(false, std::memory_order_relaxed);
}

// The calling thread is about to fault, and a handler of the program may leave the call from there:
// no helper is at this copy any more.
void send_helpers_away(TeamCopy::Copy& copy, Piece& piece, uint32_t own_bit) {
  withdraw(copy);
  piece.left.fetch_or(own_bit, std::memory_order_relaxed);
  wait_until(copy, [&] { return !under_way(copy); });
  piece.left.fetch_and(~own_bit, std::memory_order_relaxed);
}

Help help_any(uint32_t number) {
  for (TeamCopy::Copy& copy : g_team.copies) {
    if (number >= copy.helpers.load(std::memory_order_relaxed)) continue;
    if (const Help help = help_one(copy); help != Help::kNone) return help;
  }
  return Help::kNone;
}

bool another_piece(uint32_t seen) {
  for (uint32_t i = 0; i < kLooks; ++i) {
    if (word(g_team.started).load(std::memory_order_acquire) != seen) return true;
    cpu_pause();
  }
  return false;
}

void sleep_for_piece(uint32_t seen) {
  g_team.awake.fetch_sub(1, std::memory_order_relaxed);
  g_team.asleep.fetch_add(1, std::memory_order_seq_cst);
  futex_wait(&g_team.started, seen, kLingerNs);
  g_team.asleep.fetch_sub(1, std::memory_order_relaxed);
  g_team.awake.fetch_add(1, std::memory_order_relaxed);
}

// Helpers have what nobody else wants: who wakes on a helper's core, a session of the proxy or a
// program's own thread, has it at once, and the scheduler takes such a core for an idle one. No
// privilege is needed; refused by a sandbox, they run like any other thread.
void stand_back() {
  const sched_param none{};
  (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
}

void* run(void* argument) {
  const auto number = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(argument));
  stand_back();
  pthread_setname_np(pthread_self(), "tube-copy");
  uint64_t last_ns = now_ns();
  while (true) {
    const uint32_t seen = word(g_team.started).load(std::memory_order_acquire);
    bool helped = false;
    Help help = Help::kNone;
    while ((help = help_any(number)) == Help::kDone) helped = true;
    if (help == Help::kPutOff) break;
    if (helped) last_ns = now_ns();
    if (another_piece(seen)) continue;
    if (now_ns() - last_ns >= kLingerNs) break;
    sleep_for_piece(seen);
  }
  // A copy that begins now may miss this helper: its caller does the work.
  g_team.awake.fetch_sub(1, std::memory_order_relaxed);
  g_team.numbers.fetch_and(~(1u << number), std::memory_order_release);
  return nullptr;
}

// Sees to it that helpers 0 to count-1 are there, as far as threads can be made.
void recruit(uint32_t count) {
  const uint32_t wanted = (1u << count) - 1;
  if ((g_team.numbers.load(std::memory_order_relaxed) & wanted) == wanted) return;
  // The program's handlers run on its own threads, but for those of faults (see the header) and of
  // system calls that a sandbox traps: blocked, either would end the program. What glibc needs for
  // itself (setuid in all threads) sigfillset leaves out.
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (const int own : {SIGSEGV, SIGBUS, SIGSYS}) sigdelset(&blocked, own);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  for (uint32_t number = 0; number < count; ++number) {
    const uint32_t bit = 1u << number;
    if ((g_team.numbers.fetch_or(bit, std::memory_order_acquire) & bit) != 0) continue;
    g_team.awake.fetch_add(1, std::memory_order_relaxed);
    pthread_t thread;
    if (pthread_create(&thread, nullptr, run, reinterpret_cast<void*>(uintptr_t{number})) == 0) {
      pthread_detach(thread);
      continue;
    }
    g_team.awake.fetch_sub(1, std::memory_order_relaxed);
    g_team.numbers.fetch_and(~bit, std::memory_order_relaxed);
    break;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TeamCopy::Copy* take_copy() {
  for (TeamCopy::Copy& copy : g_team.copies) {
    if (!copy.taken.exchange(true, std::memory_order_acquire)) return &copy;
  }
  return nullptr;
}

}  // namespace

TeamCopy::TeamCopy(uint32_t helpers) : copy_(take_copy()) {
  if (copy_ == nullptr) return;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable_);
  recruit(helpers);
  copy_->helpers.store(helpers, std::memory_order_relaxed);
}

TeamCopy::~TeamCopy() {
  if (copy_ == nullptr) return;
  copy_->helpers.store(0, std::memory_order_relaxed);
  copy_->taken.store(false, std::memory_order_release);
  pthread_setcancelstate(cancelable_, nullptr);
}

void TeamCopy::start(uint32_t index, std::byte* dst, const std::byte* src, uint64_t bytes,
                     Mine mine) {
  Piece& piece = copy_->pieces[index];
  piece.dst = dst;
  piece.src = src;
  piece.bytes = bytes;
  piece.mine = mine;
  const Resident there = resident(mine == Mine::kSource ? src : dst, bytes);
  piece.absent = there != Resident::kAll;
  const auto slices = static_cast<uint32_t>((bytes + kSlice - 1) / kSlice);
  const uint32_t all = slices == 32 ? ~0u : (1u << slices) - 1;
  piece.pending.store(slices, std::memory_order_relaxed);
  piece.left.store(there == Resident::kHole ? all : 0, std::memory_order_relaxed);
  // Partner: take_bit.
  piece.todo.store(there == Resident::kHole ? 0 : all, std::memory_order_release);
  announce_piece();
}

void TeamCopy::begin_with(uint32_t index) { copy_->oldest.store(index, std::memory_order_relaxed); }

bool TeamCopy::done(uint32_t index) const {
  return copy_->pieces[index].pending.load(std::memory_order_acquire) == 0;
}

bool TeamCopy::help() {
  const uint32_t oldest = copy_->oldest.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < kPieces; ++i) {
    Piece& piece = copy_->pieces[(oldest + i) % kPieces];
    uint32_t bit = take_bit(piece.left);
    if (bit == 0) bit = take_bit(piece.todo);
    if (bit == 0) continue;
    const Slice slice = slice_of(piece, bit);
    if (piece.absent && !fault_in(slice, piece.mine)) send_helpers_away(*copy_, piece, bit);
    streaming_copy(slice.dst, slice.src, slice.bytes);
    end_slice(piece);
    return true;
  }
  return false;
}

void TeamCopy::wait(uint32_t index) {
  wait_until(*copy_, [&] {
    return done(index) || copy_->pieces[index].left.load(std::memory_order_acquire) != 0;
  });
}

void TeamCopy::cancel(uint32_t index) {
  Piece& piece = copy_->pieces[index];
  for (;;) {
    while (take_bit(piece.left) != 0 || take_bit(piece.todo) != 0) end_slice(piece);
    if (done(index)) return;
    wait(index);
  }
}

uint32_t awake_copy_helpers() { return g_team.awake.load(std::memory_order_relaxed); }

}  // namespace tube::hook
