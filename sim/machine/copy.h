// What memcpy.cc needs of the copy engine besides work.h.
#pragma once

#include "sim/machine/work.h"

namespace tube::sim {

// Takes the bytes of a host source now, so that the program may reuse it when the call returns.
// Without the lock.
void stage_source(CopyWork& work);

// A copy as cuMemcpy3DAsync issues it (memcpy.cc). Without the lock.
CUresult copy_async(Context* context, const CUDA_MEMCPY3D& copy, CUstream stream);

}  // namespace tube::sim
