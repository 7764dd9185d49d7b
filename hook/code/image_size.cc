#include "hook/code/image_size.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace tube::hook {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243B1;
constexpr uint32_t kFatbinMagic = 0xBA55ED50;
constexpr uint64_t kTooLarge = 1ull << 40;

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
  void* extra;
};

struct FatbinHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t payload_bytes;
};

uint64_t elf_bytes(const std::byte* data) {
  Elf64_Ehdr h;
  std::memcpy(&h, data, sizeof h);
  if (h.e_ident[EI_CLASS] != ELFCLASS64) return 0;
  uint64_t end = sizeof h;
  auto cover = [&end](uint64_t offset, uint64_t bytes) {
    if (offset < kTooLarge && bytes < kTooLarge) end = std::max(end, offset + bytes);
  };
  cover(h.e_phoff,
        uint64_t{h.e_phnum} * h.e_phentsize);  // program headers come last in 13.0 cubins
  cover(h.e_shoff, uint64_t{h.e_shnum} * h.e_shentsize);
  if (h.e_shentsize >= sizeof(Elf64_Shdr)) {
    for (uint32_t i = 0; i < h.e_shnum; ++i) {
      Elf64_Shdr s;
      std::memcpy(&s, data + h.e_shoff + uint64_t{i} * h.e_shentsize, sizeof s);
      if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL) cover(s.sh_offset, s.sh_size);
    }
  }
  if (h.e_phentsize >= sizeof(Elf64_Phdr)) {
    for (uint32_t i = 0; i < h.e_phnum; ++i) {
      Elf64_Phdr p;
      std::memcpy(&p, data + h.e_phoff + uint64_t{i} * h.e_phentsize, sizeof p);
      cover(p.p_offset, p.p_filesz);
    }
  }
  return end;
}

}  // namespace

Image find_image(const void* pointer) {
  const auto* data = static_cast<const std::byte*>(pointer);
  if (data == nullptr) return {};
  if (static_cast<char>(data[0]) == 0) return {};
  uint32_t magic = 0;
  // Text may be shorter than four bytes: stop at its NUL.
  for (unsigned i = 0; i < sizeof magic && static_cast<char>(data[i]) != 0; ++i) {
    magic |= static_cast<uint32_t>(data[i]) << (8 * i);
  }
  if (magic == kWrapperMagic) {
    Wrapper w;
    std::memcpy(&w, data, sizeof w);
    return w.data == pointer ? Image{} : find_image(w.data);
  }
  if (magic == kFatbinMagic) {
    FatbinHeader h;
    std::memcpy(&h, data, sizeof h);
    if (h.header_bytes < sizeof h || h.payload_bytes >= kTooLarge) return {};
    return {data, h.header_bytes + h.payload_bytes};
  }
  if (std::memcmp(&magic, ELFMAG, SELFMAG) == 0) return {data, elf_bytes(data)};
  return {data, std::strlen(reinterpret_cast<const char*>(data)) + 1};
}

}  // namespace tube::hook
