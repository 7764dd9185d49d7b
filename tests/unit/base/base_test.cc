// UniqueFd, Mapping, Result, futex, hash, scope guard: ownership is exact and failures are worded.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/cores.h"
#include "base/futex.h"
#include "base/hash.h"
#include "base/mapping.h"
#include "base/result.h"
#include "base/scope_guard.h"
#include "base/unique_fd.h"

namespace tube {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

UniqueFd memory_file(uint64_t size_bytes) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size_bytes)), 0);
  return fd;
}

TEST(UniqueFd, ClosesWhatItOwnsExactlyOnce) {
  int number = -1;
  {
    UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = fd.get();
    UniqueFd moved = std::move(fd);
    // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what is left there
    EXPECT_FALSE(fd.valid());
    EXPECT_EQ(moved.get(), number);
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, KeepsErrnoWhenItCloses) {
  UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  errno = ENOENT;
  fd.reset();
  EXPECT_EQ(errno, ENOENT);
}

TEST(UniqueFd, ReleasedFdStaysOpen) {
  UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int number = fd.release();
  fd.reset();
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(Mapping, RingShowsTheSameBytesTwice) {
  const uint64_t size = 8192;
  UniqueFd fd = memory_file(2 * size);
  Result<Mapping> ring = Mapping::map_ring(fd.get(), size, size);
  ASSERT_TRUE(ring) << ring.error().message;
  ring->data()[5] = std::byte{42};
  EXPECT_EQ(ring->data()[size + 5], std::byte{42});
  std::memset(ring->data() + size - 4, 7, 8);  // across the border
  EXPECT_EQ(ring->data()[3], std::byte{7});
}

TEST(Mapping, AtAnAddressNeverReplacesWhatIsThere) {
  UniqueFd fd = memory_file(4096);
  Result<Mapping> first = Mapping::map(fd.get(), 0, 4096, PROT_READ | PROT_WRITE);
  ASSERT_TRUE(first);
  first->data()[0] = std::byte{1};
  Result<Mapping> second = Mapping::map_at(first->address(), fd.get(), 0, 4096, PROT_READ);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EEXIST);
  EXPECT_NE(second.error().message.find("0x"), std::string::npos);
  EXPECT_EQ(Mapping::reserve_at(first->address(), 4096).error().code, EEXIST);
  EXPECT_EQ(first->data()[0], std::byte{1});
}

TEST(Mapping, GivesItsAddressesBack) {
  UniqueFd fd = memory_file(4096);
  uint64_t address = 0;
  {
    Result<Mapping> mapping = Mapping::map(fd.get(), 0, 4096, PROT_READ);
    ASSERT_TRUE(mapping);
    address = mapping->address();
  }
  Result<Mapping> again = Mapping::reserve_at(address, 4096);
  EXPECT_TRUE(again) << again.error().message;
}

TEST(Result, CarriesAValueOrAWordedError) {
  Result<int> good = 3;
  Result<int> bad = errno_error(ENOENT, "cannot open x");
  EXPECT_EQ(*good, 3);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ENOENT);
  EXPECT_EQ(bad.error().message, "cannot open x: No such file or directory");
  EXPECT_EQ(errorf("%d of %s", 2, "y").message, "2 of y");
  EXPECT_TRUE(Status{}.ok());
}

TEST(ResultDeathTest, ReadingTheWrongSideEndsTheProcess) {
  Result<int> bad = Error{1, "x"};
  EXPECT_DEATH((void)bad.value(), "");
}

TEST(CheckDeathTest, SaysWhatDoesNotHold) {
  EXPECT_DEATH(TUBE_CHECK(1 + 1 == 3), "tube: error: bug in Tube: .*1 \\+ 1 == 3");
}

int expect_handler_calls = 0;

TEST(Check, ExpectCallsTheHandlerAndGoesOn) {
  set_expect_handler([](const char*, const char*, int) { ++expect_handler_calls; });
  EXPECT_TRUE(TUBE_EXPECT(true));
  EXPECT_FALSE(TUBE_EXPECT(expect_handler_calls == 99));
  EXPECT_EQ(expect_handler_calls, 1);
  set_expect_handler(nullptr);
}

TEST(Futex, WaitReturnsAtOnceWhenTheValueIsAnother) {
  uint32_t word = 1;
  futex_wait(&word, 0, kNoTimeout);
  EXPECT_EQ(futex_wake(&word, 1), 0);
}

