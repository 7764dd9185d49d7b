// cuda.h with every ABI version visible under its own exported name.
//
// cuda.h renames most functions to their newest version by macro (cuMemAlloc becomes cuMemAlloc_v2)
// and hides the old ones. Code that implements or forwards the driver API must see all of them,
// un-renamed. Include this file, never <cuda.h> itself, in protocol, hook, proxy and sim.
#pragma once

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <cudaProfiler.h>
