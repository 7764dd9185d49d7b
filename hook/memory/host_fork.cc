#include "hook/memory/host_fork.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <new>

#include "hook/memory/host_pages.h"

namespace tube::hook {
namespace {

// One word in memory that parent and child share: the child has its own pages.
std::atomic<uint32_t>* g_ready = nullptr;

bool any_replaced() {
  for (const auto& [address, range] : registered_pages().ranges) {
    if (range.replaced) return true;
  }
  return false;
}

void before_fork() {
  registered_pages().pages.lock();
  g_ready = nullptr;
  if (!any_replaced()) return;
  void* page = mmap(nullptr, wire::kHostPageBytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) g_ready = new (page) std::atomic<uint32_t>(0);
}

void in_parent() {
  if (g_ready != nullptr) {
    timespec second{1, 0};
    while (g_ready->load(std::memory_order_acquire) == 0) {
      if (syscall(SYS_futex, g_ready, FUTEX_WAIT, 0, &second, nullptr, 0) != 0 &&
          errno == ETIMEDOUT)
        break;
    }
    munmap(g_ready, wire::kHostPageBytes);
  }
  registered_pages().pages.unlock();
}

void in_child() {
  for (const auto& [address, range] : registered_pages().ranges) {
    if (range.replaced) keep_private(address, range.bytes);
  }
  if (g_ready != nullptr) {
    g_ready->store(1, std::memory_order_release);
    syscall(SYS_futex, g_ready, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    munmap(g_ready, wire::kHostPageBytes);
  }
  registered_pages().ranges.clear();
  registered_pages().pages.unlock();
}

}  // namespace

RegisteredPages& registered_pages() {
  static RegisteredPages* pages = new RegisteredPages;  // leaked: calls arrive until the very end
  return *pages;
}

void watch_forks() {
  static bool watching = false;
  if (watching) return;
  watching = pthread_atfork(before_fork, in_parent, in_child) == 0;
}

}  // namespace tube::hook
