// The allocator behind cuMemAlloc. Guarded by State::mutex.
#include "sim/machine/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <map>

namespace tube::sim {
namespace {

constexpr uint64_t kChunk = 64ull << 20;
constexpr uint64_t kDirect = 32ull << 20;

struct Backing {
  int fd;
  uint64_t size;
};

using Pieces = std::map<uint64_t, uint64_t>;  // base -> size, never adjacent

struct Arena {
  Pieces plain;
  Pieces shareable;
  std::map<uint64_t, Backing>
      backings;  // mappings of memory files: another process may open them (ipc.cc)
};

Arena& arena() {
  static Arena* a = new Arena;
  return *a;
}

// Memory of cuMemAlloc has handles; variables, pools and arrays have none and cost no descriptor.
bool shareable(RangeKind kind) { return kind == RangeKind::kDevice; }
Pieces& pieces_for(RangeKind kind) { return shareable(kind) ? arena().shareable : arena().plain; }

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

uint64_t map_pages(uint64_t bytes, uint64_t align, int flags = 0) {
  uint64_t slack = align > 4096 ? align : 0;
  void* p = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (p == MAP_FAILED) return 0;
  uint64_t start = reinterpret_cast<uint64_t>(p),
           base = slack == 0 ? start : round_up(start, align);
  if (base > start) munmap(p, base - start);
  uint64_t end = start + bytes + slack;
  if (end > base + bytes) munmap(reinterpret_cast<void*>(base + bytes), end - base - bytes);
  return base;
}

int create_memory_file(uint64_t bytes) {
  int fd = memfd_create("tube-sim-heap", MFD_CLOEXEC);
  if (fd < 0 && errno == EMFILE && raise_fd_limit())
    fd = memfd_create("tube-sim-heap", MFD_CLOEXEC);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    close(fd);
    return -1;
  }
  // Out of the way of programs that use small numbers themselves.
  int high = fcntl(fd, F_DUPFD_CLOEXEC, 64);
  if (high < 0) return fd;
  close(fd);
  return high;
}

// Device memory: of a shareable kind pages of a memory file, so that it can be opened elsewhere.
// Without a file (no descriptors left) plain memory does.
uint64_t map_device_pages(uint64_t bytes, RangeKind kind, bool low = false) {
  uint64_t base = map_pages(bytes, kGranularity, low ? MAP_32BIT : 0);
  int fd = base == 0 || !shareable(kind) ? -1 : create_memory_file(bytes);
  if (fd < 0) return base;
  void* p = mmap(reinterpret_cast<void*>(base), bytes, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) {
    close(fd);
    return base;
  }
  arena().backings[base] = {fd, bytes};
  return base;
}

void unmap_device_pages(uint64_t base, uint64_t bytes) {
  munmap(reinterpret_cast<void*>(base), bytes);
  auto it = arena().backings.find(base);
  if (it == arena().backings.end()) return;
  close(it->second.fd);
  arena().backings.erase(it);
}

// Gives whole pages of a chunk back to the host; they read as zero afterwards.
void forget_pages(uint64_t first, uint64_t bytes) {
  void* p = reinterpret_cast<void*>(first);
  if (backing_of(first, nullptr, nullptr)) {
    if (madvise(p, bytes, MADV_REMOVE) != 0) __builtin_memset(p, 0, bytes);
  } else {
    madvise(p, bytes, MADV_DONTNEED);
  }
}

void give_back(Pieces& free, uint64_t base, uint64_t size) {
  auto it = free.emplace(base, size).first;
  auto next = std::next(it);
  if (next != free.end() && it->first + it->second == next->first) {
    it->second += next->second;
    free.erase(next);
  }
  if (it == free.begin()) return;
  auto previous = std::prev(it);
  if (previous->first + previous->second != it->first) return;
  previous->second += it->second;
  free.erase(it);
}

// Best fit among the free pieces; 0 when none fits.
uint64_t take(Pieces& free, uint64_t size, uint64_t align) {
  auto best = free.end();
  for (auto it = free.begin(); it != free.end(); ++it) {
    uint64_t pad = round_up(it->first, align) - it->first;
    if (it->second >= size + pad && (best == free.end() || it->second < best->second)) best = it;
  }
  if (best == free.end()) return 0;
  uint64_t start = best->first, length = best->second, base = round_up(start, align);
  free.erase(best);
  if (base > start) free.emplace(start, base - start);
  if (start + length > base + size) free.emplace(base + size, start + length - base - size);
  return base;
}

}  // namespace

