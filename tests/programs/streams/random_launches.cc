// Generated programs that repeat themselves, more or less: what launch coalescing must be invisible
// to. A seed makes a few steps, each a list of launches, copies, memsets, events, stream waits,
// uploads, downloads, host functions and graph launches over several streams, and plays them again
// and again with changes: other parameters, operations left out, put in or cut off, long stretches
// that nothing interrupts, modules loaded anew, attributes changed. Each buffer's last bytes tell
// of every operation and its place, because the kernels do not commute. Runs once per seed, then
// from four threads at once.
//
//   random_launches [SEEDS] [FIRST SEED]
#include <atomic>
#include <memory>
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr int kCount = 96;
constexpr int kStreams = 4;  // two non-blocking, one blocking, the legacy stream

enum class Kind {
  kStep,
  kFill,
  kMemset,
  kCopy,
  kPass,
  kEvent,
  kUpload,
  kDownload,
  kHost,
  kGraph,
  kSync,
  kQuery,
  kAttribute,
  kBadLaunch
};

struct Operation {
  Kind kind = Kind::kStep;
  int stream = 0;
  uint32_t a = 0, b = 0;
  bool wide = false;
};

struct Kernels {
  Module module{"kernels.fatbin"};
  CUfunction step = module.function("step");
  CUfunction slow = module.function("slow_step");
  CUfunction fill = module.function("fill");
};

