// Fatbins made by hand, entry by entry.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "image/fatbin.h"

namespace tube::image {

struct EntryBytes {
  uint16_t kind, version;
  uint32_t header_size;
  uint64_t payload_size;
  uint32_t compressed_size, unknown0, unknown1, sm;
  uint64_t unknown2, flags, unknown3, uncompressed_size;
};
static_assert(sizeof(EntryBytes) == 64);

struct Part {
  EntryKind kind;
  uint32_t sm;
  std::string payload;
  uint64_t claims = 0;  // bytes that it says are packed in it; 0: it is not packed
};

inline std::string fatbin_of(const std::vector<Part>& parts) {
  std::string body;
  for (const Part& part : parts) {
    EntryBytes entry{};
    entry.kind = static_cast<uint16_t>(part.kind);
    entry.header_size = sizeof entry;
    entry.payload_size = part.payload.size();
    entry.sm = part.sm;
    if (part.claims != 0) entry.flags = 0x2000;
    entry.uncompressed_size = part.claims;
    body.append(reinterpret_cast<const char*>(&entry), sizeof entry).append(part.payload);
  }
  const FatbinHeader header{kFatbinMagic, 1, sizeof header, body.size()};
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

}  // namespace tube::image
