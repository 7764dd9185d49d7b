// Streams of the store's own, for copies of objects that consumers asked for. Such a copy is for
// all, so it must not stand behind the work of whoever asked first.
//
// Copies that can begin at once share one stream of their GPU, which therefore always goes on. A
// copy behind work that has not ended, which may be as long as a program likes, has a stream to
// itself. Streams are kept for the next ones.
//
// Any thread; the GPU's own context is current. `mutex_` is a leaf.
#pragma once

#include <array>
#include <mutex>
#include <vector>

#include "base/cuda_api.h"
#include "protocol/device_info.h"

namespace tube::proxy {

struct Driver;

class StoreStreams {
 public:
  explicit StoreStreams(const Driver& driver) : driver_(driver) {}
  StoreStreams(const StoreStreams&) = delete;
  StoreStreams& operator=(const StoreStreams&) = delete;

  // nullptr: the driver has none.
  CUstream of_all(int gpu);
  // Nobody else gets it before done(), nor before what it has by then has ended. nullptr: there is
  // none, or too many copies wait.
  CUstream of_one(int gpu);
  void done(int gpu, CUstream stream);
  // Nobody uses them any more.
  void close();

 private:
  static constexpr size_t kMost = 128;  // copies of a GPU that wait for work
  struct Own {
    CUstream stream;
    bool taken;
  };
  struct Gpu {
    CUstream shared = nullptr;
    std::vector<Own> own;
  };
  CUstream make();

  const Driver& driver_;
  std::mutex mutex_;
  std::array<Gpu, info::kMaxDevices> gpus_;
};

}  // namespace tube::proxy
