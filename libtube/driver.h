// The libcuda.so.1 of this process, whether it is Tube's, and the driver calls that the library
// makes of its own: copies. Found once.
#pragma once

#include "base/cuda_api.h"
#include "protocol/store_table.h"

namespace tube::library {

struct Cuda {
  CUresult (*memcpy_async)(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream) = nullptr;
  CUresult (*stream_synchronize)(CUstream) = nullptr;
  CUresult (*capturing)(CUstream, CUstreamCaptureStatus*) = nullptr;
  CUresult (*current)(CUcontext*) = nullptr;
  CUresult (*pointer_attribute)(void*, CUpointer_attribute, CUdeviceptr) = nullptr;
};

struct Tube : Cuda {
  const StoreTable* table = nullptr;
};

// nullptr: there is no proxy for this program.
const Tube* tube_in_process();
// Anybody's libcuda.so.1. nullptr: the program has none, so far.
const Cuda* cuda_in_process();

}  // namespace tube::library
