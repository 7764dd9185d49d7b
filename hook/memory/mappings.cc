#include "hook/memory/mappings.h"

#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
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
UniqueFd open_maps() { return UniqueFd(open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC)); }

// struct procmap_query and PROCMAP_QUERY of linux/fs.h, which older headers lack.
struct MapQuery {
  uint64_t size = sizeof(MapQuery);
  uint64_t query_flags = 0;
  uint64_t query_address = 0;
  uint64_t begin = 0, end = 0;
  uint64_t flags = 0;
  uint64_t page_bytes = 0;
  uint64_t offset = 0;
  uint64_t inode = 0;
  uint32_t device_major = 0, device_minor = 0;
  uint32_t name_bytes = 0;
  uint32_t build_id_bytes = 0;
  uint64_t name_address = 0;
  uint64_t build_id_address = 0;
};
static_assert(sizeof(MapQuery) == 104);
constexpr unsigned long kMapQuery = _IOWR('f', 17, MapQuery);
constexpr uint64_t kMapReadable = 1, kMapWritable = 2, kMapExecutable = 4, kMapShared = 8;
constexpr uint64_t kCoveringOrNext = 0x10;

// What one area has of [at, end), where `whole_begin`, `whole_end` and the rest are known.
void cut_to(uint64_t at, uint64_t end, MappedArea* a) {
  a->begin = a->whole_begin < at ? at : a->whole_begin;
  a->end = a->whole_end > end ? end : a->whole_end;
  a->offset += a->begin - a->whole_begin;
}

// False: the kernel has no such question (before Linux 6.11), or a name is too long for it.
bool asked_areas(int maps, uint64_t begin, uint64_t end, std::vector<MappedArea>* areas) {
  char name[4096];
  for (uint64_t at = begin; at < end;) {
    MapQuery q;
    q.query_flags = kCoveringOrNext;
    q.query_address = at;
    q.name_bytes = sizeof name;
    q.name_address = reinterpret_cast<uint64_t>(name);
    if (ioctl(maps, kMapQuery, &q) != 0) {
      if (errno == EINTR) continue;
      return errno == ENOENT;
    }
    if (q.begin >= end) return true;
    MappedArea a;
    a.whole_begin = q.begin;
    a.whole_end = q.end;
    a.protection = ((q.flags & kMapReadable) != 0 ? PROT_READ : 0) |
                   ((q.flags & kMapWritable) != 0 ? PROT_WRITE : 0) |
                   ((q.flags & kMapExecutable) != 0 ? PROT_EXEC : 0);
    a.shared = (q.flags & kMapShared) != 0;
    a.offset = q.offset;
    a.device = makedev(q.device_major, q.device_minor);
    a.inode = q.inode;
    if (q.name_bytes != 0) a.path = name;
    cut_to(at, end, &a);
    at = a.end;
    areas->push_back(std::move(a));
  }
  return true;
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

}  // namespace

bool mapped_areas(uint64_t begin, uint64_t end, std::vector<MappedArea>* areas) {
  const UniqueFd maps = open_maps();
  if (!maps.valid()) return false;
  if (asked_areas(maps.get(), begin, end, areas)) return true;
  areas->clear();
  return listed_areas(begin, end, areas);
}

bool listed_areas(uint64_t begin, uint64_t end, std::vector<MappedArea>* areas) {
  const UniqueFd maps = open_maps();
  if (!maps.valid()) return false;
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t n = read(maps.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0;
    text.append(buffer, static_cast<size_t>(n));
    size_t at = 0;
    for (size_t stop; (stop = text.find('\n', at)) != std::string::npos; at = stop + 1) {
      text[stop] = 0;
      const char* line = text.c_str() + at;
      // Most lines are elsewhere: look at the addresses before the rest.
      char* dash = nullptr;
      if (std::strtoull(line, &dash, 16) >= end) return true;
      if (*dash != '-' || std::strtoull(dash + 1, nullptr, 16) <= begin) continue;
      MappedArea a;
      if (!parse(line, &a)) return false;
      cut_to(begin, end, &a);
      areas->push_back(std::move(a));
    }
    text.erase(0, at);
  }
}

}  // namespace tube::hook
