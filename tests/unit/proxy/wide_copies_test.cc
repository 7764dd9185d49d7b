// Copies over several links, on a driver whose streams go on one piece of work at a time when the
// test says so: all bytes arrive once each, whatever fails in the middle.
#include "proxy/copy/wide_copies.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "proxy/copy/known_links.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/memory_map.h"
#include "tests/support/units.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

constexpr uint32_t kGpus = 3;
constexpr CUresult kDead = CUDA_ERROR_LAUNCH_FAILED;

CUcontext context_of(uint32_t gpu) { return reinterpret_cast<CUcontext>(uintptr_t{gpu} + 1); }

struct Work {
  CUdeviceptr dst = 0, src = 0;
  uint64_t bytes = 0;
  CUevent event = nullptr;  // nullptr: the copy
};

struct Fake {
  CUcontext current = nullptr;
  uint64_t names = 0x100;
  std::map<CUstream, std::deque<Work>> streams;
  std::map<CUstream, CUcontext> context;
  std::map<CUevent, CUcontext> recorded_in;
  std::set<CUevent> pending;
  std::set<CUcontext> dead;                              // every question about its events fails
  std::map<CUcontext, int> link_fails;                   // after so many copies over the link
  std::map<CUcontext, std::vector<uint64_t>> over_link;  // bytes of copies, in their order
  int peer_fails = -1;  // after so many copies between GPUs; -1: never
  bool no_memory = false;
} g;

// What its streams had to do is not done any more.
void die(CUcontext context) {
  g.dead.insert(context);
  for (auto& [stream, todo] : g.streams) {
    if (g.context[stream] != context) continue;
    for (const Work& work : todo) g.pending.erase(work.event);
    todo.clear();
  }
}

CUresult submit(CUdeviceptr dst, CUdeviceptr src, uint64_t bytes, CUstream stream) {
  EXPECT_EQ(g.context[stream], g.current);
  if (g.dead.contains(g.current)) return kDead;
  g.streams[stream].push_back({dst, src, bytes, nullptr});
  return CUDA_SUCCESS;
}

void fill_streams(Driver& d) {
  d.cuStreamCreate = [](CUstream* stream, unsigned) {
    *stream = reinterpret_cast<CUstream>(++g.names);
    g.context[*stream] = g.current;
    return CUDA_SUCCESS;
  };
  d.cuEventCreate = [](CUevent* event, unsigned) {
    return *event = reinterpret_cast<CUevent>(++g.names), CUDA_SUCCESS;
  };
  d.cuEventRecord = [](CUevent event, CUstream stream) {
    EXPECT_EQ(g.context[stream], g.current);
    if (g.dead.contains(g.current)) return kDead;
    EXPECT_TRUE(g.pending.insert(event).second) << "recorded twice";
    g.recorded_in[event] = g.current;
    g.streams[stream].push_back({0, 0, 0, event});
    return CUDA_SUCCESS;
  };
  d.cuEventQuery = [](CUevent event) {
    if (g.dead.contains(g.recorded_in[event])) return kDead;
    return g.pending.contains(event) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  d.cuMemcpyAsync = [](CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    const auto fails = g.link_fails.find(g.current);
    if (fails != g.link_fails.end() && fails->second-- <= 0) return CUDA_ERROR_INVALID_VALUE;
    g.over_link[g.current].push_back(bytes);
    return submit(dst, src, bytes, stream);
  };
  d.cuMemcpyPeerAsync = [](CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext, size_t bytes,
                           CUstream stream) {
    if (g.peer_fails == 0) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (g.peer_fails > 0) --g.peer_fails;
    return submit(dst, src, bytes, stream);
  };
}

Driver make_driver() {
  Driver d = test::make_fake_driver();
  d.cuDeviceGetCount = [](int* n) { return *n = kGpus, CUDA_SUCCESS; };
  d.cuDeviceGet = [](CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; };
  d.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
    return *context = context_of(static_cast<uint32_t>(device)), CUDA_SUCCESS;
  };
  d.cuCtxSetCurrent = [](CUcontext context) { return g.current = context, CUDA_SUCCESS; };
  d.cuDeviceCanAccessPeer = [](int* can, CUdevice, CUdevice) { return *can = 1, CUDA_SUCCESS; };
  d.cuCtxEnablePeerAccess = [](CUcontext, unsigned) { return CUDA_SUCCESS; };
  d.cuDeviceGetP2PAttribute = [](int* value, CUdevice_P2PAttribute, CUdevice, CUdevice) {
    return *value = 1, CUDA_SUCCESS;
  };
  // Memory of a GPU is memory of this process.
  d.cuMemMap = [](CUdeviceptr address, size_t bytes, size_t, CUmemGenericAllocationHandle,
                  unsigned long long) {
    if (g.no_memory) return CUDA_ERROR_OUT_OF_MEMORY;
    void* at = reinterpret_cast<void*>(address);
    EXPECT_EQ(
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        at);
    return CUDA_SUCCESS;
  };
  d.cuMemUnmap = [](CUdeviceptr address, size_t bytes) {
    EXPECT_EQ(munmap(reinterpret_cast<void*>(address), bytes), 0);
    return CUDA_SUCCESS;
  };
  fill_streams(d);
  return d;
}

