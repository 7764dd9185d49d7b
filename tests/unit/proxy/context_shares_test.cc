// What a client's context numbers stand for, without a session.
#include <vector>

#include <gtest/gtest.h>

#include "proxy/gpu/gpus.h"
#include "proxy/session/context_shares.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

using Calls = std::vector<std::string>;

class ContextSharesTest : public ::testing::Test {
 protected:
  ContextSharesTest()
      : driver(two_gpus()), gpus(driver), contexts(driver, gpus, objects, /*session=*/7) {
    EXPECT_TRUE(gpus.open().ok());
    contexts.open();
    current().clear();
  }
  static std::vector<CUcontext>& current() {
    static std::vector<CUcontext> all;
    return all;
  }
  static Driver two_gpus() {
    Driver d = test::make_fake_driver();
    d.cuDeviceGetCount = [](int* n) {
      *n = 2;
      return CUDA_SUCCESS;
    };
    d.cuCtxSetCurrent = [](CUcontext context) {
      current().push_back(context);
      return CUDA_SUCCESS;
    };
    return d;
  }
  StreamState& add_stream(uint64_t id, uint32_t context, uint32_t flags = 0) {
    auto state = std::make_unique<StreamState>();
    EXPECT_EQ(driver.cuStreamCreate(&state->stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    state->context = context;
    state->flags = flags;
    StreamState& made = *state;
    EXPECT_EQ(objects.insert(wire::Kind::kStream, id, made.stream, context, std::move(state)),
              CUDA_SUCCESS);
    return made;
  }

  static constexpr uint32_t kCreated = wire::kFirstCreatedContext;
  Driver driver;
  Gpus gpus;
  Objects objects;
  ContextShares contexts;
};

TEST_F(ContextSharesTest, EveryGpuHasItsPrimaryContext) {
  for (uint32_t gpu : {0u, 1u}) {
    ASSERT_NE(contexts.find(gpu + 1), nullptr);
    EXPECT_EQ(contexts.find(gpu + 1)->gpu, gpu);
  }
  EXPECT_EQ(contexts.find(3), nullptr);
}

TEST_F(ContextSharesTest, ARecordWithoutContextGoesWhereTheLastOneWithOneWent) {
  EXPECT_EQ(contexts.of_record(0)->gpu, 0u);
  EXPECT_TRUE(contexts.comes_home(2, *contexts.find(2)));
  EXPECT_FALSE(contexts.comes_home(2, *contexts.find(2))) << "it is there already";
  EXPECT_EQ(contexts.of_record(0)->gpu, 1u);
  EXPECT_FALSE(contexts.comes_home(0, *contexts.of_record(0)));
  EXPECT_EQ(contexts.of_record(1)->gpu, 0u);
}

TEST_F(ContextSharesTest, CreatedContextsAreBoundedAndTheirNumbersChecked) {
  EXPECT_EQ(contexts.create(kCreated, 1, 4), CUDA_SUCCESS);
  EXPECT_EQ(contexts.find(kCreated)->flags, 4u);
  EXPECT_EQ(contexts.create(kCreated, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(contexts.create(kCreated - 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(contexts.create(kCreated + 1, 2, 0), CUDA_ERROR_INVALID_VALUE);
  CUresult last = CUDA_SUCCESS;
  for (uint32_t i = 1; last == CUDA_SUCCESS; ++i) last = contexts.create(kCreated + i, 0, 0);
  EXPECT_EQ(last, CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(ContextSharesTest, AnErasedShareIsGoneOrBeginsAnew) {
  ASSERT_EQ(contexts.create(kCreated, 1, 4), CUDA_SUCCESS);
  contexts.find(kCreated)->limits[1] = 2;
  contexts.erase(kCreated, true);
  ASSERT_NE(contexts.find(kCreated), nullptr);
  EXPECT_EQ(contexts.find(kCreated)->flags, 4u);
  EXPECT_EQ(contexts.find(kCreated)->gpu, 1u);
  EXPECT_TRUE(contexts.find(kCreated)->limits.empty());
  contexts.erase(kCreated, false);
  EXPECT_EQ(contexts.find(kCreated), nullptr);
}

TEST_F(ContextSharesTest, TheDriverIsToldOfAContextOnlyWhenItChanges) {
  EXPECT_EQ(contexts.make_current(0u), CUDA_SUCCESS);
  EXPECT_EQ(contexts.make_current(*contexts.find(1)), CUDA_SUCCESS);
  EXPECT_EQ(current(), std::vector<CUcontext>{gpus[0].context});
  EXPECT_EQ(contexts.make_current(1u), CUDA_SUCCESS);
  EXPECT_EQ(contexts.gpu(), 1u);
  EXPECT_EQ(contexts.make_current(2u), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(current(), (std::vector<CUcontext>{gpus[0].context, gpus[1].context}));
  EXPECT_TRUE(contexts.has_used(0) && contexts.has_used(1));
  EXPECT_FALSE(contexts.has_used(2));
  contexts.begin_thread();
  EXPECT_EQ(contexts.make_current(1u), CUDA_SUCCESS);
  EXPECT_EQ(current().size(), 3u) << "another thread has nothing current";
}

TEST_F(ContextSharesTest, TheLegacyStreamIsThatOfTheRecordsContextAndMadeOnce) {
  CUresult error = CUDA_SUCCESS;
  StreamState* first = contexts.stream(wire::kLegacyStream, 1, &error);
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(first->legacy);
  EXPECT_EQ(contexts.stream(wire::kLegacyStream, 1, &error), first);
  EXPECT_NE(contexts.stream(wire::kLegacyStream, 2, &error), first);
  EXPECT_EQ(test::fake().live_streams, 2);
  EXPECT_EQ(contexts.stream(wire::kLegacyStream, 9, &error), nullptr);
  EXPECT_EQ(error, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(contexts.stream(wire::make_id(5, 1), 1, &error), nullptr);
  EXPECT_EQ(error, CUDA_ERROR_INVALID_HANDLE);
  contexts.drop_own(*contexts.find(1));
  contexts.drop_own(*contexts.find(2));
  EXPECT_EQ(test::fake().live_streams, 0);
}

TEST_F(ContextSharesTest, WorkOfABusyStreamThatGoesStillCountsForTheLegacyStream) {
  StreamState& stream = add_stream(wire::make_id(1, 1), 1);
  ContextShare& share = *contexts.find(1);
  EXPECT_EQ(contexts.put_in_order(stream, share, StreamUse::kWork, 1), CUDA_SUCCESS);
  test::fake().stream_busy = true;
  contexts.retire(stream);
  ASSERT_NE(share.legacy, nullptr) << "it is made to stand for the work that is left";
  EXPECT_EQ(test::fake().calls.size(), 2u);  // recorded there, waited for here
  contexts.drop_own(share);
}

TEST_F(ContextSharesTest,
       WorkOfABusyNonBlockingStreamThatGoesIsSeenByAWalkAndNotByTheLegacyStream) {
  StreamState& stream = add_stream(wire::make_id(1, 1), 1, CU_STREAM_NON_BLOCKING);
  ContextShare& share = *contexts.find(1);
  contexts.retire(stream);
  EXPECT_EQ(share.ended, nullptr) << "it has no work";
  test::fake().stream_busy = true;
  contexts.retire(stream);
  EXPECT_EQ(share.legacy, nullptr);
  ASSERT_NE(share.ended, nullptr);
  CUresult error = CUDA_SUCCESS;
  EXPECT_EQ(contexts.ended_streams(1, &error), share.ended.get());
  EXPECT_EQ(contexts.stream(wire::kEndedStreams, 1, &error), nullptr) << "it takes no work";
  bool seen = false;
  contexts.all_streams([&](const StreamState& of_walk, uint32_t) {
    seen |= &of_walk == share.ended.get();
    return true;
  });
  EXPECT_TRUE(seen);
  contexts.drop_own(share);
}

TEST_F(ContextSharesTest, AWalkOverAllStreamsSeesStandInsAndStopsWhenTold) {
  CUresult error = CUDA_SUCCESS;
  (void)contexts.stream(wire::kLegacyStream, 2, &error);
  add_stream(wire::make_id(1, 1), 1);
  add_stream(wire::make_id(2, 1), 2);
  std::vector<uint32_t> seen;
  EXPECT_TRUE(contexts.all_streams([&](const StreamState&, uint32_t gpu) {
    seen.push_back(gpu);
    return true;
  }));
  EXPECT_EQ(seen, (std::vector<uint32_t>{1, 0, 1}));
  seen.clear();
  EXPECT_FALSE(contexts.all_streams([&](const StreamState& stream, uint32_t) {
    seen.push_back(stream.context);
    return false;
  }));
  EXPECT_EQ(seen.size(), 1u);
}

TEST_F(ContextSharesTest, CapturesAreCountedAndNeverBelowNone) {
  contexts.capture_ended();
  EXPECT_FALSE(contexts.captures());
  contexts.capture_started();
  contexts.capture_started();
  contexts.capture_ended();
  EXPECT_TRUE(contexts.captures());
  contexts.end_captures();
  EXPECT_FALSE(contexts.captures());
}

}  // namespace
}  // namespace tube::proxy
