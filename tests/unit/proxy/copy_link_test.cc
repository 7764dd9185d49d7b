// A link: who uses it directly, whose pieces its lane sends and when, on a driver of plain
// functions.
#include "proxy/copy/copy_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "tests/support/units.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

using policies::CopyWay;
using Turn = CopyLink::Turn;

const auto kStream = reinterpret_cast<CUstream>(0x10);
const auto kOther = reinterpret_cast<CUstream>(0x20);
constexpr CUdeviceptr kScratch = 0x7000;
const auto kLane = reinterpret_cast<CUstream>(0x30);

struct Sent {
  CUdeviceptr dst;
  uint64_t bytes;
  CUstream stream;
  CUdeviceptr src;
};

struct Fake {
  std::vector<Sent> sent;
  std::vector<CUDA_MEMCPY3D> regions;
  std::vector<CUstream> marked;  // of each event, the stream that it was recorded on last
  std::vector<CUevent> order;    // events as they were recorded
  std::set<CUevent> pending;
  CUresult copy = CUDA_SUCCESS;
  std::function<void()> during_copy;
  size_t copies_that_go = SIZE_MAX;  // and all others fail
  int waits = 0;                     // for a stream
  uint64_t events = 0;
  uint64_t written = 0;
  size_t marked_before = 0;  // events recorded when that was written
} g;

