#include "hook/code/image_file.h"

#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/scope_guard.h"
#include "hook/process/lock.h"
#include "hook/process/start_trace.h"
#include "sharedmem/segment.h"

namespace tube::hook {
namespace {

// A mapping of a file that this process cannot write.
struct Area {
  uint64_t begin = 0, end = 0;
  uint64_t offset = 0;
  uint64_t inode = 0;
  std::string path;
  bool covers(uint64_t address, uint64_t size_bytes) const {
    return address >= begin && address < end && size_bytes <= end - address;
  }
};

std::vector<Area> read_areas() {
  std::vector<Area> areas;
  FILE* maps = std::fopen("/proc/thread-self/maps", "re");
  if (maps == nullptr) return areas;
  ScopeGuard close([maps] { std::fclose(maps); });
  tally(Tally::kMapReads);
  char line[PATH_MAX + 128];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    Area area;
    unsigned major_number, minor_number;
    char permissions[5];
    int path_at = 0;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n",
                    &area.begin, &area.end, permissions, &area.offset, &major_number, &minor_number,
                    &area.inode, &path_at) < 7) {
      continue;
    }
    if (permissions[1] == 'w' || area.inode == 0 || line[path_at] != '/') continue;
    line[std::strcspn(line, "\n")] = 0;
    area.path = line + path_at;
    areas.push_back(std::move(area));
  }
  return areas;
}

const Area* find(const std::vector<Area>& areas, uint64_t address, uint64_t size_bytes) {
  for (const Area& area : areas) {
    if (area.covers(address, size_bytes)) return &area;
  }
  return nullptr;
}

// The loader's list: whether an address belongs to a loaded library, and how many were unloaded so
// far.
struct Loaded {
  uint64_t address;
  bool inside = false;
  unsigned long long unloads = 0;
};

int look(dl_phdr_info* info, size_t, void* context) {
  auto& loaded = *static_cast<Loaded*>(context);
  loaded.unloads = info->dlpi_subs;
  for (int i = 0; i < info->dlpi_phnum && !loaded.inside; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    loaded.inside =
        part.p_type == PT_LOAD && loaded.address - (info->dlpi_addr + part.p_vaddr) < part.p_memsz;
  }
  return loaded.inside ? 1 : 0;
}

// What was mapped when it was last read. True of a library's addresses until some library is
// unloaded: they are not mapped anew before.
struct Known {
  Lock lock;  // rank 2
  unsigned long long unloads = 0;
  std::vector<Area> areas;
};
Known& known() {
  static Known* k = new Known;
  return *k;
}

bool find_area(uint64_t address, uint64_t size_bytes, Area* out) {
  Loaded loaded{address};
  dl_iterate_phdr(look, &loaded);
  Known& k = known();
  Locked locked(k.lock);
  const Area* found =
      loaded.inside && k.unloads == loaded.unloads ? find(k.areas, address, size_bytes) : nullptr;
  if (found == nullptr) {
    k.areas = read_areas();
    k.unloads = loaded.unloads;
    found = find(k.areas, address, size_bytes);
  }
  if (found != nullptr) *out = *found;
  return found != nullptr;
}

// The file behind [data, data + size), if it is one mapping that this process cannot write and
// whose name still leads to the mapped file.
bool mapped_file(const std::byte* data, uint64_t size_bytes, FileRange* out) {
  const auto address = reinterpret_cast<uint64_t>(data);
  Area area;
  if (!find_area(address, size_bytes, &area)) return false;
  UniqueFd fd(open(area.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat s;
  if (!fd.valid() || fstat(fd.get(), &s) != 0 || s.st_ino != area.inode || !S_ISREG(s.st_mode))
    return false;
  out->fd = std::move(fd);
  out->offset = area.offset + (address - area.begin);
  return out->offset + size_bytes <= static_cast<uint64_t>(s.st_size);
}

}  // namespace

Result<FileRange> as_file(const std::byte* data, uint64_t size_bytes) {
  FileRange range;
  if (mapped_file(data, size_bytes, &range)) return range;
  tally(Tally::kImageBytes, size_bytes);
  Result<UniqueFd> file = shared::create_constant_file("tube-image", data, size_bytes);
  if (!file) return file.error();
  range.fd = file.take();
  range.offset = 0;
  return range;
}

}  // namespace tube::hook
