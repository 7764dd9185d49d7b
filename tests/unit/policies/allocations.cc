// Apart from the tests: a compiler that sees both sides of a replaced operator warns of a mismatch.
#include "tests/unit/policies/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<uint64_t> count{0};
}

namespace tube::policies {
uint64_t allocations() { return count.load(std::memory_order_relaxed); }
}  // namespace tube::policies

void* operator new(size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
