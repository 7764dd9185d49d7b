// The driver's error log, as far as callbacks hear of it (cuLogsRegisterCallback): which kernel
// ended a context, and at which address. Any thread.
#pragma once

#include <string>

#include "base/cuda_api.h"

namespace tube::sim {

// The handle by which it ends; a callback may not make CUDA calls.
void* add_log_callback(CUlogsCallback call, void* user);
// False: there is no such callback.
bool remove_log_callback(void* handle);
void tell_log(std::string line);

}  // namespace tube::sim
