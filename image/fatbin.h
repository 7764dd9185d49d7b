// Fatbins: containers of PTX and machine code for several GPUs, and how to take an entry out of
// one.
//
// A fatbin is a 16-byte header and entries; an entry is a header (kind, sizes, target, flags) and a
// payload, which LZ4 or zstd may have packed. The bytes may come from anybody: every offset is
// checked against the size before it is used, and what an entry claims to unpack to is bounded.
// Nothing here keeps state; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tube::image {

inline constexpr uint32_t kWrapperMagic =
    0x466243B1;  // what cudart hands over: a pointer to the fatbin
inline constexpr uint32_t kFatbinMagic = 0xBA55ED50;
inline constexpr uint32_t kElfMagic = 0x464C457F;
inline constexpr uint64_t kMaxUnpackedBytes = 1ull << 30;

struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_size;
  uint64_t size;  // without the header
};
static_assert(sizeof(FatbinHeader) == 16);

struct Wrapper {
  uint32_t magic, version;
  const void* data;
  const void* extra;
};

enum class EntryKind : uint16_t { kPtx = 1, kElf = 2 };

struct Entry {
  uint16_t kind = 0;  // EntryKind, or something newer
  int sm = 0;         // compute capability times ten
  uint64_t flags = 0;
  uint64_t compressed_size = 0;  // 0: to the end of the payload
  uint64_t uncompressed_size = 0;
  const std::byte* payload = nullptr;
  uint64_t payload_size = 0;

  bool is(EntryKind k) const { return kind == static_cast<uint16_t>(k); }
};

// Walks the entries of the fatbin in [data, data + size).
class FatbinReader {
 public:
  FatbinReader(const std::byte* data, uint64_t size);
  // False at the end, or at damage; trouble() then says which.
  bool next(Entry* entry);
  const char* trouble() const { return trouble_; }  // nullptr: none

 private:
  const std::byte* data_;
  uint64_t end_ = 0;
  uint64_t at_ = 0;
  const char* trouble_ = nullptr;
};

// Whether who walks the entries by their sizes alone, as the driver does, comes to no end: one
// takes no room, or so much that it leads back. The driver stays in such an image for good.
bool is_endless(const std::byte* data, uint64_t size);

// The entry's bytes as they were before packing. False: *why in one line.
bool unpack(const Entry& entry, uint64_t max_bytes, std::string* out, std::string* why);

// Unpacks the entries of one image, up to so many bytes in all: each of very many small entries may
// claim to be large, or be it.
class Unpacker {
 public:
  explicit Unpacker(uint64_t max_bytes = kMaxUnpackedBytes) : left_(max_bytes) {}
  // False: the entry cannot be read, or there is no room for it and exhausted() from then on.
  bool unpack(const Entry& entry, std::string* out);
  bool exhausted() const { return exhausted_; }

 private:
  uint64_t left_;  // of packed ones; the others take no more than the image does
  bool exhausted_ = false;
};

// The size a fatbin gives itself, for callers that only have a pointer to a program's own.
uint64_t own_size(const void* fatbin);

}  // namespace tube::image