class WideCopiesTest : public testing::Test {
 protected:
  WideCopiesTest() {
    EXPECT_TRUE(gpus.open().ok());
    for (uint32_t i = 0; i < 2 * kGpus; ++i)
      links.push_back(std::make_unique<CopyLink>(driver, policies::LaneUse::kAlways,
                                                 policies::LinkShare::Options{}, 0));
    start({.most = kGpus, .always = true});
  }
  ~WideCopiesTest() override {
    finish_all();
    wide.reset();
    EXPECT_EQ(memory.blocks(), 0u);
    for (const auto& link : links) link->close();
  }

  void start(const WideCopies::Options& options) {
    wide = std::make_unique<WideCopies>(
        driver, gpus, memory,
        [this](uint32_t gpu, bool up) -> CopyLink& { return *links[2 * gpu + (up ? 1 : 0)]; },
        known_links(driver, gpus), options);
    for (uint32_t i = 0; i < links.size(); ++i) links[i]->widen(wide.get(), i / 2, i % 2 != 0);
  }
  CopyLink& link(uint32_t gpu, bool up) { return *links[2 * gpu + (up ? 1 : 0)]; }

  // From one array to the other. Which of them is a GPU's matters to nobody here.
  std::shared_ptr<LaneJob> copy(uint32_t gpu, bool up, uint64_t bytes, uint64_t function = 7) {
    const uint64_t had = from.size();
    from.resize(bytes);
    for (uint64_t i = had; i < bytes; i += 8) from[i] = static_cast<unsigned char>(random());
    to.assign(bytes, 0);
    LaneCopy asked{.dst = reinterpret_cast<CUdeviceptr>(to.data()),
                   .src = reinterpret_cast<CUdeviceptr>(from.data()),
                   .bytes = bytes,
                   .function = function};
    asked.told = [this] { ++told; };
    return link(gpu, up).add(std::move(asked));
  }
  void turns() {
    (void)wide->turn();
    for (uint32_t i = 0; i < links.size(); ++i) {
      (void)driver.cuCtxSetCurrent(context_of(i / 2));
      (void)links[i]->turn();
    }
  }
  std::shared_ptr<LaneJob> small_copy(bool up);
  // Some stream of another context than that gets one piece of work done. False: none has any.
  bool work(CUcontext stands = nullptr) {
    std::vector<CUstream> busy;
    for (const auto& [stream, todo] : g.streams)
      if (!todo.empty() && g.context[stream] != stands) busy.push_back(stream);
    if (busy.empty()) return false;
    auto& todo = g.streams[busy[random() % busy.size()]];
    const Work done = todo.front();
    todo.pop_front();
    if (done.event != nullptr) g.pending.erase(done.event);
    else
      std::memcpy(reinterpret_cast<void*>(done.dst), reinterpret_cast<void*>(done.src), done.bytes);
    return true;
  }
  void some(int steps) {
    for (int i = 0; i < steps; ++i) {
      turns();
      for (uint32_t j = random() % 3; j > 0; --j) (void)work();
    }
  }
  void finish(LaneJob& job) {
    while (!job.over()) some(1);
    EXPECT_EQ(told, 1);
    if (job.end() == nullptr) return;
    finish_all();  // it went over one link: that is over when it is submitted
    links[0]->give(job.end());
  }
  void finish_all() {
    while (work()) turns();
    turns();
  }
  bool quiet() const {
    for (const auto& [stream, todo] : g.streams)
      for (const Work& each : todo)
        if (each.event == nullptr) return false;
    return true;
  }
  void expect_whole(LaneJob& job) {
    finish(job);
    EXPECT_EQ(job.error(), CUDA_SUCCESS);
    EXPECT_TRUE(from == to);
    EXPECT_TRUE(quiet()) << "bytes of it move";
  }

