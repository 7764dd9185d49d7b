// NVIDIA's libnvidia-ml.so.1 in this process, loaded at the first call that needs it.
//
// TUBE_REAL_NVML names it; else it is looked for beside the real driver, then as the driver is
// (base/driver_file.h). A machine that has none answers NVML_ERROR_LIBRARY_NOT_FOUND everywhere.
// Any thread; the first caller loads, others wait for it.
#pragma once

#include "nvml/nvml_abi.h"

namespace tube::nvml {

bool has_real();
// The answer of a call whose function is nullptr.
nvmlReturn_t missing();
// nullptr: there is no such library, or it lacks this name.
void* real_function(const char* name);

template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(real_function(name));
}

}  // namespace tube::nvml
