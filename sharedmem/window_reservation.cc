#include "sharedmem/window_reservation.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/unique_fd.h"
#include "sharedmem/life_lock.h"

namespace tube::shared {
namespace {

std::string read_maps() {
  std::string text;
  UniqueFd fd(::open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return text;
  char buffer[4096];
  while (true) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
}

// "START-END PERMS OFFSET DEVICE INODE      NAME" -> "START-END PERMS NAME"
std::string shorten(const std::string& line) {
  size_t at = 0;
  size_t fields[5] = {};
  for (size_t& field : fields) {
    at = line.find(' ', at);
    if (at == std::string::npos) return line;
    field = at;
    while (at < line.size() && line[at] == ' ') ++at;
  }
  const std::string name = at < line.size() ? line.substr(at) : "(unnamed)";
  return line.substr(0, fields[1]) + " " + name;
}

}  // namespace

std::string mapping_in_the_way(uint64_t address, uint64_t size_bytes) {
  const std::string maps = read_maps();
  size_t at = 0;
  while (at < maps.size()) {
    size_t end_of_line = maps.find('\n', at);
    if (end_of_line == std::string::npos) end_of_line = maps.size();
    const std::string line = maps.substr(at, end_of_line - at);
    at = end_of_line + 1;
    char* dash = nullptr;
    const uint64_t start = std::strtoull(line.c_str(), &dash, 16);
    if (*dash != '-') continue;
    const uint64_t end = std::strtoull(dash + 1, nullptr, 16);
    if (start < address + size_bytes && end > address) return shorten(line);
  }
  return "";
}

bool range_is_free(uint64_t address, uint64_t size_bytes) {
  return mapping_in_the_way(address, size_bytes).empty();
}

WindowReservation WindowReservation::take_all() {
  WindowReservation all;
  for (uint32_t i = 0; i < windows::kCandidates; ++i) {
    Result<Mapping> window = Mapping::reserve_at(windows::device_base(i), windows::kWindowBytes);
    if (window) all.windows_[i] = window.take();
  }
  return all;
}

uint32_t WindowReservation::free_mask() const {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < windows::kCandidates; ++i) {
    if (windows_[i].valid()) mask |= 1u << i;
  }
  return mask;
}

bool WindowReservation::keep_only(uint32_t candidate) {
  if (candidate >= windows::kCandidates || !windows_[candidate].valid()) return false;
  for (uint32_t i = 0; i < windows::kCandidates; ++i) {
    if (i != candidate) windows_[i].reset();
  }
  return true;
}

Status WindowReservation::map_pinned(uint32_t candidate, uint32_t client_slot, int pinned_fd) {
  if (candidate >= windows::kCandidates || !windows_[candidate].valid() ||
      client_slot >= windows::kMaxClients) {
    return Error{EPROTO, "the proxy chose an address window that was not offered"};
  }
  // The lock tells the proxy when no process maps the memory any more. Without it no other function
  // gets this memory.
  const Result<UniqueFd> locked = open_locked(pinned_fd);
  if (!map_pinned_slot(windows::pinned_base(candidate, client_slot),
                       locked ? locked->get() : pinned_fd))
    return errno_error(errno, "cannot map the pinned memory window");
  return {};
}

bool map_pinned_slot(uint64_t base, int pinned_fd) {
  void* got = ::mmap(reinterpret_cast<void*>(base), windows::kPinnedSlotBytes,
                     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, pinned_fd, 0);
  if (got == MAP_FAILED) return false;
  (void)::madvise(got, windows::kPinnedSlotBytes, MADV_DONTDUMP);
  return true;
}

void WindowReservation::leak() {
  for (Mapping& window : windows_) (void)window.release();
}

std::string describe_taken_windows(uint32_t free_mask) {
  std::string text = "no address window is free:";
  for (uint32_t i = 0; i < windows::kCandidates; ++i) {
    if ((free_mask >> i & 1) != 0) continue;
    const std::string taken = mapping_in_the_way(windows::device_base(i), windows::kWindowBytes);
    text += " window " + std::to_string(i) + " (" + (taken.empty() ? "not available" : taken) + ")";
  }
  rlimit limit;
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    text += "; the address space is limited to " + std::to_string(limit.rlim_cur) +
            " bytes (ulimit -v): lift the limit";
  }
  return text;
}

}  // namespace tube::shared
