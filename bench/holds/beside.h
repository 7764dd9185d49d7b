// A stream that waits for a value, and what a step does to everybody else meanwhile. Driver-API
// only, one context, one thread of its user.
//
// A step has three answers. It WAITS when it does not return: a second thread lets the stream go
// after a while and notes that it had to. It HOLDS when it returned, but work given to other
// streams afterwards stands. Otherwise it is OK. "A while" is the patience: work that goes on takes
// microseconds, so it only has to be longer than the machine may be busy with something else.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace holds {

enum class Answer { kOk, kWaits, kHolds };

class Beside {
 public:
  // The context must be current, and idle.
  explicit Beside(std::chrono::duration<double> patience);

  // From here on a stream waits.
  void hold();
  // It waits no longer. Returns when the context is idle.
  void release();
  // While the stream is held: does the step and says what it did. The stream is held afterwards
  // too, and nothing stands any more.
  Answer ask(const std::function<void()>& step);
  // While the stream is held, does what stands in another thread from then on. The other streams
  // may stand with it: steps after this one are asked only whether they return, until one does not.
  void let_stand(const std::function<void()>& step);

 private:
  void let_go();
  bool returns_only_when_released(const std::function<void()>& step);
  // Gives each of the streams a word to write; returns those where it was not written within the
  // patience.
  std::vector<CUstream> standing(const std::vector<CUstream>& streams);

  const std::chrono::duration<double> patience_;
  CUcontext context_ = nullptr;
  uint32_t* word_ = nullptr;     // pinned; the GPU waits for it, we write it
  CUdeviceptr device_word_ = 0;  // the same for the GPU
  uint32_t turn_ = 0;            // the value that the stream waits for
  CUstream held_ = nullptr;
  std::vector<CUstream> others_;
  std::vector<CUstream>
      asked_;  // those of them that go on while the stream is held and nothing else happened
};

}  // namespace holds
