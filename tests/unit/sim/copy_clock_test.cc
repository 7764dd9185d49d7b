// When copies begin and end on the clock of the copy engines (sim/machine/copy_engines.h), to the
// nanosecond. Run with TUBE_SIM_TIME=virtual; CopyClock with TUBE_SIM_PCIE=1e9, a byte a
// nanosecond.
#include "tests/unit/sim/copies.h"

#include <random>

namespace tube::sim::test {
namespace {

constexpr uint64_t kCopyNs = 4000;  // what each copy takes besides its bytes

class CopyClock : public CopiesTest {
 protected:
  static constexpr size_t kMegabyte = 1'000'000;
  static constexpr uint64_t kMegabyteNs = kMegabyte + kCopyNs;

  struct Times {
    uint64_t ready, begin, end;
    bool operator==(const Times&) const = default;
  };
  // Of the copy that ended as number `at`, from the start of the test.
  Times times(size_t at) const {
    const TubeSimCopy copy = served().at(at);
    return {copy.ready_ns - start_, copy.begin_ns - start_, copy.end_ns - start_};
  }
  uint64_t now() const { return tube_sim_now() - start_; }
};

TEST_F(CopyClock, ACopyTakesItsBytesAndAConstant) {
  CUstream s = stream('s');
  up(s, kMegabyte);
  EXPECT_EQ(0u, now());
  steps(1);
  EXPECT_EQ(kMegabyteNs, now());
  EXPECT_EQ((Times{0, 0, kMegabyteNs}), times(0));
}

TEST_F(CopyClock, CopiesOfAStreamFollowEachOther) {
  CUstream s = stream('s');
  for (int i = 0; i < 3; ++i) up(s, kMegabyte);
  steps(3);
  EXPECT_EQ((Times{kMegabyteNs, kMegabyteNs, 2 * kMegabyteNs}), times(1));
  EXPECT_EQ((Times{2 * kMegabyteNs, 2 * kMegabyteNs, 3 * kMegabyteNs}), times(2));
}

TEST_F(CopyClock, DirectionsGoSideBySide) {
  CUstream a = stream('a'), b = stream('b');
  up(a, kMegabyte);
  down(b, kMegabyte / 2);
  down(b, kMegabyte);
  steps(3);
  EXPECT_EQ("bab", order());
  EXPECT_EQ((Times{0, 0, kMegabyteNs}), times(1));
  EXPECT_EQ(kMegabyteNs + kMegabyteNs / 2 + kCopyNs / 2, now());
}

TEST_F(CopyClock, TheVictimOfOneInFlightWaitsForThatCopyAndNoLonger) {
  CUstream bulk = stream('b'), victim = stream('v');
  up(bulk, kMegabyte);
  tube_sim_advance_to(start_ + 300'000);
  up(victim, kMegabyte);
  steps(2);
  EXPECT_EQ((Times{300'000, kMegabyteNs, 2 * kMegabyteNs}), times(1));
}

TEST_F(CopyClock, TheVictimOfTwoInFlightWaitsForAsLongAsTheyCome) {
  CUstream bulk = stream('b'), victim = stream('v');
  up(bulk, kMegabyte);
  up(bulk, kMegabyte);
  up(victim, kMegabyte);
  for (int i = 0; i < 398; ++i) {
    steps(1);
    up(bulk, kMegabyte);
  }
  steps(3);
  EXPECT_EQ((Times{0, 400 * kMegabyteNs, 401 * kMegabyteNs}), times(400));
}

TEST_F(CopyClock, EventsTellTheTimeOfTheClock) {
  CUstream s = stream('s');
  CUevent before = nullptr, after = nullptr;
  CU_OK(cuEventCreate(&before, 0));
  CU_OK(cuEventCreate(&after, 0));
  CU_OK(cuEventRecord(before, s));
  up(s, kMegabyte);
  CU_OK(cuEventRecord(after, s));
  CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(after));
  steps(1);
  CU_OK(cuEventQuery(after));
  float ms = 0;
  CU_OK(cuEventElapsedTime(&ms, before, after));
  EXPECT_FLOAT_EQ(1.004f, ms);
}

TEST_F(CopyClock, StandsStillWhileItIsHeldAndPassesIdleTimeWhenTold) {
  CUstream s = stream('s');
  tube_sim_advance_to(start_ + 5'000'000);
  EXPECT_EQ(5'000'000u, now());
  up(s, kMegabyte);
  tube_sim_advance_to(start_ + 5'000'000 + kMegabyteNs - 1);
  CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
  tube_sim_advance_to(start_ + 5'000'000 + kMegabyteNs);
  CU_OK(cuStreamQuery(s));
  EXPECT_EQ((Times{5'000'000, 5'000'000, 5'000'000 + kMegabyteNs}), times(0));
}

TEST_F(CopyClock, OneThreadThatWaitsForEachCopyNeedsNobodyToHoldIt) {
  tube_sim_hold(0);
  for (int i = 0; i < 10; ++i) CU_OK(cuMemcpyHtoD(device_memory_, pinned_, kMegabyte));
  EXPECT_EQ(10 * kMegabyteNs, now());
}

TEST_F(CopyClock, OtherWorkTakesNoTime) {
  load();
  CUstream s = stream('s');
  up(s, 24 * kKiB);
  CU_OK(cuMemsetD8Async(device_memory_, 0, kMiB, s));
  CU_OK(launch_add(device_memory_, 4, 1, s));
  CU_OK(cuStreamSynchronize(s));
  EXPECT_EQ(0u, now());
}

// Random copies on random streams of both directions, some behind events of other streams: what was
// served is what copy_order.h says, and an engine with work is never idle.
class RandomCopies : public CopyClock {
 protected:
  void submit() {
    const size_t bytes = 25 * kKiB + random_() % 100'000;
    CUstream s = streams_[random_() % streams_.size()];
    if (random_() % 8 == 0) wait(s);
    if (random_() % 2 == 0) up(s, bytes);
    else down(s, bytes);
    if (random_() % 4 == 0) record(s);
  }
  void wait(CUstream s) { CU_OK(cuStreamWaitEvent(s, event_, 0)); }
  void record(CUstream s) { CU_OK(cuEventRecord(event_, s)); }
  // What follows `copy` on its engine is its stream's next where that was ready, else the one that
  // is ready for longest.
  static void check(const std::vector<TubeSimCopy>& engine) {
    for (size_t i = 0; i + 1 < engine.size(); ++i) {
      const TubeSimCopy &copy = engine[i], &next = engine[i + 1];
      EXPECT_EQ(std::max(copy.end_ns, next.ready_ns), next.begin_ns);
      bool own = false;
      uint64_t longest = UINT64_MAX;
      for (size_t j = i + 1; j < std::min(engine.size(), i + 1000); ++j) {
        own |= engine[j].stream == copy.stream && engine[j].ready_ns <= copy.end_ns;
        longest = std::min(longest, engine[j].ready_ns);
      }
      if (own) {
        EXPECT_EQ(copy.stream, next.stream);
      }
      if (!own) {
        EXPECT_EQ(longest, next.ready_ns);
      }
    }
  }
  std::mt19937 random_{7};
  std::vector<CUstream> streams_;
  CUevent event_ = nullptr;
};

TEST_F(RandomCopies, AreServedInTheRulesOrderWithoutAPause) {
  for (char name = 'a'; name < 'h'; ++name) streams_.push_back(stream(name));
  CU_OK(cuEventCreate(&event_, 0));
  for (int i = 0; i < 4000; ++i) {
    submit();
    if (random_() % 8 == 0) tube_sim_advance_to(tube_sim_now() + random_() % 1'000'000);
  }
  steps(INT32_MAX);
  std::vector<TubeSimCopy> by_direction[2];
  for (const TubeSimCopy& copy : served()) by_direction[copy.up].push_back(copy);
  EXPECT_EQ(4000u, by_direction[0].size() + by_direction[1].size());
  for (const auto& engine : by_direction) check(engine);
}

// The default machine: what was measured on an H200 (docs/facts.md), in GB/s.
class CopyFigures : public CopiesTest {};

TEST_F(CopyFigures, PiecesReachTheBandwidthOfAnH200) {
  CUstream s = stream('s');
  const std::pair<size_t, double> measured[] = {{1, 44.2}, {2, 49.5}, {4, 52.2}, {8, 53.6}};
  for (const auto& [mib, rate] : measured) {
    const uint64_t begin = tube_sim_now();
    for (int i = 0; i < 64; ++i) up(s, mib * kMiB);
    steps(64);
    const auto ns = static_cast<double>(tube_sim_now() - begin);
    EXPECT_NEAR(rate, 64.0 * static_cast<double>(mib * kMiB) / ns, 0.03 * rate) << mib << " MiB";
  }
}

}  // namespace
}  // namespace tube::sim::test