TEST(Futex, WakesAnotherProcess) {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* word = static_cast<uint32_t*>(memory);
  const pid_t child = ::fork();
  if (child == 0) {
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0) futex_wait(word, 0, kNoTimeout);
    ::_exit(0);
  }
  __atomic_store_n(word, 1, __ATOMIC_RELEASE);
  futex_wake(word, 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::munmap(memory, 4096);
}

TEST(Hash, DependsOnEveryByteAndOnTheLength) {
  const char a[] = "module image";
  char b[sizeof(a)];
  std::memcpy(b, a, sizeof(a));
  b[3] ^= 1;
  EXPECT_EQ(hash128(a, 12), hash128(a, 12));
  EXPECT_FALSE(hash128(a, 12) == hash128(b, 12));
  EXPECT_NE(hash64(a, 12), hash64(a, 11));
}

TEST(ScopeGuard, RunsUnlessDismissed) {
  int runs = 0;
  {
    ScopeGuard guard([&runs] { ++runs; });
  }
  {
    ScopeGuard guard([&runs] { ++runs; });
    guard.dismiss();
  }
  EXPECT_EQ(runs, 1);
}

TEST(Cores, AQuotaIsThousandthsRoundedUp) {
  EXPECT_EQ(thousandths_of_quota("max 100000\n"), 0u);
  EXPECT_EQ(thousandths_of_quota("200000 100000\n"), 2000u);
  EXPECT_EQ(thousandths_of_quota("250000 100000\n"), 2500u);
  EXPECT_EQ(thousandths_of_quota("10000 100000"), 100u);
  EXPECT_EQ(thousandths_of_quota("1 100000"), 1u);
  for (const char* bad : {"", "\n", "0 100000", "100000", "100000 0", "x y", "-1 100000"})
    EXPECT_EQ(thousandths_of_quota(bad), 0u) << bad;
}

TEST(Cores, AProcessIsInAGroupOfEachController) {
  constexpr const char* kGroups = "4:memory:/m\n2:cpuacct,cpu:/a/b\n1:cpuset:/\n0::/v2/x\n";
  EXPECT_EQ(group_path(kGroups, "cpu"), "/a/b");
  EXPECT_EQ(group_path(kGroups, "cpuset"), "/");
  EXPECT_EQ(group_path(kGroups, ""), "/v2/x");
  EXPECT_EQ(group_path("", "cpu"), "/");
  EXPECT_EQ(group_path("no line of such a file\n:\n", ""), "/");
}

// The calling thread, on one of the cores it may run on.
void run_on_one_core() {
  cpu_set_t mask;
  ASSERT_EQ(::sched_getaffinity(0, sizeof mask, &mask), 0);
  int first = 0;
  while (!CPU_ISSET(first, &mask)) ++first;
  CPU_ZERO(&mask);
  CPU_SET(first, &mask);
  ASSERT_EQ(::sched_setaffinity(0, sizeof mask, &mask), 0);
}

TEST(Cores, NoMoreThanTheProcessMayRunOn) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  const uint32_t all = usable_cores();
  EXPECT_GE(all, 1u);
  EXPECT_LE(all, static_cast<uint32_t>(CPU_COUNT(&before)));
  run_on_one_core();
  EXPECT_EQ(usable_cores(), 1u);
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(Cores, TheMaskIsEachThreadsOwn) {
  std::thread([] {
    run_on_one_core();
    EXPECT_EQ(affinity_cores(), 1u);
  }).join();
  cpu_set_t own;
  ASSERT_EQ(::sched_getaffinity(0, sizeof own, &own), 0);
  EXPECT_EQ(affinity_cores(), static_cast<uint32_t>(CPU_COUNT(&own)));
}

TEST(Cores, RunnableThreadsAreTheFourthFieldOfLoadavg) {
  EXPECT_EQ(runnable_of_loadavg("0.20 0.18 0.12 3/80 11206\n"), 3u);
  EXPECT_EQ(runnable_of_loadavg("120.00 99.10 7.00 1204/99999 1"), 1204u);
  for (const char* bad : {"", "0.20 0.18 0.12", "0.20 0.18 0.12 3", "a b c d/e f", "0 0 0 -1/2"})
    EXPECT_EQ(runnable_of_loadavg(bad), 0u) << bad;
  EXPECT_GE(machine_cores(), 1u);
}

}  // namespace
}  // namespace tube
