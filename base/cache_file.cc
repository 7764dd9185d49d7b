#include "base/cache_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/env.h"
#include "base/unique_fd.h"

namespace tube {
namespace {

// secure_getenv: a set-uid program must not be sent to somebody else's folder.
std::string folder_in(const char* variable, const char* below) {
  const char* value = ::secure_getenv(variable);
  return value != nullptr && value[0] == '/' ? std::string(value) + below : std::string();
}

void make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    (void)::mkdir(path.substr(0, at).c_str(), 0700);
  (void)::mkdir(path.c_str(), 0700);
}

bool write_all(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t put = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    done += static_cast<size_t>(put);
  }
  return true;
}

}  // namespace

std::string cache_dir() {
  if (const char* named = env_text(Env::kCache)) return named[0] == '/' ? named : "";
  std::string path = folder_in("XDG_CACHE_HOME", "/tube");
  return path.empty() ? folder_in("HOME", "/.cache/tube") : path;
}

std::string read_cache(const std::string& name, size_t most_bytes) {
  const std::string folder = cache_dir();
  if (folder.empty()) return {};
  const UniqueFd fd(
      ::open((folder + "/" + name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat file;
  if (!fd.valid() || ::fstat(fd.get(), &file) != 0 || !S_ISREG(file.st_mode) ||
      file.st_uid != ::geteuid() || static_cast<size_t>(file.st_size) > most_bytes)
    return {};
  std::string bytes(static_cast<size_t>(file.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(fd.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

Status write_cache(const std::string& name, const std::string& bytes) {
  const std::string folder = cache_dir();
  if (folder.empty()) return {};
  make_folders(folder);
  const std::string path = folder + "/" + name;
  std::string fresh = path + ".XXXXXX";
  const UniqueFd fd(::mkostemp(fresh.data(), O_CLOEXEC));
  if (!fd.valid()) return errno_error(errno, fresh);
  if (write_all(fd.get(), bytes) && ::rename(fresh.c_str(), path.c_str()) == 0) return {};
  const int error = errno;
  (void)::unlink(fresh.c_str());
  return errno_error(error, path);
}

}  // namespace tube