Driver make_driver() {
  Driver d = test::make_fake_driver();
  d.cuStreamCreate = [](CUstream* stream, unsigned) { return *stream = kLane, CUDA_SUCCESS; };
  d.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
  d.cuEventCreate = [](CUevent* event, unsigned) {
    return *event = reinterpret_cast<CUevent>(++g.events), CUDA_SUCCESS;
  };
  d.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
  d.cuEventRecord = [](CUevent event, CUstream stream) {
    g.marked.push_back(stream);
    g.order.push_back(event);
    g.pending.insert(event);
    return CUDA_SUCCESS;
  };
  d.cuEventQuery = [](CUevent event) {
    return g.pending.contains(event) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  d.cuMemcpyAsync = [](CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    if (g.during_copy) g.during_copy();
    if (g.sent.size() >= g.copies_that_go) return CUDA_ERROR_LAUNCH_FAILED;
    if (g.copy == CUDA_SUCCESS) g.sent.push_back({dst, bytes, stream, src});
    return g.copy;
  };
  d.cuStreamSynchronize = [](CUstream) { return ++g.waits, CUDA_SUCCESS; };
  d.cuMemcpy3DAsync_v2 = [](const CUDA_MEMCPY3D* region, CUstream) {
    return g.regions.push_back(*region), CUDA_SUCCESS;
  };
  d.cuStreamWriteValue64_v2 = [](CUstream, CUdeviceptr, cuuint64_t value, unsigned) {
    g.marked_before = g.order.size();
    return g.written = value, CUDA_SUCCESS;
  };
  return d;
}

class CopyLinkTest : public testing::Test {
 protected:
  CopyLinkTest() { g = {}; }
  ~CopyLinkTest() override { link.close(); }

  LaneCopy copy(uint64_t function, uint64_t bytes, CUdeviceptr dst = 0x1000) {
    return {.dst = dst, .src = 0x2000, .bytes = bytes, .function = function};
  }
  // The oldest thing that is under way ends.
  void end_one() {
    for (CUevent event : g.order) {
      if (g.pending.erase(event) != 0) return;
    }
  }
  void end_all() { g.pending.clear(); }
  // As a session does it: the pacing thread goes on meanwhile.
  void take_back(LaneJob& job) {
    std::atomic<bool> back{false};
    std::thread session([&] {
      link.take_back(job);
      back = true;
    });
    while (!back) {
      end_all();
      (void)link.turn();
    }
    session.join();
  }
  uint64_t sent_bytes() const {
    uint64_t bytes = 0;
    for (const Sent& piece : g.sent) bytes += piece.bytes;
    return bytes;
  }

  Driver driver = make_driver();
  // No pause comes of its own: a thread may stand for as long as the machine likes.
  CopyLink link{driver, policies::LaneUse::kAuto, {.rest_ns = UINT64_MAX}, kScratch};
};

TEST_F(CopyLinkTest, OneStreamUsesItDirectlyUntilAnotherComes) {
  const policies::CopyAsk ask{.to_gpu = true, .bytes = kMiB};
  EXPECT_EQ(link.ask(kStream, ask).way, CopyWay::kDirect);
  link.mark(kStream, kMiB, 1);
  EXPECT_EQ(link.ask(kStream, ask).way, CopyWay::kDirect);
  link.unclaim(kMiB, 1);
  EXPECT_EQ(link.ask(kOther, ask).way, CopyWay::kLane);
  end_all();
  EXPECT_EQ(link.ask(kOther, ask).way, CopyWay::kDirect);
  link.unclaim(kMiB, 1);
}

TEST_F(CopyLinkTest, AWordThatFollowsTellsTheEndOfDirectCopies) {
  const policies::CopyAsk ask{.to_gpu = true, .bytes = kMiB};
  uint64_t word = 0;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(link.ask(kStream, ask).way, CopyWay::kDirect);
  link.mark({&word, 5, 1}, 2 * kMiB, 2);
  EXPECT_EQ(link.ask(kOther, ask).way, CopyWay::kLane);
  word = 4;
  EXPECT_EQ(link.ask(kOther, ask).way, CopyWay::kLane);
  word = 5;
  EXPECT_EQ(link.ask(kOther, ask).way, CopyWay::kDirect);
  link.mark({&word, 9, 2}, kMiB, 1);
  EXPECT_EQ(link.ask(kStream, ask).way, CopyWay::kLane);
  link.forget(2);
  EXPECT_EQ(link.ask(kStream, ask).way, CopyWay::kDirect) << "the session of the word is gone";
  link.unclaim(kMiB, 1);
  EXPECT_TRUE(g.order.empty()) << "no event was needed";
}

TEST_F(CopyLinkTest, WhatMustStayDoesNotTakeTheLinkFromAnotherStream) {
  const policies::CopyAsk ask{.to_gpu = true, .bytes = kMiB};
  EXPECT_EQ(link.ask(kStream, ask).way, CopyWay::kDirect);
  EXPECT_EQ(link.ask(kOther, {.to_gpu = true, .stays = true, .bytes = kMiB}).way, CopyWay::kDirect);
  EXPECT_EQ(link.ask(kOther, ask).way, CopyWay::kLane) << "two streams would use it directly";
  EXPECT_EQ(link.ask(kStream, ask).way, CopyWay::kDirect);
  link.unclaim(3 * kMiB, 3);
}

// One client's work may stand for as long as it likes; others' copies end behind it.
TEST_F(CopyLinkTest, WhatMustStayIsCountedWithinBoundsBehindWorkThatStands) {
  uint64_t never = 0, other = 1;
  EXPECT_EQ(link.ask(kStream, {.to_gpu = true, .bytes = kMiB}).way, CopyWay::kDirect);
  link.mark({&never, 1, 1}, kMiB, 1);
  uint32_t counted = 0;
  for (uint32_t i = 0; i < 2 * policies::kDirectCopies; ++i) {
    if (link.ask(kOther, {.to_gpu = true, .stays = true, .bytes = kMiB}).way != CopyWay::kDirect)
      continue;
    link.mark({&other, 1, 2}, kMiB, 1);
    ++counted;
  }
  EXPECT_LT(counted, policies::kDirectCopies);
  link.forget(1);
  EXPECT_EQ(link.ask(kOther, {.to_gpu = true, .bytes = kMiB}).way, CopyWay::kDirect);
  link.unclaim(kMiB, 1);
}

TEST_F(CopyLinkTest, WhatMustStayOnItsStreamIsCountedInCompanyToo) {
  const auto job = link.add(copy(1, 20 * kMiB));
  EXPECT_TRUE(link.lane_busy());
  EXPECT_EQ(link.ask(kStream, {.to_gpu = true, .stays = true, .bytes = kMiB}).way,
            CopyWay::kDirect);
  for (int i = 0; i < 3; ++i) (void)link.turn();
  EXPECT_EQ(g.sent.size(), 1u) << "room for it";
  link.unclaim(kMiB, 1);
  take_back(*job);
  EXPECT_EQ(link.turn(), Turn::kIdle);
  EXPECT_FALSE(link.lane_busy());
}

TEST_F(CopyLinkTest, ALargeCopyGoesInPiecesTwoInFlight) {
  bool told = false;
  LaneCopy large = copy(1, 20 * kMiB);
  large.done_at = 0x9000;
  large.done_value = 7;
  large.told = [&] { told = true; };
  const auto job = link.add(std::move(large));
  EXPECT_EQ(link.turn(), Turn::kBusy);
  EXPECT_EQ(link.turn(), Turn::kBusy);
  EXPECT_EQ(g.sent.size(), 2u);
  EXPECT_EQ(link.turn(), Turn::kAhead);
  EXPECT_EQ(g.sent.size(), 2u) << "a third one in flight";
  EXPECT_FALSE(job->over());
  end_one();
  (void)link.turn();
  EXPECT_EQ(g.sent.size(), 3u);
  EXPECT_EQ(sent_bytes(), 20 * kMiB);
  EXPECT_EQ(g.sent[2].dst, 0x1000 + 16 * kMiB);
  EXPECT_EQ(link.measured_bytes_per_s(), 0u) << "the first piece began at some time";
  EXPECT_TRUE(job->over() && told);
  EXPECT_EQ(g.written, 7u);
  EXPECT_EQ(job->error(), CUDA_SUCCESS);
  EXPECT_EQ(g.marked.back(), kLane);
  link.give(job->end());
  end_all();
  EXPECT_EQ(link.turn(), Turn::kIdle);
  EXPECT_GT(link.measured_bytes_per_s(), 0u) << "the second one when that had ended";
}

// A session may take the first turns while the pacing thread wakes: who comes in the midst of
// another's submission leaves it alone, and neither waits.
TEST_F(CopyLinkTest, OneThreadAtATimeHasItsTurn) {
  const auto job = link.add(copy(1, 20 * kMiB));
  g.during_copy = [&] {
    std::thread([&] { EXPECT_EQ(link.turn(), Turn::kBusy); }).join();
    EXPECT_TRUE(g.sent.empty());
  };
  EXPECT_EQ(link.turn(), Turn::kBusy);
  ASSERT_EQ(g.sent.size(), 1u);
  g.during_copy = nullptr;
  std::thread([&] { (void)link.turn(); }).join();
  ASSERT_EQ(g.sent.size(), 2u) << "the next piece, from any thread";
  EXPECT_EQ(g.sent[1].dst, g.sent[0].dst + g.sent[0].bytes);
  take_back(*job);
}

// Where the GPU writes may be unregistered once the copy is taken back: that waits for the write.
TEST_F(CopyLinkTest, WhatIsWrittenBehindACopyIsPartOfItsLastPiece) {
  LaneCopy staged = copy(1, kMiB);
  staged.done_at = 0x9000;
  staged.done_value = 7;
  const auto job = link.add(std::move(staged));
  (void)link.turn();
  EXPECT_EQ(g.written, 7u);
  EXPECT_EQ(g.marked_before, 0u) << "no event that a wait could end with";
  EXPECT_EQ(g.order.size(), 2u);
  take_back(*job);
}

TEST_F(CopyLinkTest, ACopyWaitsForItsOwnStreamAndNobodyForIt) {
  CUresult error = CUDA_SUCCESS;
  LaneCopy late = copy(1, kMiB, 0x1000);
  late.before = link.event(&error);
  ASSERT_EQ(driver.cuEventRecord(late.before, kStream), CUDA_SUCCESS);
  const CUevent before = late.before;
  const auto first = link.add(std::move(late));
  EXPECT_EQ(link.turn(), Turn::kWaits);
  const auto second = link.add(copy(2, kMiB, 0x5000));
  (void)link.turn();
  ASSERT_EQ(g.sent.size(), 1u);
  EXPECT_EQ(g.sent[0].dst, 0x5000u);
  g.pending.erase(before);
  (void)link.turn();
  EXPECT_TRUE(first->over() && second->over());
  link.give(first->end());
  link.give(second->end());
}

TEST_F(CopyLinkTest, ADirectCopyThatStandsLeavesTheLaneOneInFlight) {
  ASSERT_EQ(link.ask(kStream, {.bytes = 4}).way, CopyWay::kDirect);
  link.mark(kStream, 4, 1);
  const auto job = link.add(copy(2, 20 * kMiB));
  for (int i = 0; i < 3; ++i) (void)link.turn();
  EXPECT_EQ(g.sent.size(), 1u);
  take_back(*job);
}

TEST_F(CopyLinkTest, AWordThatStandsLeavesTheLaneOneInFlight) {
  uint64_t word = 2, forgotten = 0;
  link.stands_behind({&word, 3, 1});
  link.stands_behind({&forgotten, 1, 2});
  EXPECT_EQ(link.ask(kOther, {.to_gpu = true, .bytes = kMiB}).way, CopyWay::kDirect) << "no copy";
  link.unclaim(kMiB, 1);
  const auto job = link.add(copy(1, 20 * kMiB));
  link.forget(2);
  (void)link.turn();
  (void)link.turn();
  EXPECT_EQ(g.sent.size(), 1u);
  word = 3;
  (void)link.turn();
  EXPECT_EQ(g.sent.size(), 2u);
  take_back(*job);
}

TEST_F(CopyLinkTest, FunctionsTakeTurns) {
  const auto bulk = link.add(copy(1, 64 * kMiB, 0x1000));
  for (int i = 0; i < 2; ++i) (void)link.turn();
  const auto small = link.add(copy(2, kMiB, 0x900'0000));
  end_one();
  (void)link.turn();
  EXPECT_EQ(g.sent.back().dst, 0x900'0000u);
  EXPECT_TRUE(small->over());
  link.give(small->end());
  take_back(*bulk);
}

TEST_F(CopyLinkTest, AFailedCopyIsOverWithItsErrorAndTheNextOneGoes) {
  g.copy = CUDA_ERROR_INVALID_VALUE;
  const auto bad = link.add(copy(1, kMiB));
  (void)link.turn();
  EXPECT_TRUE(bad->over());
  EXPECT_EQ(bad->error(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(bad->end(), nullptr);
  g.copy = CUDA_SUCCESS;
  const auto good = link.add(copy(1, kMiB));
  (void)link.turn();
  EXPECT_EQ(good->error(), CUDA_SUCCESS);
  link.give(good->end());
}

TEST_F(CopyLinkTest, WhatIsTakenBackIsNotSent) {
  const auto job = link.add(copy(1, 64 * kMiB));
  link.take_back(*job);
  EXPECT_TRUE(job->over());
  EXPECT_EQ(link.turn(), Turn::kIdle);
  EXPECT_TRUE(g.sent.empty());
}

TEST_F(CopyLinkTest, WhatIsTakenBackWithoutAWaitHasNothingInFlight) {
  const auto copy = link.add(this->copy(1, 40 * kMiB));
  bool while_submitted = true;
  g.during_copy = [&] { while_submitted &= link.take_back_quiet(*copy); };
  (void)link.turn();
  EXPECT_FALSE(while_submitted);
  EXPECT_FALSE(link.take_back_quiet(*copy));
  end_all();
  (void)link.turn();  // sees that, and submits the next piece
  EXPECT_FALSE(link.take_back_quiet(*copy));
  EXPECT_FALSE(copy->over());
  const auto other = link.add(this->copy(2, 8 * kMiB));
  EXPECT_TRUE(link.take_back_quiet(*other));
  EXPECT_TRUE(other->over());
  take_back(*copy);
}

TEST_F(CopyLinkTest, LargeCopiesOfItsOwnFillIt) {
  EXPECT_FALSE(link.filled(now_ns(), UINT64_MAX));
  LaneCopy guests = copy(1 | uint64_t{1} << 63, 16 * kMiB), pieces = copy(1, 2 * kMiB);
  guests.part = pieces.part = true;
  for (const LaneCopy& asked : {guests, copy(1, 8 * kMiB)}) {
    const auto job = link.add(asked);
    (void)link.turn();
    EXPECT_FALSE(link.filled(now_ns(), UINT64_MAX));
    take_back(*job);
  }
  for (const LaneCopy& asked : {pieces, copy(1, 9 * kMiB)}) {
    const auto job = link.add(asked);
    for (int i = 0; i < 2; ++i) (void)link.turn();
    EXPECT_TRUE(link.filled(now_ns(), 0));
    take_back(*job);
    (void)link.turn();
    EXPECT_FALSE(link.filled(now_ns(), 0));
    EXPECT_TRUE(link.filled(now_ns(), UINT64_MAX)) << "lately";
  }
}

TEST_F(CopyLinkTest, RunsOfTheHostGoEachByItself) {
  const auto runs = std::make_shared<const HostRuns>(
      HostRuns{{0x10000000, 3 * kMiB}, {0x20000000, kMiB}, {0x30000000, 16 * kMiB}});
  for (const bool up : {true, false}) {
    g.sent.clear();
    LaneCopy scattered = copy(1, 16 * kMiB);
    scattered.dst = up ? 0x90000000 : 0;
    scattered.src = up ? 0 : 0x90000000;
    scattered.runs = runs;
    scattered.runs_from = 2 * kMiB;  // and not to the end
    const auto job = link.add(std::move(scattered));
    while (!job->over()) {
      (void)link.turn();
      end_all();
    }
    EXPECT_EQ(job->error(), CUDA_SUCCESS);
    link.give(job->end());
    EXPECT_EQ(sent_bytes(), 16 * kMiB);
    CUdeviceptr gpu = 0x90000000;
    for (const Sent& one : g.sent) {
      EXPECT_EQ(up ? one.dst : one.src, gpu);
      const uint64_t at = gpu - 0x90000000;
      const CUdeviceptr host = at < kMiB       ? 0x10000000 + 2 * kMiB + at
                               : at < 2 * kMiB ? 0x20000000 + at - kMiB
                                               : 0x30000000 + at - 2 * kMiB;
      EXPECT_EQ(up ? one.src : one.dst, host);
      gpu += one.bytes;
    }
  }
}

TEST_F(CopyLinkTest, RunsBeforeOneThatFailsHaveEnded) {
  LaneCopy scattered = copy(1, 4 * kMiB);
  scattered.src = 0;
  scattered.runs =
      std::make_shared<const HostRuns>(HostRuns{{0x10000000, kMiB}, {0x20000000, 3 * kMiB}});
  g.copies_that_go = 1;
  const auto job = link.add(std::move(scattered));
  (void)link.turn();
  EXPECT_TRUE(job->over() && link.quiet(*job));
  EXPECT_EQ(job->error(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(g.waits, 1);
}

TEST_F(CopyLinkTest, ARegionGoesInWholeRowsOfItsPlanes) {
  LaneCopy plane = copy(1, 0);
  plane.is_region = true;
  plane.region.WidthInBytes = 3 * kMiB / 2;
  plane.region.Height = 3;
  plane.region.Depth = 5;
  plane.region.srcY = 10;
  plane.bytes = 15 * plane.region.WidthInBytes;
  const auto job = link.add(std::move(plane));
  while (!job->over()) {
    (void)link.turn();
    end_all();
  }
  std::set<std::pair<size_t, size_t>> rows;
  for (const CUDA_MEMCPY3D& part : g.regions) {
    EXPECT_TRUE(part.Depth == 1 || (part.dstY == 0 && part.Height == 3));
    EXPECT_EQ(part.srcY - 10, part.dstY);
    EXPECT_EQ(part.srcZ, part.dstZ);
    for (size_t i = 0; i < part.Height * part.Depth; ++i)
      EXPECT_TRUE(rows.insert({part.dstZ + i / part.Height, part.dstY + i % part.Height}).second);
  }
  EXPECT_EQ(rows.size(), 15u);
  EXPECT_EQ(*rows.rbegin(), (std::pair<size_t, size_t>{4, 2}));
  EXPECT_GT(g.regions.size(), 1u) << "more than one piece";
  link.give(job->end());
}

TEST_F(CopyLinkTest, ManyNarrowRowsAreFewCallsAndManyTurns) {
  LaneCopy planes = copy(1, 0);
  planes.is_region = true;
  planes.region.WidthInBytes = 1;
  planes.region.Height = 3;
  planes.region.Depth = 1 << 18;
  planes.bytes = uint64_t{3} << 18;
  const auto job = link.add(std::move(planes));
  size_t turns = 0;
  for (; !job->over(); ++turns) {
    (void)link.turn();
    end_all();
  }
  uint64_t rows = 0;
  for (const CUDA_MEMCPY3D& part : g.regions) {
    EXPECT_LE(part.Height * part.Depth, 32768u) << "in one call";
    rows += part.Height * part.Depth;
  }
  EXPECT_EQ(rows, uint64_t{3} << 18);
  EXPECT_GT(turns, 20u);
  EXPECT_LE(g.regions.size(), 3 * turns) << "calls of a turn";
  link.give(job->end());
}

}  // namespace
}  // namespace tube::proxy
