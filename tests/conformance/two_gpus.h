// What cases on two GPUs share: both primary contexts, memory on either, a look at it.
#pragma once

#include "tests/conformance/case.h"

struct TwoGpus {
  CUcontext context[2] = {};
  TwoGpus() {
    CU(cuInit(0));
    for (int i = 0; i < 2; ++i) CU(cuDevicePrimaryCtxRetain(&context[i], i));
    use(0);
  }
  ~TwoGpus() {
    for (int i = 0; i < 2; ++i) CU(cuDevicePrimaryCtxRelease(i));
  }
  void use(int gpu) const { CU(cuCtxSetCurrent(context[gpu])); }
  CUdeviceptr allocate(int gpu, size_t bytes, unsigned word) const {
    use(gpu);
    CUdeviceptr pointer = 0;
    CU(cuMemAlloc(&pointer, bytes));
    CU(cuMemsetD32(pointer, word, bytes / 4));
    CU(cuCtxSynchronize());
    return pointer;
  }
  bool reach() const {
    int able = 0;
    CU(cuDeviceCanAccessPeer(&able, 0, 1));
    return able != 0;
  }
  void enable_both() const {
    if (!reach()) SKIP("the two GPUs do not reach each other");
    use(1);
    CU(cuCtxEnablePeerAccess(context[0], 0));
    use(0);
    CU(cuCtxEnablePeerAccess(context[1], 0));
  }
};

inline unsigned word_at(CUdeviceptr pointer) {
  unsigned word = 0;
  CU(cuMemcpyDtoH(&word, pointer, sizeof(word)));
  return word;
}
inline CUstream stream_here() {
  CUstream made = nullptr;
  CU(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
  return made;
}
inline CUevent event_here(unsigned flags = 0) {
  CUevent made = nullptr;
  CU(cuEventCreate(&made, flags));
  return made;
}
