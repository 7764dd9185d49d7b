#include "base/cache_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/env.h"
#include "base/hash.h"
#include "base/unique_fd.h"

namespace tube {

std::string cache_dir_path() {
  if (const char* dir = env_text(Env::kCache)) return dir[0] == '/' ? dir : "";
  const char* xdg = ::secure_getenv("XDG_CACHE_HOME");
  if (xdg != nullptr && xdg[0] == '/') return std::string(xdg) + "/tube";
  const char* home = ::secure_getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/tube" : "";
}

Result<std::string> read_kept_file(const std::string& path, size_t most_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return errno_error(errno, path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return errno_error(errno, path);
  if (!S_ISREG(info.st_mode)) return Error{EINVAL, path + " is no file"};
  if (info.st_uid != ::geteuid() || (info.st_mode & 022) != 0)
    return Error{EPERM, path + " can be written by other users"};
  if (static_cast<uint64_t>(info.st_size) > most_bytes)
    return Error{EFBIG, path + " is larger than Tube writes it"};
  std::string content(static_cast<size_t>(info.st_size), '\0');
  for (size_t at = 0; at < content.size();) {
    const ssize_t got = ::read(fd.get(), content.data() + at, content.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, path);
    if (got == 0) content.resize(at);
    at += static_cast<size_t>(got);
  }
  return content;
}

namespace {

Status make_folders(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    if (::mkdir(path.substr(0, slash).c_str(), 0700) != 0 && errno != EEXIST)
      return errno_error(errno, path.substr(0, slash));
  }
  return {};
}

Status write_all(int fd, const std::string& content, const std::string& path) {
  for (size_t at = 0; at < content.size();) {
    const ssize_t wrote = ::write(fd, content.data() + at, content.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno_error(errno, path);
    at += static_cast<size_t>(wrote);
  }
  return {};
}

}  // namespace

Status write_kept_file(const std::string& path, const std::string& content) {
  if (Status status = make_folders(path); !status.ok()) return status;
  static std::atomic<uint32_t> count{0};  // of this process's threads none takes another one's
  const std::string fresh =
      path + "." + std::to_string(::getpid()) + "." + std::to_string(count.fetch_add(1));
  ::unlink(fresh.c_str());
  const UniqueFd fd(
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return errno_error(errno, fresh);
  Status status = write_all(fd.get(), content, fresh);
  if (status.ok() && ::rename(fresh.c_str(), path.c_str()) != 0) status = errno_error(errno, path);
  if (!status.ok()) ::unlink(fresh.c_str());
  return status;
}

std::string kept_file_name(const std::string& name) {
  std::string plain;
  for (const char c : name.substr(0, 64))
    plain += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  char hash[24];
  std::snprintf(hash, sizeof hash, "-%016lx", hash64(name.data(), name.size()));
  return plain + hash;
}

namespace {
std::string path_below(const char* folder, const std::string& function) {
  const std::string cache = cache_dir_path();
  return cache.empty() ? "" : cache + folder + kept_file_name(function) + ".json";
}
}  // namespace

std::string kernel_record_path(const std::string& workflow) {
  const std::string cache = cache_dir_path();
  return cache.empty() ? "" : cache + "/kernels/" + workflow;
}

std::string certificate_path(const std::string& function) {
  return path_below("/certificates/", function);
}

std::string pool_profile_path(const std::string& function) {
  return path_below("/pool/", function);
}

}  // namespace tube
