#include "hook/image_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstring>

#include "base/scope_guard.h"
#include "sharedmem/segment.h"

namespace tube::hook {
namespace {

// The file behind [data, data + size), if it is one mapping that this process cannot write and whose name still leads to
// the mapped file.
bool mapped_file(const std::byte* data, uint64_t size_bytes, FileRange* out) {
  FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  ScopeGuard close([maps] { std::fclose(maps); });
  const auto address = reinterpret_cast<uint64_t>(data);
  char line[PATH_MAX + 128];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    uint64_t begin, end, offset, inode;
    unsigned major_number, minor_number;
    char permissions[5];
    int path_at = 0;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &begin, &end, permissions, &offset,
                    &major_number, &minor_number, &inode, &path_at) < 7) {
      continue;
    }
    if (address < begin || address >= end) continue;
    if (address + size_bytes > end || permissions[1] == 'w' || inode == 0 || line[path_at] != '/') return false;
    line[std::strcspn(line, "\n")] = 0;
    UniqueFd fd(open(line + path_at, O_RDONLY | O_CLOEXEC));
    struct stat s;
    if (!fd.valid() || fstat(fd.get(), &s) != 0 || s.st_ino != inode || !S_ISREG(s.st_mode)) return false;
    out->fd = std::move(fd);
    out->offset = offset + (address - begin);
    return out->offset + size_bytes <= static_cast<uint64_t>(s.st_size);
  }
  return false;
}

}  // namespace

Result<FileRange> as_file(const std::byte* data, uint64_t size_bytes) {
  FileRange range;
  if (mapped_file(data, size_bytes, &range)) return range;
  Result<UniqueFd> file = shared::create_constant_file("tube-image", data, size_bytes);
  if (!file) return file.error();
  range.fd = file.take();
  range.offset = 0;
  return range;
}

}  // namespace tube::hook
