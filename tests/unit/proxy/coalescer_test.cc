// Runs that become graphs, on many streams with few graphs between them: what reaches each stream,
// and how many graphs there are.
#include "proxy/launch/coalescer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "tests/unit/proxy/fake_driver.h"
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

using Launch = std::pair<uint64_t, uint64_t>;  // kernel, its parameter

// What the driver was told. Graphs and their instances are numbers.
struct Told {
  std::map<uint64_t, std::vector<Launch>> graphs, instances;
  std::map<uint64_t, std::vector<Launch>> streams;  // what ran there
  uint64_t last = 0;
  uint32_t made = 0, replays = 0;
  size_t most = 0;  // instances at once
};
Told told;

template <class T>
uint64_t number(T handle) {
  return reinterpret_cast<uint64_t>(handle);
}

uint64_t parameter(void* const* extra) {
  uint64_t value = 0;
  std::memcpy(&value, extra[1], sizeof(value));
  return value;
}

void fill_graphs(Driver& driver) {
  driver.cuGraphCreate = [](CUgraph* graph, unsigned int) {
    *graph = reinterpret_cast<CUgraph>(++told.last);
    told.graphs[told.last];
    return CUDA_SUCCESS;
  };
  driver.cuGraphAddKernelNode_v2 = [](CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t,
                                      const CUDA_KERNEL_NODE_PARAMS_v2* params) {
    std::vector<Launch>& nodes = told.graphs.at(number(graph));
    nodes.emplace_back(number(params->func), parameter(params->extra));
    *node = reinterpret_cast<CUgraphNode>(nodes.size());
    return CUDA_SUCCESS;
  };
  driver.cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph graph, unsigned long long) {
    *exec = reinterpret_cast<CUgraphExec>(++told.last);
    told.instances[told.last] = told.graphs.at(number(graph));
    ++told.made;
    told.most = std::max(told.most, told.instances.size());
    return CUDA_SUCCESS;
  };
  driver.cuGraphExecKernelNodeSetParams_v2 = [](CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS_v2* params) {
    told.instances.at(number(exec)).at(number(node) - 1).second = parameter(params->extra);
    return CUDA_SUCCESS;
  };
  driver.cuGraphLaunch = [](CUgraphExec exec, CUstream stream) {
    const std::vector<Launch>& nodes = told.instances.at(number(exec));
    std::vector<Launch>& ran = told.streams[number(stream)];
    ran.insert(ran.end(), nodes.begin(), nodes.end());
    ++told.replays;
    return CUDA_SUCCESS;
  };
  driver.cuGraphExecDestroy = [](CUgraphExec exec) {
    told.instances.erase(number(exec));
    return CUDA_SUCCESS;
  };
  driver.cuGraphDestroy = [](CUgraph graph) {
    told.graphs.erase(number(graph));
    return CUDA_SUCCESS;
  };
  driver.cuLaunchKernel = [](CUfunction f, unsigned int, unsigned int, unsigned int, unsigned int,
                             unsigned int, unsigned int, unsigned int, CUstream stream, void**,
                             void** extra) {
    told.streams[number(stream)].emplace_back(number(f), parameter(extra));
    return CUDA_SUCCESS;
  };
}

class CoalescerTest : public ::testing::Test {
 protected:
  CoalescerTest() : driver(test::make_fake_driver()) {
    told = Told();
    fill_graphs(driver);
  }

  void with(const RunGraphs::Limits& limits, uint64_t streams) {
    graphs = std::make_unique<RunGraphs>(driver, limits);
    for (uint64_t i = 1; i <= streams; ++i)
      coalescers.push_back(std::make_unique<Coalescer>(driver, *graphs,
                                                       reinterpret_cast<CUstream>(i),
                                                       gpu_of.contains(i) ? gpu_of[i] : 0u, stats));
  }
  // A step of one run on the stream: always the same kernels, the first one with the parameter.
  void step(uint64_t stream, uint64_t parameter) {
    for (uint64_t i = 0; i < kRun; ++i) {
      PlainLaunch launch;
      const uint64_t of = kernels_of.contains(stream) ? kernels_of[stream] : stream;
      launch.function = reinterpret_cast<CUfunction>(of * 1000 + i);
      const uint64_t value = i == 0 ? parameter : i;
      sent[stream].emplace_back(number(launch.function), value);
      ASSERT_EQ(coalescers[stream - 1]->launch(launch, std::as_bytes(std::span(&value, 1)), ++now),
                CUDA_SUCCESS);
    }
    ASSERT_EQ(coalescers[stream - 1]->boundary(), CUDA_SUCCESS);
  }
  void steps(uint64_t stream, int count) {
    for (int i = 0; i < count; ++i) step(stream, 1);
  }
  // Whether the next step of the stream goes to the driver as a graph that was there.
  bool has_graph(uint64_t stream) {
    const uint32_t replays = told.replays, made = told.made;
    step(stream, 1);
    return told.replays == replays + 1 && told.made == made;
  }
  void end() {
    EXPECT_EQ(told.streams, sent);
    coalescers.clear();
    graphs->drop_left();
    EXPECT_EQ(graphs->count(), 0u);
    EXPECT_EQ(graphs->bytes(), 0u);
    EXPECT_TRUE(told.graphs.empty());
    EXPECT_TRUE(told.instances.empty());
  }

