#include "image/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <climits>
#include <cstring>

namespace tube::image {
namespace {

constexpr uint64_t kLz4Flag = 0x2000, kZstdFlag = 0x8000;

struct EntryHeader {
  uint16_t kind, version;
  uint32_t header_size;
  uint64_t payload_size;
  uint32_t compressed_size;
  uint32_t unknown0;
  uint32_t unknown1;
  uint32_t sm;
  uint64_t unknown2;
  uint64_t flags;
  uint64_t unknown3;
  uint64_t uncompressed_size;
};
static_assert(sizeof(EntryHeader) == 64);

template <class T>
bool read(const std::byte* data, uint64_t size, uint64_t at, T* out) {
  if (at > size || size - at < sizeof(T)) return false;
  std::memcpy(out, data + at, sizeof(T));
  return true;
}

bool is_packed(const Entry& entry) { return (entry.flags & (kLz4Flag | kZstdFlag)) != 0; }

}  // namespace

FatbinReader::FatbinReader(const std::byte* data, uint64_t size) : data_(data) {
  FatbinHeader header;
  if (!read(data, size, 0, &header) || header.magic != kFatbinMagic ||
      header.header_size < sizeof(header) || header.header_size > size) {
    trouble_ = "the fatbin's header is damaged";
  } else if (header.size > size - header.header_size) {
    trouble_ = "the fatbin is cut short";
  } else {
    end_ = header.header_size + header.size;
    at_ = header.header_size;
  }
}

bool FatbinReader::next(Entry* entry) {
  EntryHeader header;
  if (trouble_ != nullptr || at_ >= end_ || !read(data_, end_, at_, &header)) return false;
  if (header.header_size < sizeof(header) || header.header_size > end_ - at_ ||
      header.payload_size > end_ - at_ - header.header_size) {
    trouble_ = "a fatbin entry reaches beyond the end";
    return false;
  }
  entry->kind = header.kind;
  entry->sm = static_cast<int>(header.sm & 0xffff);
  entry->flags = header.flags;
  entry->compressed_size = header.compressed_size;
  entry->uncompressed_size = header.uncompressed_size;
  entry->payload = data_ + at_ + header.header_size;
  entry->payload_size = header.payload_size;
  at_ += header.header_size + header.payload_size;
  return true;
}

bool is_endless(const std::byte* data, uint64_t size) {
  FatbinHeader head;
  if (!read(data, size, 0, &head) || head.magic != kFatbinMagic) return false;
  EntryHeader entry;
  for (uint64_t at = head.header_size; at - head.header_size < head.size;) {
    if (!read(data, size, at, &entry)) return false;
    const uint64_t next = at + entry.header_size + entry.payload_size;
    if (next <= at) return true;
    at = next;
  }
  return false;
}

bool unpack(const Entry& entry, uint64_t max_bytes, std::string* out, std::string* why) {
  const auto* const bytes = reinterpret_cast<const char*>(entry.payload);
  if (!is_packed(entry)) {
    out->assign(bytes, entry.payload_size);
    return true;
  }
  if (entry.uncompressed_size == 0 || entry.uncompressed_size > max_bytes ||
      entry.uncompressed_size > kMaxUnpackedBytes) {
    *why = "a compressed entry claims an impossible size";
    return false;
  }
  // The payload is padded; compressed_size says where the stream ends.
  const uint64_t packed = entry.compressed_size != 0 ? entry.compressed_size : entry.payload_size;
  if (packed > entry.payload_size || packed > INT_MAX) {
    *why = "a compressed entry is longer than its payload";
    return false;
  }
  out->resize(entry.uncompressed_size);
  if ((entry.flags & kZstdFlag) != 0) {
    const size_t got = ZSTD_decompress(out->data(), out->size(), bytes, packed);
    if (ZSTD_isError(got) != 0) {
      *why = std::string("zstd: ") + ZSTD_getErrorName(got);
      return false;
    }
    out->resize(got);
    return true;
  }
  const int got = LZ4_decompress_safe(bytes, out->data(), static_cast<int>(packed),
                                      static_cast<int>(out->size()));
  if (got < 0) {
    *why = "LZ4: the stream is damaged";
    return false;
  }
  out->resize(static_cast<size_t>(got));
  return true;
}

bool Unpacker::unpack(const Entry& entry, std::string* out) {
  const uint64_t bytes = is_packed(entry) ? entry.uncompressed_size : 0;
  exhausted_ = exhausted_ || bytes > left_;
  if (exhausted_) return false;
  left_ -= bytes;
  std::string why;
  return image::unpack(entry, kMaxUnpackedBytes, out, &why);
}

uint64_t own_size(const void* fatbin) {
  FatbinHeader header;
  std::memcpy(&header, fatbin, sizeof(header));
  return header.magic == kFatbinMagic ? header.header_size + header.size : sizeof(header);
}

}  // namespace tube::image
