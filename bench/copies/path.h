// One direction of copies: a host buffer, a device buffer, and how to tell that a copy has
// happened.
//
// Before each copy refresh() changes what the copy must bring (to the device: words of the source)
// or must overwrite (from the device: words of the target), one word every 64 KiB and the last
// one, so that a copy that is left out, stale or cut short shows. wrong() compares every byte of
// the last one; behind spoil() each must have been copied.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace bench {

enum class Host {
  kPinned,     // cuMemHostAlloc
  kTouched,    // pageable, its pages are there
  kUntouched,  // pageable, mapped anew by each refresh(): the copy itself meets the page faults
};

// Pages of the program, without any behind them yet.
std::byte* map_pages(size_t bytes);
void unmap_pages(std::byte* pages, size_t bytes);

// Word `i` of what the buffers hold at first.
constexpr uint64_t pattern(size_t i) { return 0x9e3779b97f4a7c15u * (i + 1); }
// Bytes are a multiple of 8 everywhere.
void fill(std::byte* bytes, size_t size);
// Empty, or where `bytes` differ from the device's at `device`, which are read into a scratch
// buffer.
std::string compare_with_device(const std::byte* bytes, CUdeviceptr device, size_t size);

class Path {
 public:
  // Room for `capacity` bytes. `up`: to the device.
  Path(bool up, Host kind, size_t capacity);
  ~Path();
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  size_t capacity() const { return capacity_; }
  // How much of it the next copies move.
  void use(size_t bytes) { bytes_ = bytes; }
  void refresh(uint64_t number);
  // The copy of `size` bytes from `offset` on; all that is in use without arguments.
  void start(CUstream stream) { start(stream, 0, bytes_); }
  void start(CUstream stream, size_t offset, size_t size);
  // From the device: whether each word that refresh() spoilt has been overwritten.
  std::string wrong_in_samples() const;
  std::string wrong();
  // Makes the device's bytes (the host's, from the device) such that only copies mend them.
  void spoil();

  CUdeviceptr device() const { return device_; }
  std::byte* host() const { return host_; }

 private:
  uint64_t* word(size_t offset) const { return reinterpret_cast<uint64_t*>(host_ + offset); }

  const bool up_;
  const Host kind_;
  const size_t capacity_;
  size_t bytes_;
  std::byte* host_ = nullptr;
  CUdeviceptr device_ = 0;
};

}  // namespace bench
