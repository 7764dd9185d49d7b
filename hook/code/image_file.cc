#include "hook/code/image_file.h"

#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstring>
#include <iterator>
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
  bool is_private = true;
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
    area.is_private = permissions[3] != 's';
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

// Whether every page of a private mapping is its file's, or is not there, and would be read from
// it. One that was written has left the file for good, whatever the mapping may now: a program that
// unpacks or patches its images in place makes them read-only again. No answer: false.
bool has_files_pages(uint64_t address, uint64_t size_bytes) {
  constexpr uint64_t kPresent = uint64_t{1} << 63, kSwapped = uint64_t{1} << 62;
  constexpr uint64_t kOfFile = uint64_t{1} << 61;
  const UniqueFd pages(open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC));
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t end = (address + size_bytes + page_bytes - 1) / page_bytes;
  uint64_t entries[1024];
  for (uint64_t page = address / page_bytes; page < end;) {
    const size_t count = std::min<uint64_t>(end - page, std::size(entries));
    const ssize_t got = pread(pages.get(), entries, count * sizeof(uint64_t),
                              static_cast<off_t>(page * sizeof(uint64_t)));
    if (got != static_cast<ssize_t>(count * sizeof(uint64_t))) return false;
    for (size_t i = 0; i < count; ++i) {
      const bool own = (entries[i] & kPresent) != 0 && (entries[i] & kOfFile) == 0;
      if (own || (entries[i] & kSwapped) != 0) return false;
    }
    page += count;
  }
  return true;
}

// The file behind [data, data + size), if it is one mapping that this process cannot write, and has
// not written, and whose name still leads to the mapped file.
bool mapped_file(const std::byte* data, uint64_t size_bytes, FileRange* out) {
  const auto address = reinterpret_cast<uint64_t>(data);
  Area area;
  if (!find_area(address, size_bytes, &area)) return false;
  if (area.is_private && !has_files_pages(address, size_bytes)) return false;
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
