#include "bench/client/barrier.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "bench/client/common.h"

namespace bench {

Barrier::Barrier(const char* path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  void* mapped =
      fd < 0 ? MAP_FAILED : mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    perror(path);
    exit(1);
  }
  close(fd);
  shared_ = static_cast<Shared*>(mapped);
}

void Barrier::arrive(uint32_t count) {
  const uint32_t generation = shared_->generation.load(std::memory_order_acquire);
  if (shared_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    shared_->arrived.store(0, std::memory_order_relaxed);
    shared_->generation.fetch_add(1, std::memory_order_acq_rel);
    return;
  }
  const int64_t end = now_ns() + 60'000'000'000;
  while (shared_->generation.load(std::memory_order_acquire) == generation) {
    sched_yield();
    if (now_ns() > end) {
      fprintf(stderr, "barrier: the others did not come\n");
      exit(1);
    }
  }
}

}  // namespace bench
