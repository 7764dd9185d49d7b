// Finds PTX in a module image: text, the wrapper that cudart hands over (both versions), or a bare fatbin.
//
// A fatbin is a 16-byte header and entries; an entry is a header (kind, sizes, target, flags) and a payload, which LZ4 or
// zstd may have packed. Every offset is checked against the bytes there are before it is used. Where the caller has only
// a pointer (size 0) the headers' own sizes are the limit: such an image comes from the program itself.
#include <lz4.h>
#include <zstd.h>

#include <cstring>
#include <string>

#include "sim/ptx/ptx.h"

namespace tube::sim::ptx {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243B1, kFatbinMagic = 0xBA55ED50;
constexpr uint16_t kPtxEntry = 1;
constexpr uint64_t kLz4Flag = 0x2000, kZstdFlag = 0x8000;
constexpr uint64_t kMaxText = 256u << 20;

struct Wrapper {
  uint32_t magic, version;
  const void* data;
  const void* extra;
};

struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_size;
  uint64_t size;  // without the header
};
static_assert(sizeof(FatbinHeader) == 16);

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

struct Best {
  int sm = -1;
  std::string text;
  bool cubin = false;     // something else was there
  bool too_new = false;
  std::string trouble;    // why an entry could not be read
};

template <class T>
bool read(const std::byte* data, uint64_t size, uint64_t at, T* out) {
  if (at > size || size - at < sizeof(T)) return false;
  std::memcpy(out, data + at, sizeof(T));
  return true;
}

bool looks_like_text(const char* text, size_t size) {
  size_t i = 0;
  while (i < size && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r' || text[i] == '\t')) ++i;
  return i < size && (text[i] == '/' || text[i] == '.');
}

bool unpack(const EntryHeader& entry, const std::byte* payload, std::string* out, std::string* why) {
  const auto* const bytes = reinterpret_cast<const char*>(payload);
  if ((entry.flags & (kLz4Flag | kZstdFlag)) == 0) {
    out->assign(bytes, entry.payload_size);
    return true;
  }
  if (entry.uncompressed_size == 0 || entry.uncompressed_size > kMaxText) {
    *why = "a compressed entry claims an impossible size";
    return false;
  }
  // The payload is padded; compressed_size says where the stream ends.
  uint64_t packed = entry.compressed_size != 0 ? entry.compressed_size : entry.payload_size;
  if (packed > entry.payload_size) {
    *why = "a compressed entry is longer than its payload";
    return false;
  }
  out->resize(entry.uncompressed_size);
  if ((entry.flags & kZstdFlag) != 0) {
    const size_t got = ZSTD_decompress(out->data(), out->size(), bytes, packed);
    if (ZSTD_isError(got) == 0) {
      out->resize(got);
      return true;
    }
    *why = std::string("zstd: ") + ZSTD_getErrorName(got);
    return false;
  }
  const int got = LZ4_decompress_safe(bytes, out->data(), static_cast<int>(packed), static_cast<int>(out->size()));
  if (got >= 0) {
    out->resize(static_cast<size_t>(got));
    return true;
  }
  *why = "LZ4: the stream is damaged";
  return false;
}

void search(const std::byte* data, uint64_t size, int sm, Best* best) {
  FatbinHeader header;
  if (!read(data, size, 0, &header) || header.magic != kFatbinMagic || header.header_size < sizeof(header) ||
      header.header_size > size) {
    best->trouble = "the fatbin's header is damaged";
    return;
  }
  if (header.size > size - header.header_size) {
    best->trouble = "the fatbin is cut short";
    return;
  }
  const uint64_t end = header.header_size + header.size;
  uint64_t at = header.header_size;
  while (at < end) {
    EntryHeader entry;
    if (!read(data, end, at, &entry)) break;
    if (entry.header_size < sizeof(entry) || entry.header_size > end - at ||
        entry.payload_size > end - at - entry.header_size) {
      best->trouble = "a fatbin entry reaches beyond the end";
      return;
    }
    const std::byte* const payload = data + at + entry.header_size;
    at += entry.header_size + entry.payload_size;
    if (entry.kind != kPtxEntry) {
      best->cubin = true;
      continue;
    }
    const int target = static_cast<int>(entry.sm & 0xffff);
    if (target > sm) {
      best->too_new = true;
      continue;
    }
    std::string text;
    if (target > best->sm && unpack(entry, payload, &text, &best->trouble)) {
      best->sm = target;
      best->text = std::move(text);
    }
  }
}

// The size a fatbin gives itself, for callers that only have a pointer.
uint64_t own_size(const void* fatbin) {
  FatbinHeader header;
  std::memcpy(&header, fatbin, sizeof(header));
  return header.magic == kFatbinMagic ? header.header_size + header.size : sizeof(header);
}

void trim(std::string* text) {
  const size_t nul = text->find('\0');
  if (nul != std::string::npos) text->resize(nul);
}

}  // namespace

std::string find_ptx(const void* image, size_t size, int sm, std::string* why) {
  std::string ignored;
  if (why == nullptr) why = &ignored;
  why->clear();
  if (image == nullptr) {
    *why = "no image";
    return {};
  }
  const auto* const data = static_cast<const std::byte*>(image);
  uint32_t magic = 0;
  if (size == 0) {
    // Text may be shorter than a magic number: look byte by byte until one differs.
    unsigned char first[4] = {};
    for (size_t i = 0; i < 4; ++i) {
      std::memcpy(&first[i], data + i, 1);
      if (first[i] == 0) break;
    }
    std::memcpy(&magic, first, sizeof(magic));
  } else if (!read(data, size, 0, &magic)) {
    *why = "the image is too short";
    return {};
  }
  Best best;
  if (magic == kWrapperMagic) {
    Wrapper wrapper;
    if (size != 0 && size < sizeof(wrapper)) {
      *why = "the wrapper is cut short";
      return {};
    }
    std::memcpy(&wrapper, image, sizeof(wrapper));
    if (wrapper.data == nullptr) {
      *why = "the wrapper holds no fatbin";
      return {};
    }
    search(static_cast<const std::byte*>(wrapper.data), own_size(wrapper.data), sm, &best);
  } else if (magic == kFatbinMagic) {
    if (size != 0 && size < sizeof(FatbinHeader)) {
      *why = "the fatbin is cut short";
      return {};
    }
    search(data, size != 0 ? size : own_size(image), sm, &best);
  } else if (magic == 0x464C457F) {
    best.cubin = true;
  } else {
    const char* const text = static_cast<const char*>(image);
    const size_t length = size != 0 ? strnlen(text, size) : std::strlen(text);
    if (looks_like_text(text, length)) return std::string(text, length);
    *why = "neither PTX nor a fatbin";
    return {};
  }
  trim(&best.text);
  if (!best.text.empty()) return best.text;
  if (!best.trouble.empty()) *why = best.trouble;
  else if (best.too_new) *why = "only PTX for newer devices than sm_" + std::to_string(sm);
  else if (best.cubin) *why = "only machine code (a cubin), no PTX: build with -gencode arch=compute_NN,code=compute_NN";
  else *why = "the image holds no PTX";
  return {};
}

}  // namespace tube::sim::ptx
