#include <gtest/gtest.h>

#include "proxy/session/stream_order.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

class StreamOrderTest : public ::testing::Test {
 protected:
  StreamOrderTest() : driver(test::make_fake_driver()), order(driver) {
    make(legacy, 1, 0);
    legacy.legacy = true;
    make(blocking, 2, 0);
    make(other, 3, 0);
    make(free_running, 4, CU_STREAM_NON_BLOCKING);
  }
  static void make(StreamState& stream, uint64_t number, uint32_t flags) {
    stream.stream = reinterpret_cast<CUstream>(number << 4);
    stream.flags = flags;
  }
  std::vector<std::string> work(StreamState& stream, StreamUse use = StreamUse::kWork) {
    return work(stream, use, ++sequence);
  }
  std::vector<std::string> work(StreamState& stream, StreamUse use, uint64_t of_record) {
    test::fake().calls.clear();
    EXPECT_EQ(order.before(stream, &legacy, use, false, of_record), CUDA_SUCCESS);
    return test::fake().calls;
  }
  uint64_t sequence = 0;
  using Calls = std::vector<std::string>;
  Driver driver;
  StreamOrder order;
  StreamState legacy, blocking, other, free_running;
};

TEST_F(StreamOrderTest, OneKindOfStreamCostsNoDriverCall) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(work(blocking), Calls{});
  EXPECT_EQ(work(free_running), Calls{});
}

TEST_F(StreamOrderTest, LegacyAloneCostsNoDriverCall) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(work(legacy), Calls{});
}

TEST_F(StreamOrderTest, LegacyWaitsForEveryDirtyBlockingStreamOnce) {
  work(blocking);
  work(other);
  EXPECT_EQ(work(legacy), (Calls{"record s2", "wait s1", "record s3", "wait s1"}));
  EXPECT_EQ(work(legacy), Calls{});
}

TEST_F(StreamOrderTest, BlockingWaitsForEarlierLegacyWorkOnce) {
  work(legacy);
  EXPECT_EQ(work(blocking), (Calls{"record s1", "wait s2"}));
  EXPECT_EQ(work(blocking), Calls{});
  EXPECT_EQ(work(other), (Calls{"record s1", "wait s3"}));
}

TEST_F(StreamOrderTest, LaterLegacyWorkIsWaitedForAgain) {
  work(legacy);
  work(blocking);
  EXPECT_EQ(work(legacy), (Calls{"record s2", "wait s1"}));
  EXPECT_EQ(work(blocking), (Calls{"record s1", "wait s2"}));
}

TEST_F(StreamOrderTest, NonBlockingStreamsTakeNoPart) {
  work(legacy);
  EXPECT_EQ(work(free_running), Calls{});
  EXPECT_EQ(work(legacy), Calls{});
}

TEST_F(StreamOrderTest, AMarkerOnTheLegacyStreamWaitsButOrdersNothingBehindIt) {
  work(blocking);
  EXPECT_EQ(work(legacy, StreamUse::kMarker), (Calls{"record s2", "wait s1"}));
  EXPECT_EQ(work(blocking), Calls{});
}

TEST_F(StreamOrderTest, WorkOfADestroyedStreamStillCountsForLegacy) {
  work(blocking);
  test::fake().calls.clear();
  EXPECT_EQ(order.retire(blocking, &legacy, false), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().calls, (Calls{"record s2", "wait s1"}));
  EXPECT_EQ(work(legacy), Calls{});
}

// The context must still wait for it, and the legacy stream, which has a place of its own, must
// not.
TEST_F(StreamOrderTest, WorkOfADestroyedNonBlockingStreamCountsForTheStreamThatIsLeftForIt) {
  StreamState ended;
  make(ended, 5, CU_STREAM_NON_BLOCKING);
  work(legacy);
  work(free_running);
  EXPECT_EQ(order.retire(free_running, &ended, false), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().calls, (Calls{"record s4", "wait s5"}));
  EXPECT_EQ(work(legacy), Calls{});
}

// A stream that comes later must not wait for what the destroyed one still does.
TEST_F(StreamOrderTest, ALaterBlockingStreamWaitsForLegacyWorkButNotForADestroyedStreams) {
  work(legacy);
  work(blocking);
  test::fake().calls.clear();
  EXPECT_EQ(order.retire(blocking, &legacy, false), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().calls, (Calls{"record s1", "record s2", "wait s1"}));
  EXPECT_EQ(work(other), (Calls{"wait s3"}));
  EXPECT_EQ(work(legacy), (Calls{"record s3", "wait s1"}));
}

// A marker that is kept back: `blocking` is held, and more comes to `other`.
TEST_F(StreamOrderTest, AKeptMarkerWaitsForNothingThatCameToOtherStreamsLater) {
  work(blocking);
  work(other);
  test::fake().calls.clear();
  const auto held = [&](const StreamState& stream) { return &stream == &blocking; };
  const uint64_t marker = ++sequence;
  order.mark_ahead(marker, false, held);
  EXPECT_EQ(test::fake().calls, (Calls{"record s3"}));
  work(other);
  EXPECT_EQ(work(legacy, StreamUse::kMarker, marker), (Calls{"wait s1", "record s2", "wait s1"}));
  EXPECT_EQ(work(legacy), (Calls{"record s3", "wait s1"}));
}

// What comes behind it may wait for the program to see it.
TEST_F(StreamOrderTest, AKeptMarkerDoesNotWaitForWhatALaterOneCovers) {
  work(blocking);
  const auto held = [&](const StreamState& stream) { return &stream == &blocking; };
  const uint64_t first = ++sequence;
  order.mark_ahead(first, false, held);
  work(other);
  const uint64_t second = ++sequence;
  order.mark_ahead(second, false, held);
  EXPECT_EQ(test::fake().calls, (Calls{"record s3"}));
  EXPECT_EQ(work(legacy, StreamUse::kMarker, first), (Calls{"record s2", "wait s1"}));
  EXPECT_EQ(work(legacy, StreamUse::kMarker, second), (Calls{"wait s1"}));
  EXPECT_EQ(test::fake().live_events, 1);  // of `blocking`, for its next time
}

TEST_F(StreamOrderTest, AKeptMarkerDoesNotWaitForALaterStreamThatGoesAway) {
  work(blocking);
  const uint64_t marker = ++sequence;
  order.mark_ahead(marker, false, [&](const StreamState& s) { return &s == &blocking; });
  work(other);
  test::fake().calls.clear();
  EXPECT_EQ(order.retire(other, &legacy, false), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().calls, (Calls{"record s3"}));
  EXPECT_EQ(work(legacy, StreamUse::kMarker, marker), (Calls{"record s2", "wait s1"}));
  EXPECT_EQ(work(legacy), (Calls{"wait s1"}));
}

// With the last marker put in, a stream that goes away leaves nothing to be noted.
TEST_F(StreamOrderTest, AStreamThatGoesAwayBehindAMarkerIsJoinedAtOnce) {
  order.mark_ahead(++sequence, false, [](const StreamState&) { return false; });
  work(legacy, StreamUse::kMarker, sequence);
  work(other);
  EXPECT_EQ(order.retire(other, &legacy, false), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().calls, (Calls{"record s3", "wait s1"}));
}

TEST_F(StreamOrderTest, AMarkerOnTheLegacyStreamKeepsItsPlace) {
  work(legacy);
  work(blocking);
  EXPECT_EQ(work(legacy, StreamUse::kMarker), (Calls{"record s1", "record s2", "wait s1"}));
  EXPECT_EQ(work(other), (Calls{"wait s3"}));
}

}  // namespace
}  // namespace tube::proxy
