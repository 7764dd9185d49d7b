// Which records end which streams' runs of launches, without a session.
#include <vector>

#include <gtest/gtest.h>

#include "protocol/wire.gen.h"
#include "proxy/common/stats.h"
#include "proxy/gpu/gpus.h"
#include "proxy/launch/coalescer.h"
#include "proxy/launch/plain_launch.h"
#include "proxy/session/context_shares.h"
#include "proxy/session/runs.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

class RunsTest : public ::testing::Test {
 protected:
  RunsTest() : driver(test::make_fake_driver()), gpus(driver), contexts(driver, gpus, objects, 7) {
    EXPECT_TRUE(gpus.open().ok());
    contexts.open();
    for (uint64_t i = 0; i < 2; ++i) {
      auto state = std::make_unique<StreamState>();
      EXPECT_EQ(driver.cuStreamCreate(&state->stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      state->context = 1;
      state->flags = CU_STREAM_NON_BLOCKING;
      streams[i] = state.get();
      const CUstream stream = state->stream;
      EXPECT_EQ(objects.insert(wire::Kind::kStream, id(i), stream, 1, std::move(state)),
                CUDA_SUCCESS);
    }
    share = contexts.find(1);
  }
  ~RunsTest() override {
    for (StreamState* stream : streams) runs.drop(*stream);
  }
  static uint64_t id(uint64_t stream) {
    return wire::make_id(static_cast<uint32_t>(stream + 1), 1);
  }

  void record(wire::Call call) {
    abi::RecordHeader header{};
    header.call = static_cast<uint32_t>(call);
    header.context = 1;
    header.sequence = ++sequence;
    runs.before(header);
  }
  void launch(StreamState& stream, uint32_t kernel) {
    record(wire::Call::tubeLaunch);
    runs.begin(stream);
    const PlainLaunch one{
        reinterpret_cast<CUfunction>(uint64_t{kernel} << 4), true, {1, 1, 1}, {1, 1, 1}, 0};
    EXPECT_EQ(runs.launch(stream, one, {}, sequence), CUDA_SUCCESS);
  }
  // Until the coalescer knows the run and holds its launches.
  void prove(StreamState& stream) {
    for (int i = 0; i < 3; ++i) {
      for (uint32_t kernel = 1; kernel <= kRun; ++kernel) launch(stream, kernel);
      record(wire::Call::tubeMemAlloc);
    }
    for (uint32_t kernel = 1; kernel <= kRun / 2; ++kernel) launch(stream, kernel);
    EXPECT_TRUE(runs.holding());
    launches_before = test::fake().launches;
  }
  int held_launched() const { return test::fake().launches - launches_before; }

  static constexpr uint32_t kRun = 16;
  Driver driver;
  Gpus gpus;
  Stats stats;
  uint64_t patience_ns = 1;
  std::vector<std::pair<uint32_t, CUresult>> failures;
  Objects objects;
  ContextShares contexts;
  Runs runs{driver, contexts, stats, patience_ns,
            [this](uint32_t gpu, CUresult error) { failures.emplace_back(gpu, error); }};
  StreamState* streams[2] = {};
  ContextShare* share = nullptr;
  uint64_t sequence = 0;
  int launches_before = 0;
};

TEST_F(RunsTest, WhatConcernsNoStreamEndsAll) {
  prove(*streams[0]);
  record(wire::Call::tubeMemAlloc);
  EXPECT_FALSE(runs.holding());
  EXPECT_EQ(held_launched(), static_cast<int>(kRun / 2));
}

TEST_F(RunsTest, WhatConcernsAnotherStreamEndsNothing) {
  prove(*streams[0]);
  record(wire::Call::tubeCopy);
  runs.make_way(*streams[1], *share);
  EXPECT_TRUE(runs.holding());
  runs.make_way(*streams[0], *share);
  EXPECT_FALSE(runs.holding());
  EXPECT_EQ(held_launched(), static_cast<int>(kRun / 2));
}

TEST_F(RunsTest, WhatIsHeldTooLongIsMade) {
  prove(*streams[0]);
  for (uint32_t i = 0; i < 1024 - kRun; ++i) record(wire::Call::tubeSignal);
  EXPECT_TRUE(runs.holding());
  for (uint32_t i = 0; i < 2 * kRun; ++i) record(wire::Call::tubeSignal);
  EXPECT_FALSE(runs.holding());
  EXPECT_EQ(held_launched(), static_cast<int>(kRun / 2));
}

TEST_F(RunsTest, AHeldLaunchThatFailsIsSaidWithItsGpu) {
  prove(*streams[0]);
  test::fake().next_launch = CUDA_ERROR_LAUNCH_FAILED;
  runs.give_up();
  EXPECT_FALSE(runs.holding());
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0], std::make_pair(0u, CUDA_ERROR_LAUNCH_FAILED));
}

TEST_F(RunsTest, AStreamWithAttributesIsNotHeld) {
  EXPECT_TRUE(runs.may_hold(*streams[0], *share));
  streams[0]->attributes = true;
  EXPECT_FALSE(runs.may_hold(*streams[0], *share));
  EXPECT_TRUE(runs.may_hold(*streams[1], *share));
  streams[1]->priority = -1;
  EXPECT_FALSE(runs.may_hold(*streams[1], *share));
}

TEST_F(RunsTest, NothingIsHeldWhileSomethingMayBeCaptured) {
  contexts.capture_started();
  EXPECT_FALSE(runs.may_hold(*streams[0], *share));
  contexts.capture_ended();
  EXPECT_TRUE(runs.may_hold(*streams[0], *share));
}

TEST_F(RunsTest, AStreamThatGoesMakesWhatItHeld) {
  prove(*streams[0]);
  runs.drop(*streams[0]);
  EXPECT_FALSE(runs.holding());
  EXPECT_EQ(streams[0]->runs, nullptr);
  EXPECT_EQ(held_launched(), static_cast<int>(kRun / 2));
}

}  // namespace
}  // namespace tube::proxy
