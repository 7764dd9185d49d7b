#include "hook/memory/host_pages.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "hook/memory/mappings.h"
#include "hook/memory/write_freeze.h"
#include "sharedmem/file_size_limit.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

namespace tube::hook {
namespace {

constexpr uint64_t kPage = wire::kHostPageBytes;
constexpr uint64_t kPiece =
    16u << 20;  // copied and exchanged at a time: bounds the memory that exists twice

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// One memory file for all replaced pages of the process: a descriptor each would run programs into
// their limit. Addresses in it are never used twice, so a stale mapping can never show another
// range's bytes.
struct OwnFile {
  int fd = -1;
  ino_t inode = 0;
  uint64_t used_bytes = 0;
};
OwnFile& own_file() {
  static OwnFile file;
  return file;
}

// A program may close descriptors that it does not know.
bool own_file_usable() {
  struct stat s;
  return own_file().fd >= 0 && fstat(own_file().fd, &s) == 0 && s.st_ino == own_file().inode;
}

bool open_own_file() {
  OwnFile& file = own_file();
  if (own_file_usable()) return true;
  UniqueFd made(memfd_create("tube-registered", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (!made.valid())
    made.reset(
        memfd_create("tube-registered", MFD_CLOEXEC | MFD_ALLOW_SEALING));  // before Linux 6.3
  if (!made.valid()) return false;
  const int high =
      fcntl(made.get(), F_DUPFD_CLOEXEC, 40);  // out of the way of programs that use small numbers
  struct stat s;
  if (high < 0 || fstat(high, &s) != 0) return false;
  (void)fcntl(high, F_ADD_SEALS, F_SEAL_SHRINK);
  file = OwnFile{high, s.st_ino, 0};
  return true;
}

// Behind each range the file has a hole of this size: a range that the program makes larger in
// place (realloc, mremap) goes on in zeros there, as memory does, and neither in another range's
// bytes nor beyond the end of the file. Eight million ranges have room for theirs.
constexpr uint64_t kHoleBytes = 1ull << 40;
constexpr uint64_t kMostFileBytes = 1ull << 62;

// Only the size, and that before the pages: it takes no time.
bool make_room_in_file(int fd, uint64_t size_bytes) {
  struct stat s;
  if (fstat(fd, &s) != 0) return false;
  if (static_cast<uint64_t>(s.st_size) >= size_bytes) return true;
  const shared::FileSizeLimit limit(size_bytes);
  return limit.lifted() && ftruncate(fd, static_cast<off_t>(size_bytes)) == 0;
}

// A hard limit of file sizes can leave no room for the hole.
bool extend_own_file(uint64_t bytes, uint64_t* offset) {
  OwnFile& file = own_file();
  *offset = file.used_bytes;
  uint64_t end = *offset + bytes + kHoleBytes;
  if (end > kMostFileBytes || !make_room_in_file(file.fd, end)) {
    end = *offset + bytes;
    if (!make_room_in_file(file.fd, end)) {
      log_warn("cuMemHostRegister: the memory does not fit under the file size limit (ulimit -f)");
      return false;
    }
  }
  if (fallocate(file.fd, 0, static_cast<off_t>(*offset), static_cast<off_t>(bytes)) != 0)
    return false;
  file.used_bytes = end;
  return true;
}

void drop_pages(uint64_t offset, uint64_t bytes) {
  (void)fallocate(own_file().fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

// Whole pages, whatever lies in them: also what no C++ code could read, such as bytes that a
// sanitizer keeps between variables of the program, and bytes that other threads write (they are
// frozen, or the loss is documented).
void copy_pages(void* to, const void* from, uint64_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

// Exchanges one piece. No allocation, and nothing else that could write to frozen pages of the
// heap.
bool exchange_piece(uint64_t address, uint64_t bytes, uint64_t offset, int protection,
                    WriteFreeze& freeze) {
  void* copy = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own_file().fd,
                    static_cast<off_t>(offset));
  if (copy == MAP_FAILED) return false;
  // Pages that were never touched have no entry that could be protected.
  (void)madvise(pointer(address), bytes, MADV_POPULATE_READ);
  (void)freeze.freeze(address, address + bytes);
  copy_pages(copy, pointer(address), bytes);
  const bool exchanged =
      mmap(pointer(address), bytes, protection, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
           own_file().fd, static_cast<off_t>(offset)) != MAP_FAILED;
  freeze.release();
  munmap(copy, bytes);
  return exchanged;
}

struct Exchange {
  const std::vector<MappedArea>* areas;
  uint64_t offset;    // of the first private byte in the file
  uint64_t done = 0;  // bytes exchanged
  bool good = false;
};

void exchange_areas(Exchange* job) {
  WriteFreeze freeze;
  for (const MappedArea& area : *job->areas) {
    for (uint64_t at = area.begin; at < area.end;) {
      const uint64_t bytes = std::min(kPiece, area.end - at);
      if (!exchange_piece(at, bytes, job->offset + job->done, area.protection, freeze)) return;
      at += bytes;
      job->done += bytes;
    }
  }
  job->good = true;
}

void exchange_entry(unsigned high, unsigned low) {
  exchange_areas(reinterpret_cast<Exchange*>(uint64_t{high} << 32 | low));
}

// Runs on another stack, since the caller's may be what is exchanged. The kernel must not put a
// signal frame there either.
bool exchange_on_another_stack(Exchange* job) {
  constexpr size_t kStack = 256u << 10;
  void* stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) return false;
  // Everything that is written meanwhile lives on that stack's own mapping.
  auto* place = static_cast<std::byte*>(stack);
  auto* inside = new (place) Exchange(*job);
  auto* there = reinterpret_cast<ucontext_t*>(place + 4096);
  auto* here = reinterpret_cast<ucontext_t*>(place + 8192);
  static_assert(sizeof(ucontext_t) <= 4096 && sizeof(Exchange) <= 4096);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  getcontext(there);
  there->uc_stack.ss_sp = place + 16384;
  there->uc_stack.ss_size = kStack - 16384;
  there->uc_link = here;
  const auto address = reinterpret_cast<uint64_t>(inside);
  makecontext(there, reinterpret_cast<void (*)()>(exchange_entry), 2,
              static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
  swapcontext(here, there);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  *job = *inside;
  munmap(stack, kStack);
  return true;
}

// The private areas of one gapless run become the file's.
CUresult replace_run(const std::vector<MappedArea>& run, SharedRange* range) {
  const uint64_t first = run.front().begin, bytes = run.back().end - first;
  if (!open_own_file()) return CUDA_ERROR_OUT_OF_MEMORY;
  Exchange job{&run, 0};
  if (!extend_own_file(bytes, &job.offset)) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  // A page or two around: registers saved below this frame, the callers' frames above it.
  const bool own_stack = here + (1u << 20) >= first && here < first + bytes + (1u << 20);
  if (!own_stack) exchange_areas(&job);
  else if (!exchange_on_another_stack(&job)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!job.good) {
    unshare_pages(first, job.done);
    drop_pages(job.offset, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  range->pages.push_back({first, bytes, job.offset, -1, true});
  return CUDA_SUCCESS;
}

CUresult pass_on(const MappedArea& area, bool read_only, SharedRange* range) {
  if (range->files.size() == wire::kMaxHostFiles) return CUDA_ERROR_OUT_OF_MEMORY;
  UniqueFd fd = file_of(area, !read_only);
  if (!fd.valid()) {
    log_warn("cuMemHostRegister: no descriptor of the shared mapping %s at 0x%llx is to be had",
             area.path.c_str(), static_cast<unsigned long long>(area.begin));
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  range->pages.push_back({area.begin, area.end - area.begin, area.offset,
                          static_cast<int>(range->files.size()), false});
  range->files.push_back(std::move(fd));
  return CUDA_SUCCESS;
}

// Other files lie below /dev as well: shared memory, and huge pages where their file system is
// mounted by default. What maps /dev/zero is memory.
bool maps_a_device(const MappedArea& area) {
  if (area.path.compare(0, 5, "/dev/") != 0 || area.path.compare(0, 9, "/dev/zero") == 0)
    return false;
  struct stat s;
  return stat(area.path.c_str(), &s) == 0 && !S_ISREG(s.st_mode);
}

// Gapless, readable, and writable unless the GPU only reads. What a device maps is no memory.
CUresult check_areas(const std::vector<MappedArea>& areas, uint64_t first, uint64_t last,
                     bool read_only) {
  uint64_t at = first;
  for (const MappedArea& area : areas) {
    if (area.begin != at) return CUDA_ERROR_INVALID_VALUE;
    if ((area.protection & PROT_READ) == 0 || (!read_only && (area.protection & PROT_WRITE) == 0))
      return CUDA_ERROR_INVALID_VALUE;
    const bool special =
        area.path.size() > 3 && area.path[0] == '[' && area.path[1] == 'v';  // vdso, vvar, vsyscall
    if (special || maps_a_device(area)) return CUDA_ERROR_INVALID_VALUE;
    at = area.end;
  }
  return at == last ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

int own_pages_file() { return own_file().fd; }

CUresult share_pages(uint64_t first, uint64_t last, bool read_only, SharedRange* range) {
  std::vector<MappedArea> areas;
  if (!mapped_areas(first, last, &areas)) return CUDA_ERROR_OPERATING_SYSTEM;
  if (const CUresult r = check_areas(areas, first, last, read_only); r != CUDA_SUCCESS) return r;
  const size_t before = range->pages.size();
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < areas.size() && result == CUDA_SUCCESS;) {
    if (areas[i].shared) {
      result = pass_on(areas[i++], read_only, range);
      continue;
    }
    std::vector<MappedArea> run;
    while (i < areas.size() && !areas[i].shared) run.push_back(areas[i++]);
    result = replace_run(run, range);
  }
  if (result == CUDA_SUCCESS) return result;
  for (size_t i = before; i < range->pages.size(); ++i) {
    if (range->pages[i].replaced) unshare_pages(range->pages[i].address, range->pages[i].bytes);
  }
  range->pages.resize(before);
  return result;
}

namespace {

void copy_pages(uint64_t begin, uint64_t end) {
  if (madvise(pointer(begin), end - begin, MADV_POPULATE_WRITE) == 0 || errno != EINVAL) return;
  // Before Linux 5.14.
  for (uint64_t at = begin; at < end; at += kPage)
    __atomic_fetch_or(reinterpret_cast<char*>(at), 0, __ATOMIC_RELAXED);
}

// Maps the file privately where the program still has it: it may have unmapped, moved or protected
// parts of the range.
template <class F>
void make_private(uint64_t address, uint64_t bytes, F then) {
  std::vector<MappedArea> areas;
  if (bytes == 0 || !own_file_usable() || !mapped_areas(address, address + bytes, &areas)) return;
  for (const MappedArea& area : areas) {
    if (!area.shared || area.inode != own_file().inode ||
        area.path.find("memfd:tube-registered") == std::string::npos)
      continue;
    void* mapped = mmap(pointer(area.begin), area.end - area.begin, area.protection,
                        MAP_PRIVATE | MAP_FIXED, own_file().fd, static_cast<off_t>(area.offset));
    // A page without write permission can go on showing the file.
    if (mapped != MAP_FAILED && (area.protection & PROT_WRITE) != 0) then(area);
  }
}

}  // namespace

void unshare_pages(uint64_t address, uint64_t bytes) {
  make_private(address, bytes, [](const MappedArea& area) {
    copy_pages(area.begin, area.end);
    drop_pages(area.offset, area.end - area.begin);  // the program's copies stay
  });
}

void keep_private(uint64_t address, uint64_t bytes) {
  const uint64_t last = address + bytes - kPage;
  make_private(address, bytes, [address, last](const MappedArea& area) {
    if (area.begin == address) copy_pages(address, address + kPage);
    if (area.end == last + kPage) copy_pages(last, last + kPage);
  });
}

}  // namespace tube::hook
