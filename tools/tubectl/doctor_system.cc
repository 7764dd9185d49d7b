// What Tube needs of the system: a private runtime folder, free address windows, memfd,
// descriptors; and the environment.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/mapping.h"
#include "base/runtime_dir.h"
#include "base/unique_fd.h"
#include "sharedmem/windows.h"
#include "tools/tubectl/doctor.h"
#include "tools/tubectl/format.h"

namespace tube::ctl {
namespace {

constexpr rlim_t kEnoughFiles =
    1024;  // a proxy holds about ten descriptors a function, and each exported allocation's

void check_runtime_dir(Findings& findings) {
  std::string path = runtime_dir_path();
  Result<std::string> folder = find_runtime_dir();
  const int reachable = folder.ok() ? access(path.c_str(), W_OK | X_OK) : 0;
  if (reachable != 0) {
    findings.push_back(
        {Severity::kProblem, "runtime folder",
         fmt::format("{}: nothing can be written there: {}", path, strerror(errno)),
         "a proxy can make no socket in it: make it writable (chmod 700, no read-only "
         "mount), or set TUBE_DIR to another folder"});
  } else if (folder.ok()) {
    findings.push_back({Severity::kFine, "runtime folder",
                        fmt::format("{}, owned by user {}, closed to others", path, getuid()), ""});
  } else if (folder.error().code == ENOENT && access(folder_of(path).c_str(), W_OK | X_OK) != 0) {
    findings.push_back(
        {Severity::kProblem, "runtime folder",
         fmt::format("{} cannot be made: {}: {}", path, folder_of(path), strerror(errno)),
         "set TUBE_DIR to a folder that this user may make"});
  } else if (folder.error().code == ENOENT) {
    findings.push_back({Severity::kFine, "runtime folder",
                        fmt::format("{} (made when the first proxy starts)", path), ""});
  } else {
    findings.push_back(
        {Severity::kProblem, "runtime folder", folder.error().message,
         "give it mode 0700 and this user as its owner, or set TUBE_DIR to another folder"});
  }
  size_t longest = data_socket_path(path, std::string(64, 'w')).size();
  if (data_socket_path(path, "default").size() >= sizeof(sockaddr_un::sun_path)) {
    findings.push_back(
        {Severity::kProblem, "socket path",
         fmt::format("{} is too long for a socket's address", data_socket_path(path, "default")),
         "set TUBE_DIR to a shorter folder"});
  } else if (longest >= sizeof(sockaddr_un::sun_path)) {
    findings.push_back({Severity::kNote, "socket path",
                        fmt::format("workflow names may have at most {} characters here",
                                    64 - (longest - sizeof(sockaddr_un::sun_path) + 1)),
                        "for longer names set TUBE_DIR to a shorter folder"});
  }
}

// Asks for each window the way a function process does, and gives it back.
void check_windows(Findings& findings) {
  uint32_t available = 0;
  std::string reason;
  for (uint32_t candidate = 0; candidate < windows::kCandidates; ++candidate) {
    Result<Mapping> window =
        Mapping::reserve_at(windows::device_base(candidate), windows::kWindowBytes);
    if (window.ok()) ++available;
    if (!window.ok() && reason.empty()) reason = window.error().message;
  }
  std::string detail = fmt::format("{} of {} address windows of {} are free", available,
                                   windows::kCandidates, human_bytes(windows::kWindowBytes));
  if (available == windows::kCandidates) {
    findings.push_back({Severity::kFine, "address windows", detail, ""});
  } else {
    findings.push_back({available == 0 ? Severity::kProblem : Severity::kNote, "address windows",
                        fmt::format("{} ({})", detail, reason),
                        "lift the limit on address space (ulimit -v unlimited), or take away what "
                        "maps memory there"});
  }
}

void check_memfd(Findings& findings) {
  UniqueFd fd(memfd_create("tube-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  bool works = fd.valid() && ftruncate(fd.get(), 4096) == 0 &&
               fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
  if (works) {
    findings.push_back({Severity::kFine, "shared memory", "memfd with seals works", ""});
  } else {
    findings.push_back({Severity::kProblem, "shared memory",
                        fmt::format("memfd_create with seals fails: {}", strerror(errno)),
                        "allow memfd_create and F_ADD_SEALS in the container's seccomp profile"});
  }
}

void check_limits(Findings& findings) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  bool enough = files.rlim_cur >= kEnoughFiles;
  findings.push_back(
      {enough ? Severity::kFine : Severity::kNote, "open files",
       fmt::format("limit {}", files.rlim_cur),
       enough ? "" : fmt::format("raise it before starting a proxy: ulimit -n {}", kEnoughFiles)});
}

void check_environment(Findings& findings) {
  if (const char* visible = getenv("CUDA_VISIBLE_DEVICES")) {
    findings.push_back({Severity::kNote, "environment",
                        fmt::format("CUDA_VISIBLE_DEVICES={} is set", visible),
                        "a proxy started from here sees only these GPUs"});
  }
  if (const char* preload = getenv("LD_PRELOAD"); preload != nullptr && *preload != '\0') {
    findings.push_back({Severity::kNote, "environment",
                        fmt::format("LD_PRELOAD={} is set", preload),
                        "tubectl run puts Tube's hook before it; another library that replaces "
                        "CUDA calls will not see them"});
  }
}

}  // namespace

void check_system(Findings& findings) {
  check_runtime_dir(findings);
  check_windows(findings);
  check_memfd(findings);
  check_limits(findings);
  check_environment(findings);
}

}  // namespace tube::ctl
