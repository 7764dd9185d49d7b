// The bytes of one object on their way from one place to another, for nobody's stream: through the
// copy lane of the link like everybody's large copies (proxy/copy/copy_link.h), or on a stream of
// its own between two GPUs, where there is no lane.
//
// One at a time, by one thread at a time; copy() waits for the bytes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/cuda_api.h"
#include "proxy/store/store_memory.h"

namespace tube::proxy {

class CopyEngine;
class MemoryMap;
struct Driver;

class StoreTransfer {
 public:
  // The store's share of a link; no session's.
  static constexpr uint64_t kShare = uint64_t{1} << 62;

  StoreTransfer(const Driver& driver, MemoryMap& map) : driver_(driver), map_(map) {}
  StoreTransfer(const StoreTransfer&) = delete;
  StoreTransfer& operator=(const StoreTransfer&) = delete;

  // nullptr: there is none any more.
  void use(CopyEngine* engine) { engine_ = engine; }
  // Complete on return, also after an error: nothing of it is in flight.
  CUresult copy(const StorePiece& from, const StorePiece& to, uint64_t bytes);

 private:
  struct Told {  // shared with the pacing thread
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
  };
  CUresult by_lane(int gpu, bool to_gpu, const StorePiece& from, const StorePiece& to,
                   uint64_t bytes);
  CUresult on_stream(const StorePiece& from, const StorePiece& to, uint64_t bytes);

  const Driver& driver_;
  MemoryMap& map_;
  CopyEngine* engine_ = nullptr;
};

}  // namespace tube::proxy
