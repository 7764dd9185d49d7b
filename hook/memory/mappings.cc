#include "hook/memory/mappings.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tube::hook {
namespace {

// Of this thread: the first one's, which /proc/self names, are empty when it has ended before
// others.
bool read_maps(std::string* text) {
  UniqueFd fd(open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return false;
  char buffer[16384];
  for (;;) {
    const ssize_t n = read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) return true;
    text->append(buffer, static_cast<size_t>(n));
  }
}

// "START-END PERMS OFFSET MAJOR:MINOR INODE      PATH"
bool parse(const char* line, MappedArea* a) {
  char permissions[8] = {};
  unsigned major_number = 0, minor_number = 0;
  int at = 0;
  if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64 " %n",
                  &a->whole_begin, &a->whole_end, permissions, &a->offset, &major_number,
                  &minor_number, &a->inode, &at) < 7) {
    return false;
  }
  a->protection = (permissions[0] == 'r' ? PROT_READ : 0) |
                  (permissions[1] == 'w' ? PROT_WRITE : 0) |
                  (permissions[2] == 'x' ? PROT_EXEC : 0);
  a->shared = permissions[3] == 's';
  a->device = makedev(major_number, minor_number);
  a->path = line + at;
  return true;
}

// Some file systems show another device number in the list than stat() does: the path then decides.
bool is_file(int fd, const MappedArea& area, const char* link) {
  struct stat s;
  if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || s.st_ino != area.inode) return false;
  if (s.st_dev == area.device) return true;
  char path[4096];
  const ssize_t n = readlink(link, path, sizeof path - 1);
  return n > 0 && area.path == std::string(path, static_cast<size_t>(n));
}

bool allows(int fd, bool writable) {
  const int mode = fcntl(fd, F_GETFL) & O_ACCMODE;
  return mode == O_RDWR || (!writable && mode == O_RDONLY);
}

UniqueFd among_open_files(const MappedArea& area, bool writable) {
  DIR* directory = opendir("/proc/thread-self/fd");
  if (directory == nullptr) return UniqueFd();
  UniqueFd found;
  while (const dirent* entry = readdir(directory)) {
    char* end = nullptr;
    const long fd = std::strtol(entry->d_name, &end, 10);
    if (end == entry->d_name || fd == dirfd(directory)) continue;
    char link[64];
    std::snprintf(link, sizeof link, "/proc/thread-self/fd/%ld", fd);
    if (!is_file(static_cast<int>(fd), area, link) || !allows(static_cast<int>(fd), writable))
      continue;
    found.reset(fcntl(static_cast<int>(fd), F_DUPFD_CLOEXEC, 40));
    if (found.valid()) break;
  }
  closedir(directory);
  return found;
}

UniqueFd by_path(const char* path, const MappedArea& area, bool writable) {
  UniqueFd fd(open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK));
  if (fd.valid() && !is_file(fd.get(), area, path)) fd.reset();
  return fd;
}

}  // namespace

bool mapped_areas(uint64_t begin, uint64_t end, std::vector<MappedArea>* areas) {
  std::string text;
  if (!read_maps(&text)) return false;
  for (size_t at = 0; at < text.size();) {
    size_t line_end = text.find('\n', at);
    if (line_end == std::string::npos) line_end = text.size();
    text[line_end < text.size() ? line_end : line_end - 1] = 0;
    const char* line = text.c_str() + at;
    at = line_end + 1;
    // Most lines are elsewhere: look at the addresses before the rest.
    char* dash = nullptr;
    const uint64_t from = std::strtoull(line, &dash, 16);
    if (*dash != '-' || from >= end || std::strtoull(dash + 1, nullptr, 16) <= begin) continue;
    MappedArea a;
    if (!parse(line, &a)) return false;
    a.begin = a.whole_begin < begin ? begin : a.whole_begin;
    a.end = a.whole_end > end ? end : a.whole_end;
    a.offset += a.begin - a.whole_begin;
    areas->push_back(a);
  }
  return true;
}

UniqueFd file_of(const MappedArea& area, bool writable) {
  if (UniqueFd open_one = among_open_files(area, writable); open_one.valid()) return open_one;
  constexpr char kDeleted[] = " (deleted)";
  const bool deleted =
      area.path.size() > sizeof kDeleted &&
      area.path.compare(area.path.size() - (sizeof kDeleted - 1), std::string::npos, kDeleted) == 0;
  if (!area.path.empty() && area.path[0] == '/' && !deleted) {
    if (UniqueFd named = by_path(area.path.c_str(), area, writable); named.valid()) return named;
  }
  char link[80];
  std::snprintf(link, sizeof link, "/proc/self/map_files/%" PRIx64 "-%" PRIx64, area.whole_begin,
                area.whole_end);
  return by_path(link, area, writable);
}

}  // namespace tube::hook
