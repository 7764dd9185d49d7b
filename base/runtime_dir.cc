#include "base/runtime_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/env.h"

namespace tube {
namespace {

// The parent of the default folder may be missing (/run/tube needs only /run), so only the last
// part is made.
Status check(const std::string& path) {
  // The proxy, its functions and tubectl would each look below a folder of their own.
  if (path.empty() || path[0] != '/')
    return Error{EINVAL, "TUBE_DIR=" + path + " is no whole path: begin it with a /"};
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return errno_error(errno, "runtime folder " + path);
  if (!S_ISDIR(info.st_mode))
    return Error{ENOTDIR, "runtime folder " + path + " is not a folder; remove it or set TUBE_DIR"};
  if (info.st_uid != ::geteuid()) {
    return Error{EPERM, "runtime folder " + path + " belongs to user " +
                            std::to_string(info.st_uid) + ", not to this one (" +
                            std::to_string(::geteuid()) + "); set TUBE_DIR to another folder"};
  }
  if ((info.st_mode & 077) != 0) {
    return Error{EPERM,
                 "runtime folder " + path + " is open to other users; run: chmod 700 " + path};
  }
  return {};
}

}  // namespace

std::string runtime_dir_path() {
  if (const char* dir = env_text(Env::kDir)) return dir;
  // secure_getenv: a set-uid program must not be sent to somebody else's folder.
  const char* xdg = ::secure_getenv("XDG_RUNTIME_DIR");
  if (xdg != nullptr && xdg[0] == '/') return std::string(xdg) + "/tube";
  if (::geteuid() == 0) return "/run/tube";
  return "/tmp/tube-" + std::to_string(::geteuid());
}

Result<std::string> find_runtime_dir() {
  std::string path = runtime_dir_path();
  Status status = check(path);
  if (!status) return status.error();
  return path;
}

Result<std::string> make_runtime_dir() {
  std::string path = runtime_dir_path();
  if (path[0] == '/' && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return errno_error(
        errno, "cannot make the runtime folder " + path + " (set TUBE_DIR to another place)");
  }
  Status status = check(path);
  if (!status) return status.error();
  return path;
}

bool valid_workflow_name(std::string_view name) {
  if (name.empty() || name.size() > 64 || name == "." || name == "..") return false;
  for (const char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && !(c >= '0' && c <= '9') && c != '_' && c != '.' && c != '-') return false;
  }
  return true;
}

std::string data_socket_path(const std::string& runtime_dir, std::string_view workflow) {
  return runtime_dir + "/" + std::string(workflow) + ".sock";
}

std::string control_socket_path(const std::string& runtime_dir, std::string_view workflow) {
  return runtime_dir + "/" + std::string(workflow) + ".ctl";
}

std::string store_socket_path(const std::string& runtime_dir, std::string_view workflow) {
  return runtime_dir + "/" + std::string(workflow) + ".store";
}

std::string owner_file_path(const std::string& runtime_dir, std::string_view workflow) {
  return runtime_dir + "/" + std::string(workflow) + ".owner";
}

}  // namespace tube
