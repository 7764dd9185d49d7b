// Threads that help a caller to copy: every byte once, faults in the caller, nothing left behind.
#include "hook/memory/copy_team.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hook/memory/streaming_copy.h"

namespace tube::hook {
namespace {

constexpr uint64_t kPiece = TeamCopy::kMostPieceBytes, kPage = 4096;
using Mine = TeamCopy::Mine;

std::vector<std::byte> pattern(uint64_t bytes, uint32_t seed) {
  std::vector<std::byte> made(bytes);
  uint32_t x = seed * 2654435761u + 1;
  for (std::byte& byte : made) {
    x = x * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(x >> 24);
  }
  return made;
}

// Pages that nobody has touched; given back at the end.
class Pages {
 public:
  explicit Pages(uint64_t bytes) : bytes_(bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory_ = static_cast<std::byte*>(at);
  }
  ~Pages() { munmap(memory_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return memory_; }

 private:
  uint64_t bytes_;
  std::byte* memory_;
};

void finish(TeamCopy& team, uint32_t index) {
  while (!team.done(index)) {
    if (!team.help()) team.wait(index);
  }
}

// All of it in pieces of `piece` bytes, as many at once as there are places.
void copy_all(TeamCopy& team, std::byte* dst, const std::byte* src, uint64_t bytes, uint64_t piece,
              Mine mine) {
  uint64_t started = 0, ended = 0;
  for (uint64_t at = 0; at < bytes; at += piece, ++started) {
    if (started - ended == TeamCopy::kPieces) finish(team, ended++ % TeamCopy::kPieces);
    team.begin_with(ended % TeamCopy::kPieces);
    team.start(started % TeamCopy::kPieces, dst + at, src + at, std::min(piece, bytes - at), mine);
  }
  for (; ended < started; ++ended) finish(team, ended % TeamCopy::kPieces);
}

uint32_t threads_here() {
  uint32_t count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

TEST(StreamingCopy, EverySizeAndAlignment) {
  const std::vector<std::byte> source = pattern(2048, 3);
  for (const uint64_t bytes : {0u, 1u, 15u, 63u, 64u, 65u, 127u, 128u, 200u, 1000u})
    for (uint64_t to = 0; to < 64; to += 7)
      for (uint64_t from = 0; from < 64; from += 5) {
        std::vector<std::byte> target(2048, std::byte{0xaa});
        streaming_copy(target.data() + to, source.data() + from, bytes);
        ASSERT_EQ(std::memcmp(target.data() + to, source.data() + from, bytes), 0);
        for (uint64_t i = 0; i < target.size(); ++i) {
          if (i < to || i >= to + bytes) {
            ASSERT_EQ(target[i], std::byte{0xaa});
          }
        }
      }
}

TEST(CopyTeam, EveryByteOnceWhateverTheSizeAndAlignment) {
  TeamCopy team(3);
  ASSERT_TRUE(team.valid());
  const std::vector<std::byte> source = pattern(9 * kPiece + 999, 1);
  for (const uint64_t bytes :
       {uint64_t{1}, policies::kSliceBytes - 1, policies::kSliceBytes + 1, kPiece, 9 * kPiece + 77})
    for (const uint64_t piece : {policies::kLeastPieceBytes, kPiece})
      for (const uint64_t odd : {0, 1, 63, 500}) {
        std::vector<std::byte> target(bytes + 600, std::byte{0x55});
        copy_all(team, target.data() + odd, source.data() + odd / 2, bytes, piece,
                 odd % 2 == 0 ? Mine::kSource : Mine::kDestination);
        ASSERT_EQ(std::memcmp(target.data() + odd, source.data() + odd / 2, bytes), 0);
        for (uint64_t i = 0; i < odd; ++i) ASSERT_EQ(target[i], std::byte{0x55});
        for (uint64_t i = odd + bytes; i < target.size(); ++i)
          ASSERT_EQ(target[i], std::byte{0x55});
      }
}

TEST(CopyTeam, WithoutHelpersTheCallerDoesItAll) {
  TeamCopy team(0);
  const std::vector<std::byte> source = pattern(kPiece + 5, 4);
  std::vector<std::byte> target(source.size());
  copy_all(team, target.data(), source.data(), source.size(), kPiece, Mine::kSource);
  EXPECT_EQ(source, target);
}

TEST(CopyTeam, MemoryThatNobodyTouchedIsFilled) {
  TeamCopy team(3);
  const std::vector<std::byte> source = pattern(4 * kPiece, 2);
  const Pages target(4 * kPiece + 2 * kPage);
  copy_all(team, target.data() + 100, source.data(), source.size(), kPiece, Mine::kDestination);
  EXPECT_EQ(std::memcmp(target.data() + 100, source.data(), source.size()), 0);
  const Pages zeros(kPiece);
  std::vector<std::byte> read(kPiece, std::byte{1});
  copy_all(team, read.data(), zeros.data(), kPiece, kPiece, Mine::kSource);
  EXPECT_EQ(read, std::vector<std::byte>(kPiece));
}

pthread_t g_faulted;
uint64_t g_hole = 0;
int g_faults = 0;

void fill_hole(int, siginfo_t*, void*) {
  g_faulted = pthread_self();
  ++g_faults;
  (void)mmap(reinterpret_cast<void*>(g_hole), kPage, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

class Faults : public testing::Test {
 protected:
  void SetUp() override {
    struct sigaction action {};
    action.sa_sigaction = fill_hole;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before_);
    g_faults = 0;
  }
  void TearDown() override { sigaction(SIGSEGV, &before_, nullptr); }
  // One page in the middle of the piece is not to be had.
  void expect_fault_here(const Pages& pages, Mine mine) {
    std::vector<std::byte> other = pattern(kPiece, 7);
    std::byte* const dst = mine == Mine::kSource ? other.data() : pages.data();
    const std::byte* const src = mine == Mine::kSource ? pages.data() : other.data();
    {
      TeamCopy team(3);
      copy_all(team, dst, src, kPiece, kPiece, mine);
    }
    EXPECT_EQ(g_faults, 1);
    EXPECT_TRUE(pthread_equal(g_faulted, pthread_self()) != 0);
    EXPECT_EQ(std::memcmp(dst, src, kPiece), 0);
  }

 private:
  struct sigaction before_ {};
};

TEST_F(Faults, OfAHoleComeInTheCallingThread) {
  for (const Mine mine : {Mine::kSource, Mine::kDestination}) {
    const Pages pages(kPiece);
    std::memset(pages.data(), 3, kPiece);
    g_faults = 0;
    g_hole = reinterpret_cast<uint64_t>(pages.data()) + kPiece / 2;
    munmap(reinterpret_cast<void*>(g_hole), kPage);
    expect_fault_here(pages, mine);
  }
}

TEST_F(Faults, OfAnUntouchedGuardPageComeInTheCallingThread) {
  for (const Mine mine : {Mine::kSource, Mine::kDestination}) {
    const Pages pages(kPiece);
    g_faults = 0;
    g_hole = reinterpret_cast<uint64_t>(pages.data()) + kPiece / 2;
    mprotect(reinterpret_cast<void*>(g_hole), kPage, PROT_NONE);
    expect_fault_here(pages, mine);
  }
}

TEST(CopyTeam, CopiesOfSeveralThreadsDoNotMix) {
  std::vector<std::thread> callers;
  for (uint32_t caller = 0; caller < 6; ++caller) {
    callers.emplace_back([caller] {
      const std::vector<std::byte> source = pattern(3 * kPiece + caller, caller);
      for (int round = 0; round < 4; ++round) {
        std::vector<std::byte> target(source.size());
        TeamCopy team(caller % 4);
        if (!team.valid()) continue;
        copy_all(team, target.data(), source.data(), source.size(), policies::kLeastPieceBytes,
                 Mine::kSource);
        ASSERT_EQ(source, target);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(CopyTeam, FourCopiesAtOnceShareTheHelpers) {
  std::vector<std::unique_ptr<TeamCopy>> copies;
  for (int i = 0; i < 4; ++i) {
    copies.push_back(std::make_unique<TeamCopy>(1));
    EXPECT_TRUE(copies.back()->valid());
  }
  EXPECT_FALSE(TeamCopy(1).valid());
  copies.pop_back();
  EXPECT_TRUE(TeamCopy(1).valid());
}

TEST(CopyTeam, ACancelledPieceIsNobodysAnyMore) {
  const std::vector<std::byte> source = pattern(kPiece, 9);
  for (int round = 0; round < 50; ++round) {
    TeamCopy team(3);
    auto target = std::make_unique<std::vector<std::byte>>(kPiece);
    team.start(0, target->data(), source.data(), kPiece, Mine::kSource);
    team.start(1, target->data(), source.data(), kPiece, Mine::kSource);
    team.cancel(0);
    team.cancel(1);
    EXPECT_TRUE(team.done(0) && team.done(1));
    target.reset();  // AddressSanitizer would see a helper that is still there
  }
}

TEST(CopyTeam, AForkedChildHasNoHelpersAndEnds) {
  TeamCopy team(3);
  const std::vector<std::byte> source = pattern(kPiece, 5);
  std::vector<std::byte> target(kPiece);
  team.start(0, target.data(), source.data(), kPiece, Mine::kSource);
  const pid_t child = fork();
  if (child == 0) _exit(threads_here() == 1 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  finish(team, 0);
  EXPECT_EQ(source, target);
}

struct Seen {
  uint32_t helpers = 0, standing_back = 0;
  uint32_t with_handlers = 0, with_glibc = 0, without_faults = 0;  // by the signals they block
};
// Of the helpers that there are and have said their name.
Seen look_at_helpers() {
  const auto bit = [](int signal) { return uint64_t{1} << (signal - 1); };
  Seen found;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) {
    std::ifstream status("/proc/self/task/" + std::string(entry->d_name) + "/status");
    std::string line, name;
    while (std::getline(status, line)) {
      if (line.rfind("Name:", 0) == 0) name = line.substr(6);
      if (line.rfind("SigBlk:", 0) != 0 || name != "tube-copy") continue;
      const uint64_t mask = std::stoull(line.substr(8), nullptr, 16);
      const int policy = sched_getscheduler(std::stoi(entry->d_name));
      if (policy == -1) continue;  // it has ended
      ++found.helpers;
      found.standing_back += policy == SCHED_IDLE;
      for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM, SIGPROF})
        found.with_handlers += (mask & bit(signal)) == 0;
      found.with_glibc += (mask & (bit(32) | bit(33))) != 0;  // cancellation, setuid in all threads
      for (const int signal : {SIGSEGV, SIGBUS, SIGSYS})
        found.without_faults += (mask & bit(signal)) != 0;
    }
  }
  closedir(tasks);
  return found;
}

Seen three_helpers() {
  Seen found;
  while (found.helpers != 3) {  // each goes when it had nothing to do, and is asked for again
    const TeamCopy team(3);
    found = look_at_helpers();
  }
  return found;
}

TEST(CopyTeam, HelpersTakeNoSignalsOfTheProgram) {
  const Seen found = three_helpers();
  EXPECT_EQ(found.with_handlers, 0u);
  EXPECT_EQ(found.with_glibc, 0u);
  EXPECT_EQ(found.without_faults, 0u);
}

TEST(CopyTeam, HelpersStandBackForOthers) {
  bool refused = false;  // by a sandbox
  std::thread([&] {
    const sched_param none{};
    refused = pthread_setschedparam(pthread_self(), SCHED_IDLE, &none) != 0;
  }).join();
  if (refused) GTEST_SKIP() << "no thread may stand back here";
  EXPECT_EQ(three_helpers().standing_back, 3u);
}

// glibc signals every thread and waits for each.
TEST(CopyTeam, TheProgramChangesItsUserBesideHelpers) {
  do {
    const TeamCopy team(3);
    EXPECT_EQ(setresuid(-1, -1, -1), 0);
  } while (look_at_helpers().helpers != 3);
}

sigjmp_buf g_out;

// A copy that a handler leaves; what follows in the same memory is the program's own.
[[noreturn]] void leave_a_copy_by_its_fault() {
  struct sigaction action {};
  action.sa_handler = [](int) { siglongjmp(g_out, 1); };
  sigaction(SIGSEGV, &action, nullptr);
  static TeamCopy team(3);
  static const Pages source(TeamCopy::kPieces * kPiece), target(TeamCopy::kPieces * kPiece);
  std::memset(source.data(), 3, TeamCopy::kPieces * kPiece);
  std::memset(target.data(), 1, TeamCopy::kPieces * kPiece);
  munmap(source.data(), kPage);
  if (sigsetjmp(g_out, 1) == 0) {
    for (uint32_t i = 0; i < TeamCopy::kPieces; ++i)
      team.start(i, target.data() + i * kPiece, source.data() + i * kPiece, kPiece, Mine::kSource);
    (void)team.help();
    _exit(1);  // no fault
  }
  for (uint32_t i = TeamCopy::kPieces; i-- > 0;)  // against the order of helpers
    std::memset(target.data() + i * kPiece, 7, kPiece);
  const std::vector<std::byte> other = pattern(2 * kPiece, 8);
  std::vector<std::byte> more(other.size());
  TeamCopy next(3);
  copy_all(next, more.data(), other.data(), other.size(), kPiece, Mine::kSource);
  const bool own = std::all_of(target.data(), target.data() + TeamCopy::kPieces * kPiece,
                               [](std::byte byte) { return byte == std::byte{7}; });
  _exit(own && more == other ? 0 : 2);
}

TEST(CopyTeamDeathTest, ACopyThatAHandlerLeavesHasNoHelpersAnyMore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(leave_a_copy_by_its_fault(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tube::hook
