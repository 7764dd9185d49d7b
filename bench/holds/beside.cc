#include "bench/holds/beside.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <thread>

#include "bench/holds/words.h"

namespace holds {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kOthers = 12;
constexpr size_t kWrittenAt =
    4096;  // the others' word: in another line than the one that is waited for
// A call may be slow by itself (a context takes 0.15 s), work in a stream is not.
constexpr int kPatienceWithCalls = 3;

}  // namespace

Beside::Beside(std::chrono::duration<double> patience) : patience_(patience), others_(kOthers) {
  CU(cuCtxGetCurrent(&context_));
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 2 * kWrittenAt, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  word_ = static_cast<uint32_t*>(memory);
  *word_ = 0;
  CU(cuMemHostGetDevicePointer(&device_word_, memory, 0));
  CU(cuStreamCreate(&held_, CU_STREAM_NON_BLOCKING));
  for (CUstream& stream : others_) CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

// Streams share the GPU's queues, and who shares the held one's stands for that alone: such streams
// are not asked.
void Beside::hold() {
  ++turn_;
  CU(cuStreamWaitValue32(held_, device_word_, turn_, CU_STREAM_WAIT_VALUE_GEQ));
  const std::vector<CUstream> behind = standing(others_);
  asked_.clear();
  std::copy_if(others_.begin(), others_.end(), std::back_inserter(asked_), [&](CUstream stream) {
    return std::find(behind.begin(), behind.end(), stream) == behind.end();
  });
  if (asked_.empty()) give_up("all streams stand before the first step");
}

void Beside::let_go() { __atomic_store_n(word_, turn_, __ATOMIC_RELEASE); }

void Beside::release() {
  let_go();
  CUcontext current = nullptr;  // steps may have gone to another
  CU(cuCtxGetCurrent(&current));
  CU(cuCtxSetCurrent(context_));
  CU(cuCtxSynchronize());
  CU(cuCtxSetCurrent(current));
}

Answer Beside::ask(const std::function<void()>& step) {
  Answer answer = Answer::kOk;
  if (returns_only_when_released(step)) answer = Answer::kWaits;
  else if (!standing(asked_).empty()) answer = Answer::kHolds;
  if (answer == Answer::kOk) return answer;
  release();
  hold();
  return answer;
}

void Beside::let_stand(const std::function<void()>& step) {
  step();
  asked_.clear();
}

bool Beside::returns_only_when_released(const std::function<void()>& step) {
  std::mutex mutex;
  std::condition_variable changed;
  bool returned = false, waited = false;
  std::thread watcher([&] {
    std::unique_lock lock(mutex);
    waited = !changed.wait_for(lock, kPatienceWithCalls * patience_, [&] { return returned; });
    if (waited) let_go();
  });
  step();
  {
    std::lock_guard lock(mutex);
    returned = true;
  }
  changed.notify_one();
  watcher.join();
  return waited;
}

std::vector<CUstream> Beside::standing(const std::vector<CUstream>& streams) {
  for (const CUstream stream : streams)
    CU(cuStreamWriteValue32(stream, device_word_ + kWrittenAt, turn_, 0));
  std::vector<CUstream> left = streams;
  const auto done = [](CUstream stream) {
    const CUresult state = cuStreamQuery(stream);
    if (state != CUDA_ERROR_NOT_READY) CU(state);
    return state == CUDA_SUCCESS;
  };
  const auto start = Clock::now();
  for (;;) {
    const bool last = Clock::now() - start > patience_;
    left.erase(std::remove_if(left.begin(), left.end(), done), left.end());
    if (left.empty() || last) return left;
    usleep(50);
  }
}

}  // namespace holds
