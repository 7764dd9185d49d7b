// The ELF file that machine code for GPUs comes in: sections, symbols, names. The bytes may come
// from anybody: every offset is checked against the size before it is used, and what is read again
// and again (names, tables that may lie upon each other) is bounded by the image's size, so that
// whatever reads an image through this takes time linear in it. Keeps nothing but a view of the
// bytes; any thread.
#pragma once

#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace tube::image {

inline constexpr uint16_t kCudaMachine = 190;
inline constexpr unsigned char kManagedSymbol = 4;  // in st_other: a __managed__ variable
inline constexpr size_t kMostSymbols =
    1u << 20;  // the largest known image has some ten thousand kernels
inline constexpr size_t kMostNameBytes =
    64u << 10;  // of one name; those of templates reach some thousands

template <class T>
bool read(std::span<const std::byte> bytes, uint64_t at, T* out) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T)) return false;
  std::memcpy(out, bytes.data() + at, sizeof(T));
  return true;
}

class Elf {
 public:
  explicit Elf(std::span<const std::byte> bytes) : bytes_(bytes) {
    good_ = read(bytes, 0, &header_) && std::memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0 &&
            header_.e_ident[EI_CLASS] == ELFCLASS64 && header_.e_machine == kCudaMachine &&
            header_.e_shentsize == sizeof(Elf64_Shdr) && header_.e_shoff <= bytes.size() &&
            (bytes.size() - header_.e_shoff) / sizeof(Elf64_Shdr) >= header_.e_shnum;
  }
  bool good() const { return good_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  uint16_t type() const { return header_.e_type; }
  uint32_t sections() const { return header_.e_shnum; }
  uint32_t section_names() const { return header_.e_shstrndx; }
  uint64_t section_header_at(uint32_t index) const {
    return header_.e_shoff + uint64_t{index} * sizeof(Elf64_Shdr);
  }

  // The header alone: what it says about bytes is not checked. False: there is none.
  bool section_header(uint32_t index, Elf64_Shdr* out) const {
    return index < sections() && read(bytes_, section_header_at(index), out);
  }
  // False: there is none, or its bytes are not in the image.
  bool section(uint32_t index, Elf64_Shdr* out) const {
    if (!section_header(index, out)) return false;
    return out->sh_type == SHT_NOBITS ||
           (out->sh_offset <= bytes_.size() && out->sh_size <= bytes_.size() - out->sh_offset);
  }
  bool first_of_type(uint32_t type, Elf64_Shdr* out) const {
    for (uint32_t i = 0; i < sections(); ++i) {
      if (section(i, out) && out->sh_type == type) return true;
    }
    return false;
  }

 private:
  std::span<const std::byte> bytes_;
  Elf64_Ehdr header_{};
  bool good_ = false;
};

// What may still be read of an image in one pass. A compiler's tables and names do not overlap; a
// hostile image's may, each as long as the image.
class ReadBudget {
 public:
  explicit ReadBudget(uint64_t bytes) : left_(bytes) {}
  // False, then for good: more was asked for than there is.
  bool take(uint64_t bytes) {
    good_ = good_ && bytes <= left_;
    left_ -= good_ ? bytes : 0;
    return good_;
  }
  bool good() const { return good_; }
  uint64_t left() const { return left_; }

 private:
  uint64_t left_;
  bool good_ = true;
};

// The names of one table of strings, as views into the image. All that are taken of one such object
// are not longer, together, than the image (a sixth of it at most in cuSPARSE and nvJPEG).
class ElfNames {
 public:
  // `strings`: as Elf::section() gave it, or empty.
  ElfNames(const Elf& elf, const Elf64_Shdr& strings) : budget_(elf.bytes().size()) {
    if (strings.sh_type != SHT_NOBITS && strings.sh_type != SHT_NULL)
      table_ = elf.bytes().subspan(strings.sh_offset, strings.sh_size);
  }
  // Up to the NUL or the table's end; empty when `at` lies outside. A name that is too long, and
  // all names when they are too many bytes, are damage: empty, and good() says so from then on.
  std::string_view at(uint64_t at) {
    if (at >= table_.size() || !budget_.good()) return {};
    const char* const text = reinterpret_cast<const char*>(table_.data() + at);
    const size_t length = strnlen(text, std::min<uint64_t>(table_.size() - at, kMostNameBytes + 1));
    if (!budget_.take(length <= kMostNameBytes ? length + 1 : budget_.left() + 1)) return {};
    return {text, length};
  }
  bool good() const { return budget_.good(); }

 private:
  std::span<const std::byte> table_;
  ReadBudget budget_;
};

}  // namespace tube::image
