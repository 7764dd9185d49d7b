#include "proxy/memory/host_pages.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "base/cores.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/bus_guard.h"
#include "proxy/memory/device_memory.h"
#include "proxy/memory/host_budget.h"
#include "sharedmem/window_reservation.h"
#include "sharedmem/windows.h"

namespace tube::proxy {

namespace {

constexpr uint64_t kPage = wire::kHostPageBytes;
constexpr uint64_t kLowest = 1u << 16;              // vm.mmap_min_addr
constexpr uint64_t kHighest = 0x7fff'ffff'f000ull;  // behind the last user page

// Of all clients: the mappings are the process's.
std::atomic<uint32_t> g_mappings{0};

// vm.max_map_count; its default where it cannot be read.
uint32_t mappings_of_a_process() {
  unsigned count = 0;
  FILE* file = std::fopen("/proc/sys/vm/max_map_count", "re");
  if (file == nullptr || std::fscanf(file, "%u", &count) != 1) count = 65530;
  if (file != nullptr) std::fclose(file);
  return count;
}

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// No window of the protocol, taken or not: those addresses have another meaning.
bool mappable(uint64_t first, uint64_t last) {
  constexpr uint64_t kWindowsEnd =
      windows::device_base(windows::kCandidates - 1) + windows::kWindowBytes;
  if (first < kLowest || last > kHighest || first >= last) return false;
  return last <= windows::device_base(0) || first >= kWindowsEnd;
}

// Pages that the file lacks are made when they are registered, and charged to the proxy. Where they
// lie in the file is not asked: a file with holes counts as if they were here.
uint64_t missing_bytes(int fd, uint64_t bytes) {
  struct stat s;
  if (fstat(fd, &s) != 0) return bytes;
  const uint64_t size = (static_cast<uint64_t>(s.st_size) + kPage - 1) / kPage * kPage;
  const uint64_t there = static_cast<uint64_t>(s.st_blocks) * 512;
  return std::min(bytes, size - std::min(size, there));
}

// An ordinary file, long enough, whose file system answers page faults by itself. Huge pages are
// mapped whole: the kernel would map more than a part, and unmap nothing of it.
bool usable_file(int fd, const wire::HostSegment& segment) {
  struct stat s;
  struct statfs fs;
  if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || fstatfs(fd, &fs) != 0) return false;
  if (!HostPages::answers_page_faults(fs.f_type)) return false;
  const auto size = static_cast<uint64_t>(s.st_size);
  const uint64_t whole = (size + kPage - 1) / kPage * kPage;
  const uint64_t page =
      fs.f_type == HUGETLBFS_MAGIC ? std::max(kPage, static_cast<uint64_t>(fs.f_bsize)) : kPage;
  if (segment.offset % page != 0 || segment.address % page != 0 || segment.bytes % page != 0)
    return false;
  return segment.offset <= whole && segment.bytes <= whole - segment.offset;
}

// The hook puts private pages into such a file (hook/memory/host_pages.cc).
bool is_private(int fd) {
  char name[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (readlink(link.c_str(), name, sizeof name - 1) < 0) return false;
  return std::string_view(name).starts_with("/memfd:tube-registered");
}

}  // namespace

HostPages::HostPages(const Driver& driver, Ranges& ranges, HostBudget* host,
                     Registrations* registrations)
    : driver_(driver), ranges_(ranges), host_(host), registrations_(registrations) {}
HostPages::~HostPages() { close(); }

bool HostPages::answers_page_faults(int64_t file_system) {
  constexpr int64_t kZfs = 0x2fc12fc1, kBcachefs = 0xca451a4e;
  switch (file_system) {
    case TMPFS_MAGIC:  // memory files and shared memory, too
    case RAMFS_MAGIC:
    case HUGETLBFS_MAGIC:
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case SQUASHFS_MAGIC:
    case EROFS_SUPER_MAGIC_V1:
    case kZfs:
    case kBcachefs:
    case OVERLAYFS_SUPER_MAGIC:  // containers' own files; what lies below it cannot be asked
      return true;
    default: return false;
  }
}

void HostPages::abandon() { runs_.clear(); }

CUresult HostPages::map_run(uint64_t first, uint64_t last, uint32_t flags,
                            const std::vector<Segment>& segments) {
  const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  uint64_t at = first;
  CUresult error = CUDA_SUCCESS;
  for (const Segment& segment : segments) {
    const wire::HostSegment& s = segment.untrusted;
    if (s.address < first || s.address >= last) continue;
    void* mapped = mmap(pointer(s.address), s.bytes, read_only ? PROT_READ : PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED_NOREPLACE, segment.fd, static_cast<off_t>(s.offset));
    if (mapped == pointer(s.address)) {
      (void)madvise(mapped, s.bytes, MADV_DONTDUMP);  // another program's memory
      at = s.address + s.bytes;
      continue;
    }
    if (mapped != MAP_FAILED) munmap(mapped, s.bytes);  // a kernel that does not know the flag
    const bool taken = mapped != MAP_FAILED || errno == EEXIST;
    error = taken || errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    log_warn("host memory at 0x%lx cannot be registered: %s", s.address,
             taken
                 ? ("its address is taken here: " + shared::mapping_in_the_way(s.address, s.bytes))
                       .c_str()
                 : std::strerror(errno));
    break;
  }
  if (error == CUDA_SUCCESS && !bus_guard::add(first, last)) error = CUDA_ERROR_OUT_OF_MEMORY;
  if (error == CUDA_SUCCESS) {
    const unsigned int ours = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                              (read_only ? CU_MEMHOSTREGISTER_READ_ONLY : 0);
    error = add_registration(registrations_, driver_, Registrant::kFiles, 0, pointer(first),
                             last - first, ours, Registrations::Need::kNow);
    if (error == CUDA_SUCCESS && read_only) ranges_.protect(first, last);
    if (error == CUDA_SUCCESS) return error;
    bus_guard::remove(first);
  }
  if (at != first) munmap(pointer(first), at - first);
  return error;
}

uint32_t HostPages::most_mappings_of_all() {
  static const auto most =
      static_cast<uint32_t>(uint64_t{mappings_of_a_process()} * limits::kHostMappingsPercent / 100);
  return most;
}

// What is registered is pinned: no more than the machine has. One file may lie at two addresses.
uint64_t HostPages::most_bytes() {
  static const uint64_t most = std::min(2 * machine_memory_bytes(), limits::kRegisteredBytes);
  return most;
}

uint32_t HostPages::mappings_of_all() { return g_mappings.load(std::memory_order_relaxed); }

uint32_t HostPages::most_mappings() { return most_mappings_of_all() / 2; }

bool HostPages::take_mappings(size_t wanted) {
  const uint32_t own = most_mappings(), all = most_mappings_of_all();
  uint32_t taken = g_mappings.load(std::memory_order_relaxed);
  bool fits = wanted <= own - mappings_;
  do {
    fits = fits && wanted <= all - taken;
  } while (fits && !g_mappings.compare_exchange_weak(taken, taken + static_cast<uint32_t>(wanted),
                                                     std::memory_order_relaxed));
  if (fits) mappings_ += static_cast<uint32_t>(wanted);
  if (!fits && !std::exchange(told_, true))
    log_warn(
        "host memory cannot be registered: a function may have %u ranges of pages registered and "
        "all together %u (of vm.max_map_count)",
        own, all);
  return fits;
}

void HostPages::give_mappings(uint32_t mappings) {
  mappings_ -= mappings;
  g_mappings.fetch_sub(mappings, std::memory_order_relaxed);
}

// Mappings and pages of all gaps.
bool HostPages::take(std::vector<Gap>& gaps, const std::vector<Segment>& segments) {
  if (!take_mappings(segments.size())) return false;
  uint64_t bytes = 0;
  for (Gap& gap : gaps) {
    for (const Segment& segment : segments) {
      const wire::HostSegment& s = segment.untrusted;
      if (s.address >= gap.first && s.address < gap.last)
        gap.new_bytes += missing_bytes(segment.fd, s.bytes);
    }
    bytes += gap.new_bytes;
  }
  if (take_host(host_, HostUse::kFiles, bytes)) return true;
  give_mappings(static_cast<uint32_t>(segments.size()));
  return false;
}

void HostPages::give(const Gap& gap) {
  give_mappings(gap.mappings);
  give_host(host_, HostUse::kFiles, gap.new_bytes);
}

void HostPages::unmap_run(uint64_t first, const Run& run) {
  if (CUresult error =
          remove_registration(registrations_, driver_, Registrant::kFiles, pointer(first));
      error != CUDA_SUCCESS) {
    log_warn("host memory at 0x%lx stays registered: %s", first,
             result_text(driver_, error).c_str());
    return;  // the driver may still use the pages
  }
  munmap(pointer(first), run.bytes);
  bus_guard::remove(first);
  ranges_.unprotect(first);
  give({first, first + run.bytes, run.mappings, run.new_bytes});
}

// What a registration adds to the runs: known runs and the segments must follow each other without
// a gap.
bool HostPages::divide(uint64_t first, uint64_t last, const std::vector<Segment>& segments,
                       std::vector<Gap>& gaps, std::vector<uint64_t>& known) const {
  auto run = runs_.upper_bound(first);
  if (run != runs_.begin() && std::prev(run)->first + std::prev(run)->second.bytes > first) --run;
  size_t next = 0;
  for (uint64_t at = first; at < last;) {
    if (run != runs_.end() && run->first <= at) {
      known.push_back(run->first);
      at = run->first + run->second.bytes;
      ++run;
      continue;
    }
    if (next == segments.size()) return false;
    const wire::HostSegment& s = segments[next].untrusted;
    const uint64_t room = (run != runs_.end() && run->first < last ? run->first : last) - at;
    if (s.address != at || s.bytes == 0 || s.bytes % kPage != 0 || s.bytes > room) return false;
    if (!usable_file(segments[next].fd, s)) return false;
    if (!gaps.empty() && gaps.back().last == at) gaps.back().last = at + s.bytes;
    else gaps.push_back({at, at + s.bytes});
    ++gaps.back().mappings;
    at += s.bytes;
    ++next;
  }
  return next == segments.size();
}

CUresult HostPages::add(uint32_t context, uint64_t untrusted_base, uint64_t untrusted_bytes,
                        uint32_t flags, const std::vector<Segment>& segments) {
  const uint64_t end = untrusted_base + untrusted_bytes;
  if (untrusted_bytes == 0 || end < untrusted_base || end > kHighest)
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t first = untrusted_base & ~(kPage - 1), last = (end + kPage - 1) & ~(kPage - 1);
  if (!mappable(first, last)) return CUDA_ERROR_INVALID_VALUE;
  if (count_ >= limits::kRegistrations || untrusted_bytes > most_bytes() - bytes())
    return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<Gap> gaps;
  std::vector<uint64_t> known;
  if (!divide(first, last, segments, gaps, known)) return CUDA_ERROR_INVALID_VALUE;
  if (!take(gaps, segments)) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.base = untrusted_base;
  range.bytes = untrusted_bytes;
  range.kind = RangeKind::kRegistered;
  range.context = context;
  if (!ranges_.insert(range)) {
    for (const Gap& gap : gaps) give(gap);
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  for (size_t i = 0; i < gaps.size(); ++i) {
    const CUresult error = map_run(gaps[i].first, gaps[i].last, flags, segments);
    if (error == CUDA_SUCCESS) {
      const bool shared = std::any_of(segments.begin(), segments.end(), [&](const Segment& s) {
        return s.untrusted.address >= gaps[i].first && s.untrusted.address < gaps[i].last &&
               !is_private(s.fd);
      });
      runs_[gaps[i].first] =
          Run{gaps[i].last - gaps[i].first, 1, gaps[i].mappings, gaps[i].new_bytes, shared};
      continue;
    }
    for (size_t j = 0; j < gaps.size(); ++j) {
      if (j >= i) {
        give(gaps[j]);
        continue;
      }
      unmap_run(gaps[j].first, runs_[gaps[j].first]);
      runs_.erase(gaps[j].first);
    }
    ranges_.erase(untrusted_base);
    return error;
  }
  for (uint64_t address : known) ++runs_[address].registrations;
  bytes_.fetch_add(untrusted_bytes, std::memory_order_relaxed);
  ++count_;
  return CUDA_SUCCESS;
}

CUresult HostPages::remove(uint64_t untrusted_base) {
  const Range* found = ranges_.at(untrusted_base);
  if (found == nullptr || found->kind != RangeKind::kRegistered)
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  const Range range = *found;
  ranges_.erase(range.base);
  bytes_.fetch_sub(range.bytes, std::memory_order_relaxed);
  --count_;
  auto run = runs_.upper_bound(range.base);
  if (run != runs_.begin() && std::prev(run)->first + std::prev(run)->second.bytes > range.base)
    --run;
  while (run != runs_.end() && run->first < range.base + range.bytes) {
    if (--run->second.registrations != 0) {
      ++run;
      continue;
    }
    unmap_run(run->first, run->second);
    run = runs_.erase(run);
  }
  return CUDA_SUCCESS;
}

void HostPages::free_all(uint32_t context) {
  std::vector<uint64_t> bases;
  for (const auto& [base, range] : ranges_.all()) {
    if (range.kind == RangeKind::kRegistered &&
        (context == DeviceMemory::kAllContexts || range.context == context))
      bases.push_back(base);
  }
  for (uint64_t base : bases) (void)remove(base);
}

bool HostPages::shared(uint64_t address) const {
  const auto next = runs_.upper_bound(address);
  if (next == runs_.begin()) return false;
  const auto& [first, run] = *std::prev(next);
  return address - first < run.bytes && run.shared;
}

void HostPages::close() {
  if (!runs_.empty()) free_all(DeviceMemory::kAllContexts);
}

}  // namespace tube::proxy
