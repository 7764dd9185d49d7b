#include "proxy/common/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

namespace tube::proxy {

namespace {

constexpr uint32_t kHeadroom = 64;

rlimit limits_now() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = limit.rlim_max = 1024;
  return limit;
}

}  // namespace

void raise_descriptor_limit() {
  rlimit limit = limits_now();
  if (limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);  // at worst it stays as it is
}

uint32_t descriptor_limit() {
  constexpr rlim_t kMost = 1u << 30;
  return static_cast<uint32_t>(std::min(limits_now().rlim_cur, kMost));
}

uint32_t descriptor_headroom() { return std::min(kHeadroom, descriptor_limit() / 4); }

bool is_scarce(int fd) {
  const uint32_t limit = descriptor_limit();
  return fd >= 0 && static_cast<uint32_t>(fd) >= limit - std::min(kHeadroom, limit / 4);
}

}  // namespace tube::proxy
