// A memory mapping with one owner.
//
// Three ways to get one: anywhere (map), at an agreed address without ever replacing what is there
// (map_at, reserve_at), and twice in a row (map_ring), so that a ring's records never wrap: byte i
// and byte i + n are the same memory.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace tube {

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { reset(); }

  // Shared mapping of `fd`, at an address of the kernel's choice. Error code: errno.
  static Result<Mapping> map(int fd, uint64_t offset, uint64_t size_bytes, int protection);
  // The same at `address`; EEXIST when any part of the range is taken (nothing is replaced).
  static Result<Mapping> map_at(uint64_t address, int fd, uint64_t offset, uint64_t size_bytes,
                                int protection);
  // Inaccessible memory at `address`: holds the range and costs nothing. EEXIST as above, ENOMEM
  // under `ulimit -v`.
  static Result<Mapping> reserve_at(uint64_t address, uint64_t size_bytes);
  // `size_bytes` of `fd` mapped twice in a row, read and write.
  static Result<Mapping> map_ring(int fd, uint64_t offset, uint64_t size_bytes);

  std::byte* data() const { return static_cast<std::byte*>(address_); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(address_); }
  uint64_t size() const { return size_bytes_; }
  bool valid() const { return address_ != nullptr; }

  void reset();
  // Gives the range up without unmapping: it stays for the life of the process (the hook's leaked
  // state).
  void* release();

 private:
  Mapping(void* address, uint64_t size_bytes) : address_(address), size_bytes_(size_bytes) {}
  void* address_ = nullptr;
  uint64_t size_bytes_ = 0;
};

}  // namespace tube
