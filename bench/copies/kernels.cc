// Functions that compute: a step of short kernels at every mark of a clock, and kernels without
// pause, long or short.
//
// Each kernel of both is mix() over words of its own, so how many rounds one word has gone through
// says how many kernels have run: verify() counts.
#include <ctime>

#include "bench/client/common.h"
#include "bench/copies/task.h"

namespace bench {
namespace {

constexpr unsigned kThreads = 256;
constexpr uint32_t kSeed = 12345;

// mix() over memory that is its input and output: launch n leaves what n times `rounds` of mixed()
// make of the seed.
class Kernel {
 public:
  Kernel(CUfunction function, unsigned blocks, unsigned rounds)
      : function_(function), blocks_(blocks), rounds_(rounds), stream_(new_stream()) {
    CU(cuMemAlloc(&words_, words() * sizeof(uint32_t)));
    CU(cuMemsetD32Async(words_, kSeed, words(), stream_));
    sync();
  }
  ~Kernel() {
    CU(cuMemFree(words_));
    CU(cuStreamDestroy(stream_));
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  void launch() {
    void* params[] = {&words_, &words_, &rounds_};
    CU(cuLaunchKernel(function_, blocks_, 1, 1, kThreads, 1, 1, 0, stream_, params, nullptr));
    ++launches_;
  }
  // So many launches, and the event behind them.
  void mark(CUevent end, unsigned launches) {
    for (unsigned i = 0; i < launches; ++i) launch();
    CU(cuEventRecord(end, stream_));
  }
  // What comes next waits for the value to be 1.
  void wait(CUdeviceptr value) {
    CU(cuStreamWaitValue32(stream_, value, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void sync() { CU(cuStreamSynchronize(stream_)); }
  size_t words() const { return size_t{blocks_} * kThreads; }

  // The first and the last word tell.
  std::string wrong() {
    sync();
    uint32_t first = 0, last = 0, expected = kSeed;
    CU(cuMemcpyDtoH(&first, words_, sizeof(first)));
    CU(cuMemcpyDtoH(&last, words_ + (words() - 1) * sizeof(last), sizeof(last)));
    // x -> a x + c, composed by squaring: launches times rounds are billions.
    uint32_t a = 1664525, c = 1013904223;
    for (uint64_t times = launches_ * rounds_; times != 0; times >>= 1) {
      if ((times & 1) != 0) expected = a * expected + c;
      c = a * c + c;
      a *= a;
    }
    return first == expected && last == expected
               ? ""
               : "kernels are missing or came too often (" + std::to_string(launches_) + ")";
  }

 private:
  CUfunction function_;
  const unsigned blocks_;
  unsigned rounds_;
  CUstream stream_;
  CUdeviceptr words_ = 0;
  uint64_t launches_ = 0;
};

// A step of `kernels` launches and a wait, every PERIOD_US for MS; PERIOD_US 0: one behind the
// other. Those of the first LEAD_MS are not counted: what is learnt or made once is no part of a
// step. Stops early at the word of the script.
class Steps : public Task {
 public:
  Steps(Client& client, unsigned kernels, unsigned blocks, unsigned rounds, int64_t period_us,
        int64_t ms, int64_t lead_ms)
      : client_(client),
        kernel_(client.kernel(), blocks, rounds),
        kernels_(kernels),
        period_ns_(period_us * 1000),
        run_ns_(ms * 1'000'000),
        lead_ns_(lead_ms * 1'000'000) {}

  void prepare() override { step(); }

  void measure(Block& block) override {
    block.bytes = kernels_;
    Block lead;
    steps(lead_ns_, lead);
    block.begin_ns = now_ns();
    steps(run_ns_, block);
    block.end_ns = now_ns();
    if (client_.lines.waiting()) client_.lines.await("stop");
  }

  std::string verify() override { return kernel_.wrong(); }

 private:
  static void pause() {
    const timespec nap{0, 20'000};
    nanosleep(&nap, nullptr);
  }
  void step() {
    for (unsigned i = 0; i < kernels_; ++i) kernel_.launch();
    kernel_.sync();
  }
  void steps(int64_t for_ns, Block& block) {
    int64_t mark = now_ns();
    const int64_t end = mark + for_ns;
    while (now_ns() < end && !client_.lines.waiting()) {
      while (period_ns_ != 0 && now_ns() < mark) pause();
      const int64_t begin = now_ns();
      step();
      const int64_t ended = now_ns();
      block.latency_ns.push_back(ended - begin);
      block.ended_ns.push_back(ended);
      for (mark += period_ns_; period_ns_ != 0 && mark < ended; mark += period_ns_) ++block.missed;
    }
  }

  Client& client_;
  Kernel kernel_;
  const unsigned kernels_;
  const int64_t period_ns_, run_ns_, lead_ns_;
};

// Steps until the line "stop", the next one launched before the last has ended, so that the stream
// always has work.
class Busy : public Task {
 public:
  Busy(Client& client, unsigned kernels, unsigned blocks, unsigned rounds)
      : client_(client), kernel_(client.kernel(), blocks, rounds), kernels_(kernels) {
    for (CUevent& event : ends_) CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  }
  ~Busy() override {
    for (CUevent event : ends_) CU(cuEventDestroy(event));
  }

  void prepare() override {
    kernel_.launch();
    kernel_.sync();
  }

  void measure(Block& block) override {
    block.bytes = kernels_;
    block.begin_ns = now_ns();
    kernel_.mark(ends_[0], kernels_);
    for (size_t next = 1; !client_.lines.waiting(); next = 1 - next) {
      kernel_.mark(ends_[next], kernels_);
      CU(cuEventSynchronize(ends_[1 - next]));
      block.ended_ns.push_back(now_ns());
    }
    client_.lines.await("stop");
    kernel_.sync();
    block.ended_ns.push_back(now_ns());
    block.end_ns = now_ns();
  }

  std::string verify() override { return kernel_.wrong(); }

 private:
  Client& client_;
  Kernel kernel_;
  const unsigned kernels_;
  CUevent ends_[2] = {};
};

// Streams that wait for a value until the line "stop", and have a kernel behind that.
class Stand : public Task {
 public:
  Stand(Client& client, size_t streams) : client_(client) {
    for (size_t i = 0; i < streams; ++i)
      kernels_.push_back(std::make_unique<Kernel>(client.kernel(), 1, 1));
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&value_), sizeof(uint32_t), 0));
    __atomic_store_n(value_, 0, __ATOMIC_RELAXED);
  }
  ~Stand() override { CU(cuMemFreeHost(value_)); }

  void measure(Block& block) override {
    block.begin_ns = now_ns();
    for (const auto& kernel : kernels_) {
      kernel->wait(reinterpret_cast<CUdeviceptr>(value_));
      kernel->launch();
    }
    client_.lines.await("stop");
    __atomic_store_n(value_, 1, __ATOMIC_RELEASE);
    for (const auto& kernel : kernels_) kernel->sync();
    block.ended_ns.push_back(now_ns());
    block.end_ns = now_ns();
  }

  std::string verify() override {
    std::string wrong;
    for (const auto& kernel : kernels_) wrong += kernel->wrong();
    return wrong;
  }

 private:
  Client& client_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  uint32_t* value_ = nullptr;
};

}  // namespace

std::unique_ptr<Task> make_stand(Client& client, std::istream& words) {
  size_t streams = 1;
  words >> streams;
  return std::make_unique<Stand>(client, streams);
}

std::unique_ptr<Task> make_steps(Client& client, std::istream& words) {
  unsigned kernels = 1, blocks = 1, rounds = 1;
  int64_t period_us = 0, ms = 0, lead_ms = 0;
  words >> kernels >> blocks >> rounds >> period_us >> ms >> lead_ms;
  return std::make_unique<Steps>(client, kernels, blocks, rounds, period_us, ms, lead_ms);
}

std::unique_ptr<Task> make_busy(Client& client, std::istream& words) {
  unsigned kernels = 1, blocks = 1, rounds = 1;
  words >> kernels >> blocks >> rounds;
  return std::make_unique<Busy>(client, kernels, blocks, rounds);
}

}  // namespace bench
