// What a small function does all day, and what others must not make slow or wrong: bytes of
// pageable memory to the device, one kernel, the result back, every word of it looked at; then a
// pause without work.
//
// It sleeps in its pause, as a function does that waits for its next request: what wakes it late is
// no part of a request's time, what keeps it from a core meanwhile is.
#include <ctime>

#include "bench/client/common.h"
#include "bench/copies/task.h"

namespace bench {
namespace {

constexpr uint32_t kThreads = 256, kRounds = 16;

class Requests : public Task {
 public:
  Requests(Client& client, size_t bytes, int64_t pause_us, int64_t run_ms)
      : kernel_(client.kernel()),
        in_(bytes / sizeof(uint32_t)),
        out_(in_.size()),
        pause_ns_(pause_us * 1000),
        run_ns_(run_ms * 1'000'000) {
    CU(cuMemAlloc(&device_in_, bytes));
    CU(cuMemAlloc(&device_out_, bytes));
  }
  ~Requests() override {
    CU(cuMemFree(device_in_));
    CU(cuMemFree(device_out_));
  }

  void prepare() override {
    for (int i = 0; i < 3; ++i) one();
  }

  void measure(Block& block) override {
    block.bytes = in_.size() * sizeof(uint32_t);
    block.begin_ns = now_ns();
    while (now_ns() - block.begin_ns < run_ns_) {
      block.latency_ns.push_back(one());
      const timespec pause{0, pause_ns_};
      nanosleep(&pause, nullptr);
    }
    block.end_ns = now_ns();
    block.wrong = wrong_;
  }

  std::string verify() override {
    return wrong_ == 0 ? "" : std::to_string(wrong_) + " results are wrong";
  }

 private:
  int64_t one() {
    ++number_;
    for (size_t i = 0; i < in_.size(); ++i) in_[i] = number_ * 977 + static_cast<uint32_t>(i);
    const size_t bytes = in_.size() * sizeof(uint32_t);
    uint32_t rounds = kRounds;
    void* params[] = {&device_out_, &device_in_, &rounds};
    const int64_t begin = now_ns();
    CU(cuMemcpyHtoD(device_in_, in_.data(), bytes));
    CU(cuLaunchKernel(kernel_, static_cast<uint32_t>(in_.size() / kThreads), 1, 1, kThreads, 1, 1,
                      0, nullptr, params, nullptr));
    CU(cuMemcpyDtoH(out_.data(), device_out_, bytes));
    const int64_t took = now_ns() - begin;
    if (!right()) ++wrong_;
    return took;
  }

  bool right() const {
    for (size_t i = 0; i < in_.size(); ++i) {
      uint32_t x = in_[i];
      for (uint32_t round = 0; round < kRounds; ++round) x = mixed(x);
      if (out_[i] != x) return false;
    }
    return true;
  }

  CUfunction kernel_;
  std::vector<uint32_t> in_, out_;
  const int64_t pause_ns_, run_ns_;
  CUdeviceptr device_in_ = 0, device_out_ = 0;
  uint32_t number_ = 0;
  int64_t wrong_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_requests(Client& client, std::istream& words) {
  size_t bytes = 0;
  int64_t pause_us = 0, run_ms = 0;
  words >> bytes >> pause_us >> run_ms;
  return std::make_unique<Requests>(client, bytes, pause_us, run_ms);
}

}  // namespace bench
