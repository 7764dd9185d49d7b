// The sum of the bytes of an object, wherever it is: by a kernel on its GPU (sum_kernel.cu), by the
// CPU in host memory. Equal bytes have equal sums; others nearly never.
//
// One thread, which waits for the GPU.
#pragma once

#include <cstdint>
#include <map>

#include "base/cuda_api.h"
#include "proxy/store/store_memory.h"

namespace tube::proxy {

struct Driver;
class MemoryMap;

class StoreSums {
 public:
  StoreSums(const Driver& driver, MemoryMap& map) : driver_(driver), map_(map) {}
  ~StoreSums();
  StoreSums(const StoreSums&) = delete;
  StoreSums& operator=(const StoreSums&) = delete;

  // Nobody gives the memory away meanwhile.
  CUresult sum(const StorePiece& piece, uint64_t bytes, uint64_t* sum);

 private:
  struct Ready {
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    CUstream stream = nullptr;
  };
  CUresult prepare(int device, Ready* ready);

  const Driver& driver_;
  MemoryMap& map_;
  std::map<int, Ready> ready_;  // by GPU
  uint64_t* parts_ = nullptr;   // pinned, one of each thread
};

}  // namespace tube::proxy