  Driver driver = (g = {}, make_driver());
  Gpus gpus{driver};
  MemoryMap memory{driver, gpus};
  std::vector<std::unique_ptr<CopyLink>> links;
  std::unique_ptr<WideCopies> wide;
  std::vector<unsigned char> from, to;
  int told = 0;
  std::mt19937 random{20260110};
};

TEST_F(WideCopiesTest, AllBytesArriveOverAllLinks) {
  uint64_t bytes = WideCopies::kLeastBytes;
  for (const uint64_t more : {0u, 1u, 4097u, 61u << 20}) {
    for (const bool up : {true, false}) {
      told = 0;
      bytes += more;
      expect_whole(*copy(more % kGpus, up, bytes));
    }
  }
  const auto counts = wide->counts();
  EXPECT_EQ(counts.copies, 8u);
  EXPECT_GT(counts.relayed_bytes, counts.bytes / 3);
  EXPECT_EQ(counts.failed_paths + counts.taken_paths, 0u);
  EXPECT_LE(counts.relay_bytes, kGpus * RelayBuffers::kMost * RelayBuffers::kBytes);
}

TEST_F(WideCopiesTest, ASmallCopyOfItsLaneStaysWhole) {
  constexpr uint64_t kSmall = policies::LinkShare::Options{}.chunk_alone;
  static_assert(kSmall < WideCopies::kLeastBytes);
  expect_whole(*copy(1, true, kSmall));
  EXPECT_EQ(wide->counts().copies + wide->counts().one_link, 0u);
}

TEST_F(WideCopiesTest, RunsOfTheHostArriveOverAllLinks) {
  for (const bool up : {true, false}) {
    told = 0;
    from.resize(48 * kMiB);
    for (uint64_t i = 0; i < from.size(); i += 8) from[i] = static_cast<unsigned char>(random());
    to.assign(from.size(), 0);
    // The host's end, in parts that lie in the other order.
    const std::vector<unsigned char>& host = up ? from : to;
    HostRuns runs;
    const uint64_t parts[] = {5 * kMiB, 30 * kMiB, kMiB, 12 * kMiB};
    uint64_t end = host.size();
    for (const uint64_t bytes : parts)
      runs.push_back({reinterpret_cast<CUdeviceptr>(host.data()) + (end -= bytes), bytes});
    LaneCopy asked{.bytes = from.size(), .function = 7};
    (up ? asked.dst : asked.src) = reinterpret_cast<CUdeviceptr>(up ? to.data() : from.data());
    asked.runs = std::make_shared<const HostRuns>(runs);
    asked.told = [this] { ++told; };
    const auto job = link(0, up).add(std::move(asked));
    finish(*job);
    EXPECT_EQ(job->error(), CUDA_SUCCESS);
    const std::vector<unsigned char>& gpu = up ? to : from;
    uint64_t at = 0;
    for (const HostRun& run : runs) {
      EXPECT_EQ(std::memcmp(gpu.data() + at, reinterpret_cast<void*>(run.address), run.bytes), 0);
      at += run.bytes;
    }
  }
  EXPECT_GT(wide->counts().relayed_bytes, 0u);
}

