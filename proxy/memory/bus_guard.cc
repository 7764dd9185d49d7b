#include "proxy/memory/bus_guard.h"

#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <mutex>

#include "base/page.h"

namespace tube::proxy::bus_guard {

namespace {

constexpr uint32_t kRanges = 1u << 16;

// `end` 0: free. Written end last, read end first, so that the handler never pairs one range's
// begin with another's end to anything wider than both (a freed entry reads as empty).
struct Entry {
  std::atomic<uint64_t> begin{0};
  std::atomic<uint64_t> end{0};
};

struct sigaction g_before {};  // what handled the signal before
std::mutex g_mutex;            // writers of the table; rank 40
Entry g_entries[kRanges];
std::atomic<uint32_t> g_used{0};  // entries ever used: where the handler stops

bool guarded(uint64_t first, uint64_t last) {
  const uint32_t used = g_used.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    const uint64_t end = g_entries[i].end.load(std::memory_order_acquire);
    if (last <= end && first >= g_entries[i].begin.load(std::memory_order_relaxed)) return true;
  }
  return false;
}

// Puts empty memory in the place of the page of this size; whole pages are in one range.
bool replace_page(uint64_t address, uint64_t page_bytes) {
  const uint64_t page = address & ~(page_bytes - 1);
  return guarded(page, page + page_bytes) &&
         mmap(reinterpret_cast<void*>(page), page_bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

// Async-signal-safe: loads and a system call or three. Of a huge page no part can be replaced,
// which the kernel says with EINVAL; any other failure would hold for a larger page as well.
void on_bus_error(int signal_number, siginfo_t* info, void*) {
  constexpr uint64_t kHugePages[] = {2ull << 20, 1ull << 30};
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  const int saved = errno;
  errno = 0;
  bool replaced = replace_page(address, kPage);
  for (const uint64_t page_bytes : kHugePages)
    replaced = replaced || (errno == EINVAL && replace_page(address, page_bytes));
  errno = saved;
  if (replaced) return;
  sigaction(signal_number, &g_before,
            nullptr);  // the access is repeated, and is another's business
}

void install() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &g_before);
}

}  // namespace

bool add(uint64_t begin, uint64_t end) {
  static std::once_flag installed;
  std::call_once(installed, install);
  std::lock_guard lock(g_mutex);
  const uint32_t used = g_used.load(std::memory_order_relaxed);
  uint32_t i = 0;
  while (i < used && g_entries[i].end.load(std::memory_order_relaxed) != 0) ++i;
  if (i == kRanges) return false;
  g_entries[i].begin.store(begin, std::memory_order_relaxed);
  g_entries[i].end.store(end, std::memory_order_release);
  if (i == used) g_used.store(used + 1, std::memory_order_release);
  return true;
}

void remove(uint64_t begin) {
  std::lock_guard lock(g_mutex);
  const uint32_t used = g_used.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < used; ++i) {
    if (g_entries[i].end.load(std::memory_order_relaxed) == 0 ||
        g_entries[i].begin.load(std::memory_order_relaxed) != begin)
      continue;
    g_entries[i].end.store(0, std::memory_order_release);
    return;
  }
}

}  // namespace tube::proxy::bus_guard
