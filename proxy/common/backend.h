// Finds the driver that the proxy works with: the machine's libcuda.so.1, or the simulated GPU,
// which is one too.
//
// auto takes the real driver when there is one that starts and shows a GPU, and the simulated GPU
// on a machine without GPUs. On a machine that has some (/dev/nvidia...), which the driver does not
// show, it fails: nobody wants a simulation there without having asked for it.
// The real one is looked for where the hook looks: TUBE_REAL_DRIVER, the folders of
// LD_LIBRARY_PATH, the usual folders; never Tube's own library and never the toolkit's stub. Runs
// once, before threads.
#pragma once

#include <string>

#include "base/result.h"

namespace tube::proxy {

struct Driver;

enum class BackendChoice { kAuto, kDriver, kSim };

struct BackendOptions {
  BackendChoice choice = BackendChoice::kAuto;
  std::string driver_path;             // --driver, empty: look for it
  std::string sim_path;                // --sim, empty: beside this program
  std::string device_folder = "/dev";  // tests have their own
};

struct Backend {
  bool is_sim = false;
  std::string path;
};

// Fills `driver`. The error names what was looked for, where, and what to do.
Result<Backend> load_backend(const BackendOptions& options, Driver& driver);

}  // namespace tube::proxy
