// cuGetProcAddress: which exported symbol a (name, version, flags) stands for. The rows are
// generated from cudaTypedefs.h (proc_table.gen.cc); the rule is here.
//
//   - the newest version that is not newer than the asked one wins;
//   - flag 2 (per-thread default stream) and a per-thread form exists: only per-thread versions
//   count, so a version older
//     than all of them is "version not sufficient", never the legacy function; no such form at all:
//     the ordinary one;
//   - a version newer than the driver's and unknown flags are CUDA_ERROR_INVALID_VALUE.
//
// Compared with 1350 rows of another project's table and with the real driver (docs/facts.md). A
// binary search and a few compares; no lock, no allocation, any thread.
#pragma once

#include <cstdint>

#include "base/cuda_api.h"

namespace tube::hook {

struct ProcRow {
  const char* name;  // without version or per-thread suffix
  int version;       // the CUDA version in which this ABI appeared
  bool per_thread;
  void* pointer;
};

// Sorted by name, then default before per-thread, then version.
extern const ProcRow kProcRows[];
extern const uint32_t kProcRowCount;
extern const int kHeaderCudaVersion;  // of the toolkit that the tables were made from

// CUDA_SUCCESS with *out set; CUDA_ERROR_NOT_FOUND with *out = nullptr and *status (may be nullptr)
// saying why; CUDA_ERROR_INVALID_VALUE for arguments that make no sense, with *out untouched.
CUresult lookup(const char* name, int version, uint64_t flags, void** out,
                CUdriverProcAddressQueryResult* status);

}  // namespace tube::hook
