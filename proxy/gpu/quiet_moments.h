// Who sees to it that nothing long runs on a GPU while a call needs its whole context idle.
#pragma once

#include <cstdint>
#include <memory>

#include "base/cuda_api.h"

namespace tube::proxy {

// Any thread that holds no lock; may be called inside the context gate.
class QuietMoments {
 public:
  // A quiet moment lasts as long as this.
  class Moment {
   public:
    virtual ~Moment() = default;
  };
  // Returns when the moment is there, after a bounded time all the same. `owner`: for whom, as the
  // gate names callers. nullptr: nothing is kept back.
  virtual std::unique_ptr<Moment> quiet(uint64_t owner, CUdevice device) = 0;

 protected:
  ~QuietMoments() = default;
};

}  // namespace tube::proxy