class Player {
 public:
  // `shared`: uses the legacy stream and a blocking one too, which only one player may do.
  Player(uint64_t seed, bool shared) : random_(seed), streams_used_(shared ? kStreams : 2) {
    for (int i = 0; i < streams_used_; ++i) {
      if (i < 3)
        CU(cuStreamCreate(&streams_[i], i < 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
      CU(cuEventCreate(&events_[i], i % 2 == 0 ? CU_EVENT_DISABLE_TIMING : CU_EVENT_DEFAULT));
      data_[i] = std::make_unique<DeviceArray<uint32_t>>(std::vector<uint32_t>(2 * kCount, 7 + i));
    }
    kernels_ = std::make_unique<Kernels>();
    make_graph();
    for (auto& step : steps_) make_step(step);
  }
  ~Player() {
    CU(cuCtxSynchronize());
    CU(cuGraphExecDestroy(graph_));
    for (int i = 0; i < streams_used_; ++i) CU(cuEventDestroy(events_[i]));
    for (int i = 0; i < streams_used_ && i < 3; ++i) CU(cuStreamDestroy(streams_[i]));
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  void play(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      const auto& step = steps_[below(below(2) == 0 ? 1 : 3)];
      switch (below(12)) {
        case 0: stretch(step); break;
        case 1: disturbed(step); break;
        case 2: same_but_parameters(step); break;
        case 3: again_from_a_new_module(round); break;
        default:
          for (const Operation& operation : step) make(operation);
      }
      if (below(3) != 0) make({Kind::kSync, static_cast<int>(below(streams_used_))});
    }
  }

  uint64_t result() {
    CU(cuCtxSynchronize());
    uint64_t hash = sum_ * 31 + hosts_.load();
    for (int i = 0; i < streams_used_; ++i)
      hash = hash * 0x100000001b3ull + hash_of(data_[i]->read());
    return hash;
  }

 private:
  uint32_t below(uint32_t bound) { return random_.next() % bound; }
  CUdeviceptr data(int stream) const {
    return data_[stream >= 2 ? 2 : stream]->pointer;
  }  // blocking and legacy are in order

  Operation any() {
    static const Kind rare[] = {Kind::kFill,     Kind::kMemset, Kind::kCopy,     Kind::kPass,
                                Kind::kEvent,    Kind::kUpload, Kind::kDownload, Kind::kHost,
                                Kind::kGraph,    Kind::kSync,   Kind::kQuery,    Kind::kAttribute,
                                Kind::kBadLaunch};
    Operation made;
    made.kind = below(100) < 6 ? rare[below(13)] : below(5) == 0 ? Kind::kFill : Kind::kStep;
    made.stream =
        static_cast<int>(below(10) < 7 ? favourite_ : below(static_cast<uint32_t>(streams_used_)));
    made.a = 3 + 2 * below(50);
    made.b = below(1000);
    made.wide = below(4) == 0;
    return made;
  }
  void make_step(std::vector<Operation>& step) {
    favourite_ = below(static_cast<uint32_t>(streams_used_));
    const uint32_t count = 10 + below(120);
    for (uint32_t i = 0; i < count; ++i) step.push_back(any());
  }
  // Node by node where other threads may synchronise the context, which a capture forbids.
  void make_graph() {
    CUgraph graph;
    if (streams_used_ == kStreams) {
      CU(cuStreamBeginCapture(streams_[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      for (uint32_t i = 0; i < 5; ++i)
        LAUNCH(kernels_->step, {1}, {kCount}, 0, streams_[0], data(0), 5u, i, kCount);
      CU(cuStreamEndCapture(streams_[0], &graph));
    } else {
      CU(cuGraphCreate(&graph, 0));
      add_node(graph);
    }
    CU(cuGraphInstantiate(&graph_, graph, 0));
    CU(cuGraphDestroy(graph));
  }

  void add_node(CUgraph graph) {
    CUdeviceptr pointer = data(0);
    uint32_t factor = 5, addend = 9;
    int count = kCount;
    void* arguments[] = {&pointer, &factor, &addend, &count};
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = kernels_->step;
    params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.blockDimX = kCount;
    params.kernelParams = arguments;
    CUgraphNode node;
    CU(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  }

  // Launches alone, many times over, with nothing between.
  void stretch(const std::vector<Operation>& step) {
    const uint32_t times = 3 + below(20);
    for (uint32_t i = 0; i < times; ++i) {
      for (const Operation& operation : step) {
        if (operation.kind == Kind::kStep || operation.kind == Kind::kFill) make(operation);
      }
    }
  }
  void disturbed(const std::vector<Operation>& step) {
    const uint32_t at = below(static_cast<uint32_t>(step.size()));
    const uint32_t what = below(3);
    for (uint32_t i = 0; i < step.size(); ++i) {
      if (i == at && what == 0) return;
      if (i == at && what == 1) make(any());
      if (i != at || what != 2) make(step[i]);
    }
  }
  void same_but_parameters(const std::vector<Operation>& step) {
    const uint32_t changed = below(3) == 0 ? 1 : 10;
    for (Operation operation : step) {
      if (below(changed) == 0) operation.b = below(1000);
      make(operation);
    }
  }
  // Unloading waits for the kernels, so what was held must have been launched.
  void again_from_a_new_module(int round) {
    if (round % 5 != 0) return;
    CU(cuCtxSynchronize());
    CU(cuGraphExecDestroy(graph_));
    kernels_.reset();
    kernels_ = std::make_unique<Kernels>();
    make_graph();
  }

  // `from`'s elements go behind the ones of `to`; both streams know.
  void pass(int from, int to) {
    if (data(from) == data(to)) return;
    CU(cuEventRecord(events_[from], streams_[from]));
    CU(cuStreamWaitEvent(streams_[to], events_[from], 0));
    CU(cuMemcpyDtoDAsync(data(to) + kCount * 4, data(from), kCount * 4, streams_[to]));
    CU(cuEventRecord(events_[to], streams_[to]));
    CU(cuStreamWaitEvent(streams_[from], events_[to], 0));
  }

  void launch(const Operation& o) {
    const Dim grid{o.wide ? 2u : 1u};
    const Dim block{o.wide ? 64u : 96u};
    if (o.kind == Kind::kFill)
      LAUNCH(kernels_->fill, grid, {32}, 0, streams_[o.stream], data(o.stream), o.b, 8);
    else if (o.b % 50 == 0)
      LAUNCH(kernels_->slow, grid, block, 0, streams_[o.stream], data(o.stream), o.a, o.b, kCount,
             2000);
    else
      LAUNCH(kernels_->step, grid, block, 0, streams_[o.stream], data(o.stream), o.a, o.b, kCount);
  }

  void make(const Operation& o) {
    CUstream stream = streams_[o.stream];
    switch (o.kind) {
      case Kind::kStep:
      case Kind::kFill: launch(o); break;
      case Kind::kMemset:
        CU(cuMemsetD32Async(data(o.stream) + 4 * (o.a % 64), o.b, 16, stream));
        break;
      case Kind::kCopy:
        CU(cuMemcpyDtoDAsync(data(o.stream), data(o.stream) + kCount * 4, 4 * (1 + o.a % 32),
                             stream));
        break;
      case Kind::kPass:
        pass(o.stream, static_cast<int>(o.b % static_cast<uint32_t>(streams_used_)));
        break;
      case Kind::kEvent:
        CU(cuEventRecord(events_[o.stream], stream));
        if (o.b % 2 == 0) CU(cuEventSynchronize(events_[o.stream]));
        break;
      case Kind::kUpload: {
        const uint32_t values[4] = {o.a, o.b, o.a * o.b, 1};
        if (stream == nullptr) CU(cuMemcpyHtoD(data(o.stream) + 64, values, sizeof values));
        else CU(cuMemcpyHtoDAsync(data(o.stream) + 64, values, sizeof values, stream));
        break;
      }
      case Kind::kDownload: {
        uint32_t value = 0;
        CU(cuMemcpyDtoHAsync(&value, data(o.stream) + 4 * (o.a % kCount), 4, stream));
        CU(cuStreamSynchronize(stream));
        sum_ = sum_ * 31 + value;
        break;
      }
      case Kind::kHost:
        CU(cuLaunchHostFunc(
            stream, [](void* count) { static_cast<std::atomic<uint32_t>*>(count)->fetch_add(1); },
            &hosts_));
        break;
      case Kind::kGraph: CU(cuGraphLaunch(graph_, streams_[0])); break;
      case Kind::kSync: CU(cuStreamSynchronize(stream)); break;
      case Kind::kQuery: (void)cuStreamQuery(stream); break;
      case Kind::kAttribute:
        CU(cuFuncSetAttribute(kernels_->step, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              static_cast<int>(1024 + o.a)));
        break;
      case Kind::kBadLaunch:
        EXPECT(try_launch(kernels_->step, {1}, {4096}, 0, stream, data(o.stream), 3u, 3u, kCount) ==
               CUDA_ERROR_INVALID_VALUE);
        break;
    }
  }

  Random random_;
  const int streams_used_;
  uint32_t favourite_ = 0;
  CUstream streams_[kStreams] = {};
  CUevent events_[kStreams] = {};
  std::unique_ptr<DeviceArray<uint32_t>> data_[kStreams];
  std::unique_ptr<Kernels> kernels_;
  CUgraphExec graph_ = nullptr;
  std::vector<Operation> steps_[3];
  std::atomic<uint32_t> hosts_{0};
  uint64_t sum_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const int seeds = argc > 1 ? atoi(argv[1]) : 6;
  const int first = argc > 2 ? atoi(argv[2]) : 1;
  Gpu gpu;
  for (int seed = first; seed < first + seeds; ++seed) {
    Player player(static_cast<uint64_t>(seed), true);
    player.play(40);
    printf("seed %d: %016llx\n", seed, static_cast<unsigned long long>(player.result()));
  }
  uint64_t results[4] = {};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      CU(cuCtxSetCurrent(gpu.context));
      Player player(static_cast<uint64_t>(1000 * first + i), false);
      player.play(30);
      results[i] = player.result();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint64_t result : results)
    printf("thread: %016llx\n", static_cast<unsigned long long>(result));
  return 0;
}