bool backing_of(uint64_t address, int* fd, uint64_t* offset) {
  auto it = arena().backings.upper_bound(address);
  if (it == arena().backings.begin()) return false;
  --it;
  if (address - it->first >= it->second.size) return false;
  if (fd != nullptr) *fd = it->second.fd;
  if (offset != nullptr) *offset = address - it->first;
  return true;
}

bool account(Device& device, uint64_t bytes) {
  uint64_t used = device.used_bytes.load();
  if (bytes > device.spec.memory_bytes || used > device.spec.memory_bytes - bytes) return false;
  device.used_bytes.store(used + bytes);
  return true;
}

void unaccount(Device& device, uint64_t bytes) { device.used_bytes.fetch_sub(bytes); }

CUresult allocate_range(State& s, Range range, uint64_t align, uint64_t* base) {
  Device& device = *s.devices[static_cast<size_t>(range.device)];
  if (range.requested > device.spec.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  range.size = round_up(range.requested == 0 ? 1 : range.requested, kAllocAlign);
  if (!account(device, range.size)) return CUDA_ERROR_OUT_OF_MEMORY;
  const bool low =
      range.context != nullptr && range.context->api_version < kWideApi;  // addresses of 32 bits
  range.direct = low || range.size >= kDirect;
  if (range.direct) {
    range.base = map_device_pages(round_up(range.size, 4096), range.kind, low);
  } else {
    Pieces& free = pieces_for(range.kind);
    range.base = take(free, range.size, align);
    if (range.base == 0) {
      uint64_t chunk = map_device_pages(kChunk, range.kind);
      if (chunk != 0) give_back(free, chunk, kChunk);
      range.base = chunk == 0 ? 0 : take(free, range.size, align);
    }
  }
  if (range.base == 0) {
    unaccount(device, range.size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  range.id = s.new_id();
  *base = range.base;
  if (s.map.insert(std::move(range))) return CUDA_SUCCESS;
  return CUDA_ERROR_UNKNOWN;  // cannot be: the host never gives one address twice
}

void release_range(State& s, const Range& range) {
  void* host = reinterpret_cast<void*>(range.base);
  switch (range.kind) {
    case RangeKind::kHost: munmap(host, round_up(range.size, 4096)); return;
    case RangeKind::kRegistered:
    case RangeKind::kMapped: return;
    case RangeKind::kImported:
    case RangeKind::kExternal: range.release(range); return;
    case RangeKind::kDevice:
    case RangeKind::kSymbol:
    case RangeKind::kPool:
    case RangeKind::kManaged:
    case RangeKind::kArray: break;
  }
  unaccount(*s.devices[static_cast<size_t>(range.device)], range.size);
  if (range.direct) {
    unmap_device_pages(range.base, round_up(range.size, 4096));
    return;
  }
  // Whole pages go back to the host; the edges are cleared so that new memory always reads as zero.
  uint64_t first = round_up(range.base, 4096), last = range.end() / 4096 * 4096;
  if (first < last) {
    forget_pages(first, last - first);
    __builtin_memset(host, 0, first - range.base);
    __builtin_memset(reinterpret_cast<void*>(last), 0, range.end() - last);
  } else {
    __builtin_memset(host, 0, range.size);
  }
  give_back(pieces_for(range.kind), range.base, range.size);
}

void* map_host(uint64_t bytes) {
  uint64_t base = map_pages(round_up(bytes, 4096), 4096);
  return reinterpret_cast<void*>(base);
}

bool raise_fd_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace tube::sim
