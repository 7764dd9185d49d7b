// Copies on their clients' own streams: what marks their end, and how a stream is led out of the
// copy engine's queue.
#include "proxy/session/direct_copies.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "proxy/copy/copy_link.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/context_shares.h"
#include "tests/support/units.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

using policies::CopyWay;
using Calls = std::vector<std::string>;

int sent = 0;  // pieces

class DirectCopiesTest : public ::testing::Test {
 protected:
  DirectCopiesTest() {
    EXPECT_TRUE(gpus.open().ok());
    contexts.open();
    for (StreamState* stream : {&mine, &other}) {
      EXPECT_EQ(driver.cuStreamCreate(&stream->stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      stream->context = contexts.of_record(0)->number;
    }
    test::fake().calls.clear();
    test::fake().events_wait = true;
  }
  static Driver make_driver() {
    Driver d = test::make_fake_driver();
    d.cuMemcpyAsync = [](CUdeviceptr, CUdeviceptr, size_t, CUstream) {
      return ++sent, CUDA_SUCCESS;
    };
    d.cuMemsetD32Async = [](CUdeviceptr, unsigned, size_t, CUstream) {
      test::fake().calls.push_back("memset");
      return CUDA_SUCCESS;
    };
    return d;
  }
  void copy(StreamState& stream, uint64_t bytes = 64 * kKiB) {
    ASSERT_EQ(link.ask(stream.stream, {.to_gpu = true, .bytes = bytes}).way, CopyWay::kDirect);
    direct.issued(link, stream, bytes);
    direct.mark_if_much();
  }
  bool is_free(const StreamState& stream) {
    const bool free =
        link.ask(stream.stream, {.to_gpu = true, .bytes = 64 * kKiB}).way == CopyWay::kDirect;
    if (free) link.unclaim(64 * kKiB, 1);
    return free;
  }

  // That the lane has at once, when copies on streams have ended.
  int pieces_in_flight() {
    test::fake().events_wait = false;
    (void)is_free(other);
    test::fake().events_wait = true;
    sent = 0;
    const auto job = link.add({.dst = 1, .src = 2, .bytes = 64 * kMiB, .function = 2});
    for (int i = 0; i < 4; ++i) (void)link.turn();
    const int pieces = sent;
    test::fake().events_wait = false;
    std::atomic<bool> back{false};
    std::thread session([&] {
      link.take_back(*job);
      back = true;
    });
    while (!back) (void)link.turn();
    session.join();
    return pieces;
  }

  Driver driver = make_driver();
  Gpus gpus{driver};
  Objects objects;
  ContextShares contexts{driver, gpus, objects, 7};
  CopyLink link{driver, policies::LaneUse::kAuto, {.rest_ns = UINT64_MAX}, 0x7000};
  DirectCopies direct{driver, contexts};
  StreamState mine, other;
  uint64_t word = 0;
};

TEST_F(DirectCopiesTest, AWordBehindThemNeedsNoEvent) {
  copy(mine);
  copy(mine);
  EXPECT_TRUE(direct.unmarked());
  direct.word_follows(other, &word, 9, 1);
  EXPECT_TRUE(direct.unmarked()) << "another stream's word says nothing of them";
  direct.word_follows(mine, &word, 3, 1);
  EXPECT_FALSE(direct.unmarked());
  EXPECT_FALSE(is_free(other));
  word = 3;
  EXPECT_TRUE(is_free(other));
  EXPECT_EQ(test::fake().calls, Calls{});
}

TEST_F(DirectCopiesTest, AnEventMarksThemWhereNoWordFollows) {
  copy(mine);
  direct.mark();
  EXPECT_FALSE(direct.unmarked());
  EXPECT_EQ(test::fake().recorded.size(), 1u);
  EXPECT_FALSE(is_free(other));
  test::fake().events_wait = false;
  EXPECT_TRUE(is_free(other));
}

// The event ends with the copy; the word behind it can be kept waiting by a lane that became busy
// meanwhile, unless the link knows of it.
TEST_F(DirectCopiesTest, TheWordBehindAnEventCountsOnItsOwn) {
  copy(mine, 4096 * kKiB);
  direct.word_follows(other, &word, 3, 1);
  EXPECT_EQ(pieces_in_flight(), 2);
  direct.word_follows(mine, &word, 3, 1);
  EXPECT_EQ(pieces_in_flight(), 1);
  word = 3;
  EXPECT_EQ(pieces_in_flight(), 2);
  direct.word_follows(mine, &word, 4, 1);
  EXPECT_EQ(pieces_in_flight(), 2) << "only the first one";
}

TEST_F(DirectCopiesTest, ThatOfAStreamThatWasLedOutDoesNot) {
  copy(mine, 4096 * kKiB);
  const auto job = link.add({.dst = 1, .src = 2, .bytes = 1, .function = 2});
  DirectCopies::make_way(mine);
  link.take_back(*job);
  direct.word_follows(mine, &word, 3, 1);
  EXPECT_EQ(pieces_in_flight(), 2);
}

TEST_F(DirectCopiesTest, LargeOnesManyAndAStreamThatEndsAreMarkedAtOnce) {
  copy(mine, 4096 * kKiB);
  EXPECT_FALSE(direct.unmarked());
  for (int i = 0; i < 64; ++i) copy(mine, 25 * kKiB);
  EXPECT_FALSE(direct.unmarked());
  copy(mine);
  direct.forget(other);
  EXPECT_TRUE(direct.unmarked());
  direct.forget(mine);
  EXPECT_FALSE(direct.unmarked());
  EXPECT_EQ(test::fake().recorded.size(), 3u);
}

TEST_F(DirectCopiesTest, NoEventGoesIntoACaptureThatBeganBehindThem) {
  copy(mine);
  contexts.capture_started();
  test::fake().capturing = mine.stream;
  direct.mark();
  EXPECT_FALSE(direct.unmarked());
  EXPECT_TRUE(test::fake().recorded.empty()) << "the program's graph has it, and a query ends it";
  EXPECT_TRUE(is_free(other));
}

TEST_F(DirectCopiesTest, AStreamIsLedOutOnceAndOnlyBesideABusyLane) {
  copy(mine);
  DirectCopies::make_way(mine);
  EXPECT_EQ(test::fake().calls, Calls{});
  const auto job = link.add({.dst = 1, .src = 2, .bytes = 1, .function = 2});
  DirectCopies::make_way(mine);
  DirectCopies::make_way(mine);
  DirectCopies::make_way(other);
  EXPECT_EQ(test::fake().calls, Calls{"memset"});
  link.take_back(*job);
  direct.mark();
}

}  // namespace
}  // namespace tube::proxy
