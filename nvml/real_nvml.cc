#include "nvml/real_nvml.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "base/driver_file.h"
#include "base/env.h"
#include "base/log.h"
#include "base/tube_note.h"

TUBE_IDENTITY_NOTE();

namespace tube::nvml {
namespace {

constexpr char kFile[] = "libnvidia-ml.so.1";

std::vector<std::string> candidates() {
  const char* named = env_text(Env::kRealNvml);
  if (named != nullptr) return search_library(kFile, named).found;
  std::vector<std::string> paths = beside_driver(kFile);
  for (std::string& path : search_library(kFile, nullptr).found) paths.push_back(std::move(path));
  return paths;
}

void* load() {
  int flags = RTLD_NOW | RTLD_LOCAL;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  flags |= RTLD_DEEPBIND;  // its own calls must find itself, not us
#endif
  for (const std::string& path : candidates()) {
    if (void* library = dlopen(path.c_str(), flags)) return library;
    const char* why = dlerror();
    log_info("%s", why != nullptr ? why : path.c_str());
  }
  return nullptr;
}

void* library() {
  static void* const loaded = load();
  return loaded;
}

}  // namespace

bool has_real() { return library() != nullptr; }

nvmlReturn_t missing() {
  return has_real() ? NVML_ERROR_FUNCTION_NOT_FOUND : NVML_ERROR_LIBRARY_NOT_FOUND;
}

void* real_function(const char* name) {
  return library() == nullptr ? nullptr : dlsym(library(), name);
}

}  // namespace tube::nvml

// The only call that returns no code: what a program prints when there is no library.
extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvmlReturn_t code) {
  if (auto* real = tube::nvml::real<const char*(nvmlReturn_t)>("nvmlErrorString"))
    return real(code);
  return code == NVML_ERROR_LIBRARY_NOT_FOUND ? "NVML Shared Library Not Found" : "Unknown Error";
}
