// Streams of the store's own, for copies of objects that consumers asked for. Such a copy is for
// all, so it must not stand behind the work of whoever asked first.
//
// Copies that can begin at once share one stream of their GPU, which therefore always goes on.
// Copies behind work that has not ended, which may be as long as a program likes, have streams of
// their own: one for all that were sealed on one stream of their maker, in the order of the seals,
// for the later seal comes behind the earlier one in any case. So there are about as many as
// makers' streams that stand. Streams are kept for the next ones.
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

// A stream of a client, for as long as that is the same stream.
struct StoreStream {
  uint64_t session = 0, id = 0;
  uint32_t context = 0;
  bool operator==(const StoreStream&) const = default;
};

// Where an object was sealed.
struct SealedOn {
  StoreStream stream;
  uint64_t number = 0;  // of the seal; later ones have larger ones
};

class StoreStreams {
 public:
  explicit StoreStreams(const Driver& driver) : driver_(driver) {}
  StoreStreams(const StoreStreams&) = delete;
  StoreStreams& operator=(const StoreStreams&) = delete;

  // nullptr: the driver has none.
  CUstream of_all(int gpu);
  // For a copy behind that seal. Nobody else gets it before done(), nor, but for later seals of the
  // same stream, before what it has by then has ended. nullptr: there is none, or too many copies
  // wait.
  CUstream of_seal(int gpu, const SealedOn& sealed);
  void done(int gpu, CUstream stream);
  // Nobody uses them any more.
  void close();

 private:
  // Of a GPU. Each may take a hardware queue, as do the streams that programs let wait
  // (policies::WaitRoom), and there are 32 of these.
  static constexpr size_t kMost = 16;
  struct Own {
    CUstream stream;
    bool taken;
    SealedOn last;
  };
  struct Gpu {
    CUstream shared = nullptr;
    std::vector<Own> own;
  };
  CUstream make();
  Own* find(Gpu& here, const SealedOn& sealed);

  const Driver& driver_;
  std::mutex mutex_;
  std::array<Gpu, info::kMaxDevices> gpus_;
};

}  // namespace tube::proxy