TEST_F(WideCopiesTest, CopiesOfAFunctionGoInTheirOrder) {
  const auto first = copy(0, true, 64 * kMiB);
  const std::vector<unsigned char> sent = std::move(from), got = std::move(to);
  const auto second = copy(0, true, 64 * kMiB);
  while (!first->over()) some(1);
  // Beside the last pieces of the first went the first ones of the second.
  const auto there =
      std::count_if(to.begin(), to.end(), [](unsigned char byte) { return byte != 0; });
  EXPECT_LT(8 * static_cast<uint64_t>(there), to.size() / 2);
  EXPECT_TRUE(sent == got);
  while (!second->over()) some(1);
  EXPECT_TRUE(from == to);
}

// The second one stood behind the first, and beside its last pieces.
TEST_F(WideCopiesTest, OnlyTheFirstOfAQueueIsLearntFrom) {
  const auto first = copy(0, true, 64 * kMiB);
  const std::vector<unsigned char> sent = std::move(from), got = std::move(to);
  const auto second = copy(0, true, 64 * kMiB);
  while (!second->over()) some(1);
  EXPECT_EQ(wide->counts().timed, 1u);
  const auto third = copy(0, true, 64 * kMiB);
  while (!third->over()) some(1);
  EXPECT_EQ(wide->counts().timed, 2u);
}

TEST_F(WideCopiesTest, TwoCopiesShareTheBuffersOfTheirRelay) {
  const auto first = copy(0, true, 64 * kMiB);
  const std::vector<unsigned char> sent = std::move(from), got = std::move(to);
  const auto second = copy(1, true, 64 * kMiB, 8);
  while (!first->over() || !second->over()) some(1);
  EXPECT_TRUE(sent == got);
  EXPECT_TRUE(from == to);
  EXPECT_EQ(wide->counts().copies, 2u);
}

TEST_F(WideCopiesTest, SmallCopiesRegionsAndPiecesStayOnTheirLink) {
  EXPECT_EQ(wide->add(0, true, *std::make_unique<LaneCopy>(LaneCopy{.bytes = 4 * kMiB - 1})),
            nullptr);
  LaneCopy region{.is_region = true, .bytes = 64 * kMiB};
  EXPECT_EQ(wide->add(0, true, region), nullptr);
  LaneCopy chunk{.bytes = 4 * kMiB, .done_at = 0x1000};
  EXPECT_EQ(wide->add(0, true, chunk), nullptr);
  EXPECT_EQ(wide->counts().regions, 1u);
}

TEST_F(WideCopiesTest, ItWaitsForItsOwnStream) {
  CUevent before = nullptr;
  CUresult error = CUDA_SUCCESS;
  (void)driver.cuCtxSetCurrent(context_of(0));
  before = link(0, true).event(&error);
  CUstream stream = nullptr;
  ASSERT_EQ(driver.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuEventRecord(before, stream), CUDA_SUCCESS);
  LaneCopy late{.dst = 0x1000, .src = 0x2000, .bytes = 64 * kMiB, .before = before};
  const auto job = link(0, true).add(std::move(late));
  EXPECT_EQ(wide->turn(), CopyLink::Turn::kWaits);
  EXPECT_TRUE(quiet());
  std::thread session([&] { link(0, true).take_back(*job); });
  while (!job->over()) turns();
  session.join();
  EXPECT_TRUE(quiet()) << "its stream did not get there";
}

TEST_F(WideCopiesTest, ALinkThatFailsHandsItsPiecesBack) {
  for (const bool up : {true, false}) {
    told = 0;
    g.link_fails = {{context_of(1), 2}};
    expect_whole(*copy(0, up, 70 * kMiB + 3));
  }
  EXPECT_EQ(wide->counts().failed_paths, 2u);
}

TEST_F(WideCopiesTest, APeerCopyThatFailsHandsItsPiecesBack) {
  for (const bool up : {true, false}) {
    told = 0;
    g.peer_fails = 3;
    expect_whole(*copy(0, up, 70 * kMiB + 3));
  }
  EXPECT_EQ(wide->counts().failed_paths, 4u) << "both neighbours', both ways";
}

