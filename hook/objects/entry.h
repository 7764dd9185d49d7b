// What every entry point asks first: is there a proxy, is there a context.
#pragma once

#include "hook/process/process.h"

namespace tube::hook {

// kHandle: a current context is not needed, but one that is there must be well.
enum class Needs : uint32_t { kNothing, kInit, kHandle, kContext };

// Connects, once per process; cuInit.
CUresult initialise();
// The check in front of every entry: 0, or the code to answer. Fast path: one load, one compare,
// one load.
CUresult guard(Needs needs);

// At the end of every entry point: with TUBE_LOG=debug each call that fails says so
// (TUBE_LOG=trace: NOT_READY as well).
void log_failed(const char* name, CUresult result);
inline CUresult answered(const char* name, CUresult result) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    log_failed(name, result);
  return result;
}

// Says the name once in the log, answers CUDA_ERROR_NOT_SUPPORTED.
CUresult unsupported(const char* name, const char* why);

}  // namespace tube::hook
