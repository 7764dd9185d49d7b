// Whether a stream is being captured into a graph.
#pragma once

#include "base/cuda_api.h"

namespace tube::proxy {

struct Driver;

// Asks the driver; what it cannot answer counts as capturing. Any thread; never waits.
bool is_capturing(const Driver& driver, CUstream stream);

}  // namespace tube::proxy