TEST_F(WideCopiesTest, ANeighbourThatDiesInTheMiddleLosesNothing) {
  for (const bool up : {true, false}) {
    told = 0;
    g.dead.clear();
    const auto job = copy(0, up, 70 * kMiB + 3);
    some(20);
    ASSERT_FALSE(job->over());
    die(context_of(2));
    expect_whole(*job);
  }
  EXPECT_GE(wide->counts().failed_paths, 1u);
  g.dead.clear();
}

TEST_F(WideCopiesTest, AnErrorOfItsOwnLinkEndsIt) {
  for (const bool up : {true, false}) {
    told = 0;
    g.link_fails = {{context_of(0), 3}};
    const auto job = copy(0, up, 70 * kMiB + 3);
    finish(*job);
    EXPECT_EQ(job->error(), CUDA_ERROR_INVALID_VALUE);
    EXPECT_TRUE(quiet());
  }
}

TEST_F(WideCopiesTest, WithoutMemoryForRelaysItGoesOverItsOwnLink) {
  g.no_memory = true;
  expect_whole(*copy(0, true, 40 * kMiB));
  EXPECT_EQ(wide->counts().relayed_bytes, 0u);
  EXPECT_EQ(wide->counts().taken_paths, 2u);
}

TEST_F(WideCopiesTest, WhatIsTakenBackDoesNotMoveAnyMore) {
  const auto none = copy(0, true, 64 * kMiB);
  link(0, true).take_back(*none);
  EXPECT_TRUE(none->over() && quiet());
  for (const bool up : {true, false}) {
    for (int after = 1; after < 16; after += 3) {
      const auto job = copy(1, up, 80 * kMiB);
      some(after);
      ASSERT_EQ(told, 0);
      std::atomic<bool> back{false};
      std::thread session([&] {
        link(1, up).take_back(*job);
        back = true;
      });
      while (!back) some(1);
      session.join();
      EXPECT_TRUE(quiet());
    }
  }
  EXPECT_EQ(told, 0);
}

TEST_F(WideCopiesTest, ALinkThatItsOwnersNeedDoesNotHelp) {
  // 53 GB/s of 54.
  link(1, true).needs(3, {.slo_ns = 1'000'000, .request_bytes = 53'000'000});
  gpus[2].failed = 700;
  expect_whole(*copy(0, true, 40 * kMiB));
  EXPECT_EQ(wide->counts().relayed_bytes, 0u);
  EXPECT_EQ(wide->counts().one_link, 1u);
  told = 0;
  expect_whole(*copy(0, false, 40 * kMiB));
  EXPECT_GT(wide->counts().relayed_bytes, 0u) << "of the other direction nobody needs anything";
}

// A small copy of the second GPU's own function, which has not arrived when it returns.
std::shared_ptr<LaneJob> WideCopiesTest::small_copy(bool up) {
  static std::vector<unsigned char> mine(4 * kMiB), its(4 * kMiB);
  auto job = link(1, up).add({.dst = reinterpret_cast<CUdeviceptr>(its.data()),
                              .src = reinterpret_cast<CUdeviceptr>(mine.data()),
                              .bytes = mine.size(),
                              .function = 3});
  while (!job->over()) some(1);
  return job;
}

TEST_F(WideCopiesTest, ANeighboursSmallCopyHoldsOtherPathsUp) {
  for (const bool up : {true, false}) {
    start({.most = kGpus, .always = true, .hold_ns = UINT64_MAX / 2, .hurry_ns = UINT64_MAX / 2});
    told = 0;
    const auto job = copy(0, true, 240 * kMiB);
    some(20);
    ASSERT_FALSE(job->over());
    const auto small = small_copy(up);
    const uint64_t there = g.over_link[context_of(2)].size(),
                   own = g.over_link[context_of(0)].size();
    for (int i = 0; i < 100; ++i) {
      turns();
      (void)work(context_of(1));
    }
    EXPECT_LE(g.over_link[context_of(2)].size(), there + 1) << "what its lane had already";
    EXPECT_GE(g.over_link[context_of(0)].size(), own + 4);
    expect_whole(*job);
    link(1, up).give(small->end());
    EXPECT_EQ(wide->counts().held, 1u);
    EXPECT_EQ(wide->counts().taken_paths, 0u);
  }
  // Where one was lately pieces are small.
  g.over_link.clear();
  told = 0;
  expect_whole(*copy(0, true, 100 * kMiB));
  for (const auto& [context, sizes] : g.over_link)
    EXPECT_LE(*std::max_element(sizes.begin(), sizes.end()), 2 * kMiB);
}

