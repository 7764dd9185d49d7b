// A context that is current to this thread while the object lives. Nothing happens for nullptr, or
// when the driver refuses: then what was current stays.
#pragma once

#include "base/cuda_api.h"
#include "protocol/driver_table.gen.h"

namespace tube::proxy {

class CurrentContext {
 public:
  CurrentContext(const Driver& driver, CUcontext context)
      : driver_(driver),
        pushed_(context != nullptr && driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {}
  ~CurrentContext() {
    CUcontext context = nullptr;
    if (pushed_) (void)driver_.cuCtxPopCurrent_v2(&context);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  const bool pushed_;
};

}  // namespace tube::proxy
