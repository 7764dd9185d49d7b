#include "proxy/backend.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"

namespace tube::proxy {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFolders[] = {
    "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/aarch64-linux-gnu", "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/local/cuda/compat",
};

fs::path own_folder() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// Tube's own libraries carry one of these symbols; loading them here would make a proxy of a proxy.
bool is_ours(const fs::path& path) {
  const std::string text = fs::weakly_canonical(path).string();
  return text.find("/hook/") != std::string::npos || text.find("/sim/") != std::string::npos;
}

std::string find_real_driver() {
  if (const char* named = env_text(Env::kRealDriver)) return named;
  std::vector<fs::path> folders;
  if (const char* list = std::getenv("LD_LIBRARY_PATH")) {
    std::string_view rest = list;
    while (!rest.empty()) {
      const size_t colon = rest.find(':');
      if (std::string_view folder = rest.substr(0, colon); !folder.empty()) folders.emplace_back(folder);
      rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
    }
  }
  folders.insert(folders.end(), std::begin(kFolders), std::end(kFolders));
  for (const fs::path& folder : folders) {
    const fs::path candidate = folder / "libcuda.so.1";
    if (folder.string().find("/stubs") == std::string::npos && is_file(candidate) && !is_ours(candidate)) return candidate.string();
  }
  return {};
}

std::string find_sim(const BackendOptions& options) {
  if (!options.sim_path.empty()) return options.sim_path;
  if (const char* named = env_text(Env::kSimLib)) return named;
  const fs::path own = own_folder();
  for (const fs::path& candidate : {own / "../sim/lib/libcuda.so.1",       // build folder: proxy/tubed
                                    own / "../lib/tube/sim/libcuda.so.1"}) {  // installed: bin/tubed
    if (is_file(candidate)) return fs::weakly_canonical(candidate).string();
  }
  return {};
}

bool shows_gpu(const Driver& driver) {
  int count = 0;
  return driver.cuInit(0) == CUDA_SUCCESS && driver.cuDeviceGetCount(&count) == CUDA_SUCCESS && count > 0;
}

Result<Backend> load_driver(const BackendOptions& options, Driver& driver) {
  const std::string path = options.driver_path.empty() ? find_real_driver() : options.driver_path;
  if (path.empty()) {
    return errorf("no NVIDIA driver: libcuda.so.1 was not found in LD_LIBRARY_PATH or the usual folders; "
                  "give its path with --driver or TUBE_REAL_DRIVER, or use --backend sim");
  }
  std::string why;
  if (!driver.load(path.c_str(), &why)) return errorf("the driver %s cannot be loaded: %s", path.c_str(), why.c_str());
  return Backend{false, path};
}

Result<Backend> load_sim(const BackendOptions& options, Driver& driver) {
  const std::string path = find_sim(options);
  if (path.empty()) return errorf("the simulated GPU's libcuda.so.1 is not beside this program; give its path with --sim or TUBE_SIM_LIB");
  std::string why;
  if (!driver.load(path.c_str(), &why)) return errorf("the simulated GPU %s cannot be loaded: %s", path.c_str(), why.c_str());
  return Backend{true, path};
}

}  // namespace

Result<Backend> load_backend(const BackendOptions& options, Driver& driver) {
  if (options.choice == BackendChoice::kSim) return load_sim(options, driver);
  Result<Backend> real = load_driver(options, driver);
  if (options.choice == BackendChoice::kDriver) return real;
  if (real.ok() && shows_gpu(driver)) return real;
  log_info("%s; using the simulated GPU", real.ok() ? "the NVIDIA driver shows no GPU" : real.error().message.c_str());
  return load_sim(options, driver);
}

}  // namespace tube::proxy