  static constexpr uint64_t kRun = 16;
  static constexpr int
      kProven = 3,
      kMissed = 4;  // steps until a graph is made; steps more when others have to go for it
  static constexpr uint64_t kPlenty = 1ull << 30;
  Driver driver;
  Stats stats;
  std::unique_ptr<RunGraphs> graphs;
  std::vector<std::unique_ptr<Coalescer>> coalescers;
  std::map<uint64_t, std::vector<Launch>> sent;
  std::map<uint64_t, uint64_t> kernels_of;  // the stream whose kernels a stream has; its own
  std::map<uint64_t, uint32_t> gpu_of;      // a stream's; 0
  uint64_t now = 0;
};

TEST_F(CoalescerTest, ARunThatRepeatsIsReplayedWithItsParameters) {
  with({8, kPlenty}, 1);
  for (uint64_t i = 0; i < 10; ++i) step(1, i);
  EXPECT_EQ(told.made, 1u);
  EXPECT_EQ(told.replays, 10u - kProven + 1);
  end();
}

TEST_F(CoalescerTest, StreamsShareOneLimitAndNobodySeesIt) {
  with({4, kPlenty}, 40);
  for (uint64_t round = 0; round < 30; ++round) {
    for (uint64_t stream = 1; stream <= coalescers.size(); ++stream) step(stream, round * stream);
  }
  EXPECT_EQ(told.most, 4u);
  EXPECT_GT(told.replays, 0u);
  end();
}

TEST_F(CoalescerTest, BytesAreBoundedAsWell) {
  const uint64_t one = RunGraphs::bytes_of(kRun, kRun * 16);  // parameters lie at multiples of 16
  with({1000, 3 * one}, 10);
  for (uint64_t stream = 1; stream <= 10; ++stream) {
    steps(stream, kProven + kMissed);
    EXPECT_LE(graphs->bytes(), 3 * one);
  }
  EXPECT_EQ(graphs->count(), 3u);
  EXPECT_EQ(told.most, 3u);
  end();
}

TEST_F(CoalescerTest, TheGraphReplayedLongestAgoGoesFirst) {
  with({2, kPlenty}, 3);
  steps(1, kProven);
  steps(2, kProven);
  EXPECT_TRUE(has_graph(1));
  steps(3, kProven + kMissed);
  EXPECT_TRUE(has_graph(3));
  EXPECT_TRUE(has_graph(1));
  EXPECT_FALSE(has_graph(2));
  end();
}

TEST_F(CoalescerTest, ForgettingDropsTheStreamsOwnGraphsOnly) {
  with({8, kPlenty}, 2);
  steps(1, kProven);
  steps(2, kProven);
  coalescers[0]->forget();
  EXPECT_EQ(graphs->count(), 1u);
  EXPECT_TRUE(has_graph(2));
  EXPECT_FALSE(has_graph(1));
  end();
}

// A gate that is closed would keep the second stream from having a graph of its own.
TEST_F(CoalescerTest, AStreamThatGoesLeavesItsGraphsToTheNext) {
  with({8, kPlenty}, 2);
  steps(1, kProven);
  EXPECT_EQ(told.made, 1u);
  coalescers[0].reset();
  EXPECT_EQ(graphs->count(), 1u);
  kernels_of[2] = 1;
  for (uint64_t i = 0; i < 5; ++i) step(2, 7 * i);
  EXPECT_EQ(told.made, 1u);
  EXPECT_EQ(told.replays, 1u + 5 - kProven + 1);
  end();
}

TEST_F(CoalescerTest, OtherKernelsAndWhatStillRunsAreNotLeftToIt) {
  with({8, kPlenty}, 4);
  steps(1, kProven);
  coalescers[0].reset();
  steps(2, kProven);  // other kernels
  EXPECT_EQ(told.made, 2u);
  driver.cuStreamQuery = [](CUstream) { return CUDA_ERROR_NOT_READY; };
  coalescers[1].reset();
  EXPECT_EQ(graphs->count(), 1u);
  kernels_of[3] = 2;
  steps(3, kProven);
  EXPECT_EQ(told.made, 3u);
  graphs->drop_left();
  kernels_of[4] = 1;
  steps(4, kProven);
  EXPECT_EQ(told.made, 4u);
  end();
}

