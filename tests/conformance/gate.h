// A stream that waits until the program says so, for cases about order: no sleeps, no guesses.
#pragma once

#include "tests/conformance/case.h"

// stop() lets a stream wait for a word of pinned memory, open() writes it. Opened at the end at the
// latest.
struct Gate {
  volatile uint32_t* word = nullptr;
  CUdeviceptr pointer = 0;
  Gate() {
    void* memory = nullptr;
    CU(cuMemHostAlloc(&memory, 64, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    word = static_cast<volatile uint32_t*>(memory);
    *word = 0;
    CU(cuMemHostGetDevicePointer(&pointer, memory, 0));
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void stop(CUstream stream) {
    conformance::a_stream_waits();
    CU(cuStreamWaitValue32(stream, pointer, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void open() { __atomic_store_n(word, 1, __ATOMIC_RELEASE); }
};
