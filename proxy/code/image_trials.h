// A compile of a client's PTX that crashes or hangs costs that client alone: a child process does
// it first.
//
// The driver compiles PTX inside the process that loads it, and a compiler that is fed from outside
// may crash or never end. With trials on, a child of the proxy, a process of its own, makes the
// very same call of the very same driver before the proxy does. When the child comes back, whatever
// the driver said, the proxy goes on: so results, messages and errors are the driver's own, always.
// When it dies or passes its limits, the client gets CUDA_ERROR_INVALID_PTX and the proxy never
// sees the compiler run. What the child compiled, the proxy finds in the driver's own cache on disk
// (~/.nv/ComputeCache: by content, options and version, and bounded), and does not compile again.
// Verdicts are remembered here while the image is (image_store.h), so each image is tried once.
//
// Limits of the child: CPU and wall-clock seconds, 16 GiB of private memory, first to go when
// memory runs out; it dies with the proxy. It needs a context of its own for the time, where there
// is no room for one the proxy compiles itself, as without trials, and says so once. The session's
// thread waits and nobody else does. Any thread, but use_image_trials() before all others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/cuda_api.h"
#include "protocol/wire.gen.h"
#include "proxy/code/image_store.h"

namespace tube::proxy {

struct TrialOptions {
  std::string driver;          // the library that the proxy loaded
  bool takes_no_code = false;  // the simulated GPU compiles PTX whatever machine code is beside it
  uint32_t seconds = 60;       // of CPU time; twice that may pass
};
void use_image_trials(TrialOptions options);

// What the driver shall be asked: to load the image, or to link what is in it.
struct Trial {
  std::shared_ptr<const Image> image;
  int ordinal = 0;     // of the GPU
  int capability = 0;  // times ten
  std::span<const uint32_t> jit_options;
  std::span<const uint64_t> jit_values;
  bool links = false;
  std::span<const wire::LinkInput> inputs;
  std::span<const std::byte> names;
};
// CUDA_SUCCESS: the driver may be asked, also when nothing has to be tried. `who` completes log
// lines; `gone`: nobody waits any more.
CUresult try_image(const Trial& trial, const std::string& who, const std::function<bool()>& gone);

// The child: what is in the file, with that driver. Its exit status.
int run_trial(int fd, const std::string& driver);

}  // namespace tube::proxy