// A kernel of a library is the same handle on every GPU; a graph's nodes are one GPU's.
TEST_F(CoalescerTest, AGraphIsNotLeftToAStreamOfAnotherGpu) {
  gpu_of[2] = 1;
  with({8, kPlenty}, 3);
  steps(1, kProven);
  coalescers[0].reset();
  kernels_of[2] = kernels_of[3] = 1;
  steps(2, kProven);
  EXPECT_EQ(told.made, 2u);
  steps(3, kProven);
  EXPECT_EQ(told.made, 2u);
  end();
}

TEST_F(CoalescerTest, WhatIsLeftGoesFirstAndIsBounded) {
  with({2, kPlenty}, 3);
  steps(1, kProven);
  coalescers[0].reset();
  steps(2, kProven);
  steps(3, kProven + kMissed);
  EXPECT_TRUE(has_graph(2));
  EXPECT_TRUE(has_graph(3));
  EXPECT_EQ(told.most, 2u);
  end();
}

// What concerns no stream ends the runs of all to which launches came.
class RunsOfASession : public SessionTest {
 protected:
  RunsOfASession() {
    shared.coalesce_ns = 1;
    ran.clear();
    driver.cuLaunchKernel = [](CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                               unsigned int, unsigned int, unsigned int, CUstream stream, void**,
                               void**) {
      ran.emplace_back(stream, test::fake().live_streams);
      return CUDA_SUCCESS;
    };
    load(".version 8.0\n.entry k() { ret; }\n");
    for (uint32_t i = 1; i <= kStreams; ++i) create_stream(make_id(i, 1), CU_STREAM_NON_BLOCKING);
    drains = false;
  }
  ~RunsOfASession() override { session.reset(); }

  // Launches on the streams in turn, and then a record that concerns none of them.
  void step(uint32_t streams, uint32_t times) {
    for (uint32_t i = 0; i < times * streams; ++i)
      launch(make_id(1, 1), make_id(i % streams + 1, 1));
    create_stream(make_id(++made, 1), CU_STREAM_NON_BLOCKING);
  }
  // How often one launch came behind another of its stream.
  static size_t in_a_row() {
    size_t count = 0;
    for (size_t i = 1; i < ran.size(); ++i) count += ran[i].first == ran[i - 1].first;
    return count;
  }

  static constexpr uint32_t kStreams = 3, kRun = 16;
  static inline std::vector<std::pair<CUstream, int>> ran;  // and how many streams there were
  uint32_t made = kStreams;
};

TEST_F(RunsOfASession, EndOnAllStreamsWithARecordThatConcernsNone) {
  for (int i = 0; i < 2; ++i) step(kStreams, kRun);
  session->drain_for_test();
  EXPECT_EQ(ran.size(), 2 * kStreams * kRun);
  EXPECT_EQ(in_a_row(), 0u) << "nothing is known yet";
  for (uint32_t streams : {kStreams, 1u, kStreams}) {
    ran.clear();
    const int before = test::fake().live_streams;
    step(streams, kRun / 2);
    step(streams, 0);
    session->drain_for_test();
    EXPECT_EQ(ran.size(), streams * kRun / 2);
    EXPECT_EQ(in_a_row(), streams * (kRun / 2 - 1))
        << "all runs are known, held, and let go when something else comes";
    for (const auto& [stream, count] : ran) EXPECT_EQ(count, before);
  }
  wire::tubeStreamDestroy destroy{};
  destroy.stream = make_id(2, 1);
  step(kStreams, kRun / 2);
  post(destroy);
  step(1, kRun / 2);
  session->drain_for_test();
  EXPECT_EQ(async_error(), 0u);
}

// No stream can tell: threads that make and end events do not end each other's runs.
TEST_F(RunsOfASession, GoOnWhenAnEventIsMadeOrEnds) {
  static size_t ran_before;
  ran_before = SIZE_MAX;
  driver.cuEventDestroy_v2 = [](CUevent) { return ran_before = ran.size(), CUDA_SUCCESS; };
  for (int i = 0; i < 3; ++i) step(kStreams, kRun);  // the very first launch is in no run
  session->drain_for_test();
  ran.clear();
  for (uint32_t i = 0; i < kRun / 2 * kStreams; ++i)
    launch(make_id(1, 1), make_id(i % kStreams + 1, 1));
  wire::tubeEventCreate create{};
  create.event = make_id(1, 1);
  post(create);
  wire::tubeEventDestroy destroy{};
  destroy.event = create.event;
  post(destroy);
  session->drain_for_test();
  EXPECT_EQ(ran_before, 0u) << "the launches were still held";
  EXPECT_EQ(ran.size(), kRun / 2 * kStreams);
}

}  // namespace
}  // namespace tube::proxy
