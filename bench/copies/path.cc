#include "bench/copies/path.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/client/common.h"

namespace bench {
namespace {

constexpr size_t kStride = 64 << 10;
constexpr size_t kScratchBytes = 8 << 20;
constexpr uint64_t kSpoilt = 0xdeaddeaddeaddead;

// Pinned, for the program's life: a check moves many bytes between two measurements.
std::byte* scratch() {
  static std::byte* const bytes = [] {
    void* host = nullptr;
    CU(cuMemHostAlloc(&host, kScratchBytes, 0));
    return static_cast<std::byte*>(host);
  }();
  return bytes;
}

std::string differs(size_t offset) { return "byte " + std::to_string(offset) + " is wrong"; }

}  // namespace

std::byte* map_pages(size_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    perror("mmap");
    exit(1);
  }
  return static_cast<std::byte*>(pages);
}

void unmap_pages(std::byte* pages, size_t bytes) { munmap(pages, bytes); }

void fill(std::byte* bytes, size_t size) {
  auto* words = reinterpret_cast<uint64_t*>(bytes);
  for (size_t i = 0; i < size / 8; ++i) words[i] = pattern(i);
}

std::string compare_with_device(const std::byte* bytes, CUdeviceptr device, size_t size) {
  for (size_t at = 0; at < size; at += kScratchBytes) {
    const size_t piece = std::min(kScratchBytes, size - at);
    CU(cuMemcpyDtoH(scratch(), device + at, piece));
    if (memcmp(scratch(), bytes + at, piece) == 0) continue;
    return differs(
        at + static_cast<size_t>(std::mismatch(bytes + at, bytes + at + piece, scratch()).first -
                                 (bytes + at)));
  }
  return "";
}

Path::Path(bool up, Host kind, size_t capacity)
    : up_(up), kind_(kind), capacity_(capacity), bytes_(capacity) {
  CU(cuMemAlloc(&device_, capacity));
  if (kind == Host::kPinned) {
    void* host = nullptr;
    CU(cuMemHostAlloc(&host, capacity, 0));
    host_ = static_cast<std::byte*>(host);
  } else {
    host_ = map_pages(capacity);
  }
  if (up && kind == Host::kUntouched) return;
  fill(host_, capacity);
  if (!up) CU(cuMemcpyHtoD(device_, host_, capacity));
}

Path::~Path() {
  CU(cuMemFree(device_));
  if (kind_ == Host::kPinned) {
    CU(cuMemFreeHost(host_));
  } else {
    unmap_pages(host_, capacity_);
  }
}

void Path::refresh(uint64_t number) {
  if (kind_ == Host::kUntouched) {
    unmap_pages(host_, capacity_);
    host_ = map_pages(capacity_);
    if (up_) CU(cuMemsetD8(device_, 0xee, bytes_));
    CU(cuCtxSynchronize());
    return;
  }
  const uint64_t value = up_ ? number : kSpoilt;
  for (size_t at = 0; at < bytes_; at += kStride) *word(at) = value;
  *word(bytes_ - 8) = value;
}

void Path::start(CUstream stream, size_t offset, size_t size) {
  if (up_) {
    CU(cuMemcpyHtoDAsync(device_ + offset, host_ + offset, size, stream));
  } else {
    CU(cuMemcpyDtoHAsync(host_ + offset, device_ + offset, size, stream));
  }
}

std::string Path::wrong_in_samples() const {
  for (size_t at = 0; !up_ && at < bytes_; at += kStride) {
    if (*word(at) != pattern(at / 8)) return differs(at);
  }
  const size_t last = bytes_ - 8;
  return !up_ && *word(last) != pattern(last / 8) ? differs(last) : "";
}

std::string Path::wrong() {
  if (up_) return compare_with_device(host_, device_, bytes_);
  for (size_t i = 0; i < bytes_ / 8; ++i) {
    if (*word(8 * i) != pattern(i)) return differs(8 * i);
  }
  return "";
}

void Path::spoil() {
  if (up_) {
    CU(cuMemsetD8(device_, 0xee, bytes_));
    CU(cuCtxSynchronize());
  } else {
    memset(host_, 0xee, bytes_);
  }
}

}  // namespace bench
