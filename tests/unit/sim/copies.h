// What the tests of the copy engines share: a held clock, memory, copies by name and in what order
// they were served.
#pragma once

#include <map>
#include <string>

#include "sim/machine/control.h"
#include "tests/unit/sim/support.h"

namespace tube::sim::test {

inline constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;

class CopiesTest : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    CU_OK(cuMemAlloc(&device_memory_, kBytes));
    void* host = nullptr;
    CU_OK(cuMemAllocHost(&host, kBytes));
    pinned_ = static_cast<char*>(host);
    pageable_.resize(kBytes);
    tube_sim_hold(1);
    first_ = tube_sim_served(0, nullptr, 0);
    start_ = tube_sim_now();
  }
  void TearDown() override {
    tube_sim_hold(0);
    SimTest::TearDown();
  }

  CUstream stream(char name) {
    CUstream s = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    unsigned long long id = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuStreamGetId(s, &id));
    names_[id] = name;
    return s;
  }
  void up(CUstream s, size_t bytes) { CU_OK(cuMemcpyHtoDAsync(device_memory_, pinned_, bytes, s)); }
  void down(CUstream s, size_t bytes) {
    CU_OK(cuMemcpyDtoHAsync(pinned_, device_memory_, bytes, s));
  }
  void pageable_up(CUstream s, size_t bytes) {
    CU_OK(cuMemcpyHtoDAsync(device_memory_, pageable_.data(), bytes, s));
  }
  // So many ends of copies; fewer when no copy is in hand.
  static int steps(int count) {
    int done = 0;
    while (done < count && tube_sim_step() != 0) ++done;
    return done;
  }
  std::vector<TubeSimCopy> served() const {
    std::vector<TubeSimCopy> copies(tube_sim_served(0, nullptr, 0) - first_);
    tube_sim_served(first_, copies.data(), copies.size());
    return copies;
  }
  // The streams whose copies ended, by name.
  std::string order() const {
    std::string names;
    for (const TubeSimCopy& copy : served()) names += names_.at(copy.stream);
    return names;
  }
  // Whether the copy that `submit` makes uses an engine. Its stream is idle.
  template <class Submit>
  bool uses_engine(Submit submit) {
    const size_t before = tube_sim_pending(-1, 0);
    submit();
    return tube_sim_pending(-1, 0) != before;
  }

  static constexpr size_t kBytes = 8 * kMiB;
  CUdeviceptr device_memory_ = 0;
  char* pinned_ = nullptr;
  std::vector<char> pageable_;
  size_t first_ = 0;
  uint64_t start_ = 0;
  std::map<uint64_t, char> names_;
};

}  // namespace tube::sim::test
