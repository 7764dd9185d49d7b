// What the links carry at best: large copies between host memory and the first GPU in pieces over
// several GPUs' links, by a plain program that knows its machine.
//
// A piece that goes over another GPU's link is staged there; that GPU and the first pass it on over
// NVLink, always as a copy of the GPU that has it (the other way round is slower). A thread for
// each link takes the next piece when one of its stages is free, so a faster link takes more.
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "bench/client/common.h"
#include "bench/copies/task.h"

namespace bench {
namespace {

constexpr size_t kPiece = 8 << 20;
constexpr size_t kStages = 4;  // pieces on their way over one link

CUcontext context_of(int gpu) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CU(cuDeviceGet(&device, gpu));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  return context;
}

// Without it copies between the two go through the host, right and slow.
void enable_peer(CUcontext from, CUcontext to) {
  CU(cuCtxSetCurrent(from));
  const CUresult code = cuCtxEnablePeerAccess(to, 0);
  if (code != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED && code != CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
    check(code, "cuCtxEnablePeerAccess");
}

CUstream stream_in(CUcontext context) {
  CU(cuCtxSetCurrent(context));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

// The way of pieces over the link of one GPU.
class Link {
 public:
  Link(Path& path, bool up, CUcontext home, int gpu)
      : path_(path), up_(up), home_(home), mine_(gpu == 0 ? home : context_of(gpu)), gpu_(gpu) {
    link_ = stream_in(mine_);
    if (gpu_ != 0) {
      enable_peer(home_, mine_);
      enable_peer(mine_, home_);
      hop_ = stream_in(up_ ? mine_ : home_);
    }
    for (Stage& stage : stages_) {
      CU(cuCtxSetCurrent(mine_));
      if (gpu_ != 0) CU(cuMemAlloc(&stage.bytes, kPiece));
      stage.arrived = event_of(gpu_ == 0 || up_ ? link_ : hop_);
      stage.done = event_of(last());
    }
    CU(cuCtxSetCurrent(home_));
  }
  ~Link() {
    CU(cuCtxSetCurrent(mine_));
    for (Stage& stage : stages_) {
      if (gpu_ != 0) CU(cuMemFree(stage.bytes));
      CU(cuEventDestroy(stage.arrived));
      CU(cuEventDestroy(stage.done));
    }
    CU(cuStreamDestroy(link_));
    if (hop_ != nullptr) CU(cuStreamDestroy(hop_));
    CU(cuCtxSetCurrent(home_));
    if (gpu_ != 0) CU(cuDevicePrimaryCtxRelease(gpu_));
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Moves pieces of the first `bytes` until none is left; called on a thread of its own.
  void move(std::atomic<size_t>& next, size_t bytes) {
    CU(cuCtxSetCurrent(mine_));
    size_t moved = 0;
    for (size_t at = 0; (at = next.fetch_add(kPiece)) < bytes; ++moved) {
      Stage& stage = stages_[moved % kStages];
      if (moved >= kStages) CU(cuEventSynchronize(stage.done));
      piece(stage, at, std::min(kPiece, bytes - at));
    }
    for (size_t i = 0; i < std::min(moved, kStages); ++i) CU(cuEventSynchronize(stages_[i].done));
  }

 private:
  struct Stage {
    CUdeviceptr bytes = 0;
    CUevent arrived = nullptr, done = nullptr;
  };

  // The stream that a piece ends on.
  CUstream last() const { return up_ && gpu_ != 0 ? hop_ : link_; }

  static CUevent event_of(CUstream stream) {
    CUcontext context = nullptr;
    CU(cuStreamGetCtx(stream, &context));
    CU(cuCtxSetCurrent(context));
    CUevent event = nullptr;
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
  }

  void piece(Stage& stage, size_t at, size_t size) {
    if (gpu_ == 0) {
      path_.start(link_, at, size);
    } else if (up_) {
      CU(cuMemcpyHtoDAsync(stage.bytes, path_.host() + at, size, link_));
      CU(cuEventRecord(stage.arrived, link_));
      CU(cuStreamWaitEvent(hop_, stage.arrived, 0));
      CU(cuMemcpyPeerAsync(path_.device() + at, home_, stage.bytes, mine_, size, hop_));
    } else {
      CU(cuMemcpyPeerAsync(stage.bytes, mine_, path_.device() + at, home_, size, hop_));
      CU(cuEventRecord(stage.arrived, hop_));
      CU(cuStreamWaitEvent(link_, stage.arrived, 0));
      CU(cuMemcpyDtoHAsync(path_.host() + at, stage.bytes, size, link_));
    }
    CU(cuEventRecord(stage.done, last()));
  }

  Path& path_;
  const bool up_;
  CUcontext home_, mine_;
  const int gpu_;
  CUstream link_ = nullptr, hop_ = nullptr;
  std::array<Stage, kStages> stages_;
};

class Relay : public Task {
 public:
  Relay(Path& path, bool up, size_t bytes, int samples, int links)
      : path_(path), bytes_(bytes), samples_(samples), meet_(links + 1) {
    CUcontext home = nullptr;
    CU(cuCtxGetCurrent(&home));
    for (int gpu = 0; gpu < links; ++gpu)
      links_.push_back(std::make_unique<Link>(path, up, home, gpu));
    for (auto& link : links_) threads_.emplace_back([this, &link = *link] { serve(link); });
  }
  ~Relay() override {
    ends_ = true;
    meet_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }

  void prepare() override {
    for (int i = 0; i < 2; ++i) sample();
    path_.spoil();
  }

  void measure(Block& block) override {
    block.bytes = bytes_;
    block.begin_ns = now_ns();
    for (int i = 0; i < samples_; ++i) block.latency_ns.push_back(sample());
    block.end_ns = now_ns();
  }

  std::string verify() override { return wrong_.empty() ? path_.wrong() : wrong_; }

 private:
  int64_t sample() {
    path_.refresh(++number_);
    next_ = 0;
    const int64_t begin = now_ns();
    meet_.arrive_and_wait();
    meet_.arrive_and_wait();
    const int64_t took = now_ns() - begin;
    if (wrong_.empty()) wrong_ = path_.wrong_in_samples();
    return took;
  }

  void serve(Link& link) {
    for (;;) {
      meet_.arrive_and_wait();
      if (ends_) return;
      link.move(next_, bytes_);
      meet_.arrive_and_wait();
    }
  }

  Path& path_;
  const size_t bytes_;
  const int samples_;
  std::barrier<> meet_;
  std::atomic<size_t> next_{0};
  bool ends_ = false;
  uint64_t number_ = 0;
  std::string wrong_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Task> make_relay(Client& client, std::istream& words) {
  std::string way;
  size_t bytes = 0;
  int samples = 0, links = 0, gpus = 0;
  words >> way >> bytes >> samples >> links;
  CU(cuDeviceGetCount(&gpus));
  if (links < 1 || links > gpus) {
    fprintf(stderr, "cannot relay over %d links: %d GPUs\n", links, gpus);
    exit(2);
  }
  const bool up = way_named(way);
  return std::make_unique<Relay>(client.path(up, Host::kPinned, bytes), up, bytes, samples, links);
}

}  // namespace bench
