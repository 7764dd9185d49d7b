#include "proxy/common/backend.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>

#include "base/driver_file.h"
#include "base/env.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"

namespace tube::proxy {

namespace {

namespace fs = std::filesystem;

fs::path own_folder() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::string find_sim(const BackendOptions& options) {
  if (!options.sim_path.empty()) return options.sim_path;
  if (const char* named = env_text(Env::kSimLib)) return named;
  const fs::path own = own_folder();
  for (const fs::path& candidate :
       {own / "../sim/lib/libcuda.so.1",          // build folder: proxy/tubed
        own / "../lib/tube/sim/libcuda.so.1"}) {  // installed: bin/tubed
    if (is_file(candidate)) return fs::weakly_canonical(candidate).string();
  }
  return {};
}

bool shows_gpu(const Driver& driver) {
  int count = 0;
  return driver.cuInit(0) == CUDA_SUCCESS && driver.cuDeviceGetCount(&count) == CUDA_SUCCESS &&
         count > 0;
}

// The name of a GPU's device node, or of any other one of the driver's; empty when there is none.
std::string device_node(const std::string& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with("nvidia")) return entry.path().string();
  }
  return {};
}

Result<Backend> load_driver(const BackendOptions& options, Driver& driver) {
  std::string path = options.driver_path;
  if (path.empty()) {
    if (const DriverSearch search = search_driver(); !search.found.empty())
      path = search.found.front();
  }
  if (path.empty()) {
    return errorf(
        "no NVIDIA driver: libcuda.so.1 was not found in LD_LIBRARY_PATH or the usual folders; "
        "give its path with --driver or TUBE_REAL_DRIVER, or use --backend sim");
  }
  std::string why;
  if (!driver.load(path.c_str(), &why))
    return errorf("the driver %s cannot be loaded: %s", path.c_str(), why.c_str());
  return Backend{false, path};
}

Result<Backend> load_sim(const BackendOptions& options, Driver& driver) {
  const std::string path = find_sim(options);
  if (path.empty())
    return errorf(
        "the simulated GPU's libcuda.so.1 is not beside this program; give its path with --sim or "
        "TUBE_SIM_LIB");
  std::string why;
  if (!driver.load(path.c_str(), &why))
    return errorf("the simulated GPU %s cannot be loaded: %s", path.c_str(), why.c_str());
  return Backend{true, path};
}

}  // namespace

Result<Backend> load_backend(const BackendOptions& options, Driver& driver) {
  if (options.choice == BackendChoice::kSim) return load_sim(options, driver);
  Result<Backend> real = load_driver(options, driver);
  if (options.choice == BackendChoice::kDriver) return real;
  if (real.ok() && shows_gpu(driver)) return real;
  const std::string why = real.ok() ? "the NVIDIA driver shows no GPU" : real.error().message;
  if (const std::string node = device_node(options.device_folder); !node.empty())
    return errorf(
        "this machine has GPUs (%s), but %s; tubectl doctor says more, --backend sim takes the "
        "simulated GPU",
        node.c_str(), why.c_str());
  log_warn("%s, and this machine has no GPU: using the simulated one", why.c_str());
  return load_sim(options, driver);
}

}  // namespace tube::proxy