TEST_F(WideCopiesTest, ANeighboursLargeCopyHasItsLinkForItself) {
  start({.most = kGpus, .always = true, .left_ns = 0, .filled_ns = UINT64_MAX});
  const auto job = copy(0, true, 240 * kMiB);
  some(20);
  std::vector<unsigned char> mine(12 * kMiB, 1), its(12 * kMiB);
  const auto large = link(1, true).add({.dst = reinterpret_cast<CUdeviceptr>(its.data()),
                                        .src = reinterpret_cast<CUdeviceptr>(mine.data()),
                                        .bytes = mine.size(),
                                        .function = 3});
  const auto& over = g.over_link[context_of(1)];
  const auto theirs = [&] { return std::accumulate(over.begin(), over.end(), uint64_t{0}); };
  for (int i = 0; i < 4; ++i) turns();  // it is seen
  const uint64_t before = theirs(), elsewhere = g.over_link[context_of(2)].size();
  while (!large->over()) {
    turns();
    (void)work();
  }
  EXPECT_LE(theirs(), before + mine.size()) << "nothing else was sent";
  EXPECT_GT(g.over_link[context_of(2)].size(), elsewhere) << "other paths go on";
  finish_all();
  link(1, true).give(large->end());
  EXPECT_TRUE(mine == its);
  expect_whole(*job);
  EXPECT_GT(theirs(), before + mine.size()) << "it was lent again";
  EXPECT_EQ(wide->counts().held, 1u);
  EXPECT_EQ(wide->counts().taken_paths, 0u);
}

TEST_F(WideCopiesTest, EachKeepsToItsLinkWhereAllHaveLargeCopies) {
  start({.most = kGpus, .always = true, .left_ns = UINT64_MAX, .filled_ns = 0});
  const uint64_t bytes = 120 * kMiB;
  std::vector<std::vector<unsigned char>> memory(2 * kGpus, std::vector<unsigned char>(bytes));
  std::vector<std::shared_ptr<LaneJob>> jobs;
  for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
    for (uint64_t i = 0; i < bytes; i += 8) memory[gpu][i] = static_cast<unsigned char>(random());
    jobs.push_back(
        link(gpu, true).add({.dst = reinterpret_cast<CUdeviceptr>(memory[kGpus + gpu].data()),
                             .src = reinterpret_cast<CUdeviceptr>(memory[gpu].data()),
                             .bytes = bytes,
                             .function = 7 + gpu}));
    while (!link(gpu, true).filled(now_ns(), UINT64_MAX)) some(1);
    ASSERT_FALSE(jobs[0]->over());
  }
  EXPECT_GT(wide->counts().one_link, 0u) << "the last one finds no link that is free";
  while (!std::all_of(jobs.begin(), jobs.end(), [](const auto& job) { return job->over(); }))
    some(1);
  finish_all();
  for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
    EXPECT_TRUE(memory[gpu] == memory[kGpus + gpu]);
    if (jobs[gpu]->end() != nullptr) link(gpu, true).give(jobs[gpu]->end());
  }
  EXPECT_GE(wide->counts().taken_paths, 3u) << "two of the first one's, one of the second's";
}

TEST_F(WideCopiesTest, ALinkIsTakenBackInTheMiddle) {
  const auto job = copy(0, true, 120 * kMiB);
  some(20);
  for (const uint32_t gpu : {1u, 2u})
    link(gpu, true).needs(3, {.slo_ns = 1'000'000, .request_bytes = 53'000'000});
  (void)wide->tidy();
  expect_whole(*job);
  EXPECT_EQ(wide->counts().taken_paths, 2u);
}

}  // namespace
}  // namespace tube::proxy
