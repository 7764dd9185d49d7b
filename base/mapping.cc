#include "base/mapping.h"

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

namespace tube {
namespace {

std::string describe(const char* verb, uint64_t address, uint64_t size_bytes) {
  char text[128];
  if (address == 0) {
    std::snprintf(text, sizeof(text), "cannot %s %llu bytes of memory", verb,
                  static_cast<unsigned long long>(size_bytes));
  } else {
    std::snprintf(text, sizeof(text), "cannot %s %llu bytes of memory at 0x%llx", verb,
                  static_cast<unsigned long long>(size_bytes),
                  static_cast<unsigned long long>(address));
  }
  return text;
}

// mmap with MAP_FIXED_NOREPLACE; a kernel before 4.17 takes the address as a hint, which is then an
// EEXIST too.
void* map_exactly(uint64_t address, uint64_t size_bytes, int protection, int flags, int fd,
                  uint64_t offset) {
  void* wanted = reinterpret_cast<void*>(address);
  void* got = ::mmap(wanted, size_bytes, protection, flags | MAP_FIXED_NOREPLACE, fd,
                     static_cast<off_t>(offset));
  if (got == MAP_FAILED || got == wanted) return got;
  ::munmap(got, size_bytes);
  errno = EEXIST;
  return MAP_FAILED;
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    address_ = std::exchange(other.address_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

Result<Mapping> Mapping::map(int fd, uint64_t offset, uint64_t size_bytes, int protection) {
  void* address =
      ::mmap(nullptr, size_bytes, protection, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) return errno_error(errno, describe("map", 0, size_bytes));
  return Mapping(address, size_bytes);
}

Result<Mapping> Mapping::map_at(uint64_t address, int fd, uint64_t offset, uint64_t size_bytes,
                                int protection) {
  void* got = map_exactly(address, size_bytes, protection, MAP_SHARED, fd, offset);
  if (got == MAP_FAILED) return errno_error(errno, describe("map", address, size_bytes));
  return Mapping(got, size_bytes);
}

Result<Mapping> Mapping::reserve_at(uint64_t address, uint64_t size_bytes) {
  void* got = map_exactly(address, size_bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) return errno_error(errno, describe("reserve", address, size_bytes));
  return Mapping(got, size_bytes);
}

Result<Mapping> Mapping::map_ring(int fd, uint64_t offset, uint64_t size_bytes) {
  // Reserve both halves first, then replace our own reservation: nobody else's mapping can be hit.
  void* both = ::mmap(nullptr, 2 * size_bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (both == MAP_FAILED) return errno_error(errno, describe("reserve", 0, 2 * size_bytes));
  Mapping ring(both, 2 * size_bytes);
  for (uint64_t half = 0; half < 2; ++half) {
    void* at = ring.data() + half * size_bytes;
    void* got = ::mmap(at, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                       static_cast<off_t>(offset));
    if (got == MAP_FAILED) return errno_error(errno, describe("map the ring of", 0, size_bytes));
  }
  return ring;
}

void Mapping::reset() {
  if (address_ != nullptr) ::munmap(address_, size_bytes_);
  address_ = nullptr;
  size_bytes_ = 0;
}

void* Mapping::release() {
  size_bytes_ = 0;
  return std::exchange(address_, nullptr);
}

}  // namespace tube
