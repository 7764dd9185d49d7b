// What pinned memory costs: to get it, and the ways of pageable bytes to the device, with all that
// each needs.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/client/common.h"
#include "bench/copies/task.h"

namespace bench {
namespace {

void pause_ms(int64_t ms) {
  timespec left = {ms / 1000, ms % 1000 * 1'000'000};
  while (nanosleep(&left, &left) != 0) {
  }
}

class Allocate : public Task {
 public:
  // `keep`: no sample gets memory that this program has freed.
  Allocate(size_t bytes, int samples, int64_t pause, bool keep)
      : bytes_(bytes), samples_(samples), pause_ms_(pause), keep_(keep) {
    CU(cuMemAlloc(&device_, bytes));
  }
  ~Allocate() override {
    for (void* memory : kept_) CU(cuMemFreeHost(memory));
    CU(cuMemFree(device_));
  }

  void measure(Block& block) override {
    block.bytes = bytes_;
    block.begin_ns = now_ns();
    for (int i = 0; i < samples_; ++i) {
      if (i != 0) pause_ms(pause_ms_);
      sample(block);
    }
    block.end_ns = now_ns();
  }

  std::string verify() override { return wrong_; }

 private:
  void sample(Block& block) {
    void* memory = nullptr;
    int64_t begin = now_ns();
    CU(cuMemHostAlloc(&memory, bytes_, 0));
    block.latency_ns.push_back(now_ns() - begin);
    check(static_cast<std::byte*>(memory));
    if (keep_) return kept_.push_back(memory);
    begin = now_ns();
    CU(cuMemFreeHost(memory));
    block.free_ns.push_back(now_ns() - begin);
  }

  // All of it can be written and reaches the device.
  void check(std::byte* memory) {
    fill(memory, bytes_);
    CU(cuMemcpyHtoDAsync(device_, memory, bytes_, nullptr));
    CU(cuStreamSynchronize(nullptr));
    if (wrong_.empty()) wrong_ = compare_with_device(memory, device_, bytes_);
  }

  const size_t bytes_;
  const int samples_;
  const int64_t pause_ms_;
  const bool keep_;
  std::vector<void*> kept_;
  CUdeviceptr device_ = 0;
  std::string wrong_;
};

// A program's own ring of pinned memory, made ahead.
class Ring {
 public:
  Ring() {
    void* memory = nullptr;
    CU(cuMemHostAlloc(&memory, kSlots * kSlotBytes, 0));
    memory_ = static_cast<std::byte*>(memory);
    for (CUevent& end : ends_) CU(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
  }
  ~Ring() {
    for (CUevent end : ends_) CU(cuEventDestroy(end));
    CU(cuMemFreeHost(memory_));
  }

  void send(CUdeviceptr to, const std::byte* from, size_t bytes, CUstream stream) {
    for (size_t at = 0; at < bytes; at += kSlotBytes, next_ = (next_ + 1) % kSlots) {
      const size_t piece = std::min(kSlotBytes, bytes - at);
      CU(cuEventSynchronize(ends_[next_]));  // of one that was never recorded: at once
      memcpy(memory_ + next_ * kSlotBytes, from + at, piece);
      CU(cuMemcpyHtoDAsync(to + at, memory_ + next_ * kSlotBytes, piece, stream));
      CU(cuEventRecord(ends_[next_], stream));
    }
  }

 private:
  static constexpr size_t kSlots = 4, kSlotBytes = 4 << 20;
  std::byte* memory_ = nullptr;
  CUevent ends_[kSlots];
  size_t next_ = 0;
};

class Deliver : public Task {
 public:
  Deliver(Path& path, const std::string& how, size_t bytes, int samples)
      : path_(path), how_(how), bytes_(bytes), samples_(samples) {
    if (how == "staging") ring_ = std::make_unique<Ring>();
  }
  ~Deliver() override { CU(cuStreamDestroy(stream_)); }

  void prepare() override {
    path_.refresh(++number_);
    deliver(path_.host());
    path_.spoil();
  }

  void measure(Block& block) override {
    block.bytes = bytes_;
    block.begin_ns = now_ns();
    for (int i = 0; i < samples_; ++i) {
      path_.refresh(++number_);
      const int64_t begin = now_ns();
      deliver(path_.host());
      block.latency_ns.push_back(now_ns() - begin);
    }
    block.end_ns = now_ns();
  }

  std::string verify() override { return path_.wrong(); }

 private:
  void deliver(std::byte* source) {
    if (how_ == "pageable") {
      copy(source);
    } else if (how_ == "registered") {
      CU(cuMemHostRegister(source, bytes_, 0));
      copy(source);
      CU(cuMemHostUnregister(source));
    } else if (how_ == "allocated") {
      through_new_memory(source);
    } else if (how_ == "staging") {
      ring_->send(path_.device(), source, bytes_, stream_);
      CU(cuStreamSynchronize(stream_));
    } else {
      fprintf(stderr, "no way %s\n", how_.c_str());
      exit(2);
    }
  }

  void copy(const void* source) {
    CU(cuMemcpyHtoDAsync(path_.device(), source, bytes_, stream_));
    CU(cuStreamSynchronize(stream_));
  }

  void through_new_memory(const std::byte* source) {
    void* pinned = nullptr;
    CU(cuMemHostAlloc(&pinned, bytes_, 0));
    memcpy(pinned, source, bytes_);
    copy(pinned);
    CU(cuMemFreeHost(pinned));
  }

  Path& path_;
  const std::string how_;
  const size_t bytes_;
  const int samples_;
  CUstream stream_ = new_stream();
  std::unique_ptr<Ring> ring_;
  uint64_t number_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_allocate(Client&, std::istream& words) {
  size_t bytes = 0;
  int samples = 0;
  int64_t pause = 0;
  std::string keep;
  words >> bytes >> samples >> pause >> keep;
  return std::make_unique<Allocate>(bytes, samples, pause, keep == "keep");
}

std::unique_ptr<Task> make_deliver(Client& client, std::istream& words) {
  std::string how, host;
  size_t bytes = 0;
  int samples = 0;
  words >> how >> host >> bytes >> samples;
  return std::make_unique<Deliver>(client.path(true, host_named(host), bytes), how, bytes, samples);
}

}  // namespace bench
