#include "image/managed_code.h"

#include <cstring>
#include <iterator>
#include <map>
#include <type_traits>
#include <unordered_map>

#include "image/elf_file.h"

namespace tube::image {
namespace {

constexpr uint32_t kOtherRelocations =
    0x70000082;  // a second form of the code, which newer GPUs' images carry beside the first

// What the relocations that reach variables mean: a whole address, or a half of it in the immediate
// operand of an instruction.
constexpr uint32_t kAddress64 = 0x02, kGeneric64 = 0x04, kLow32 = 0x38, kHigh32 = 0x39;
constexpr uint64_t kImmediateAt = 4;

bool managed(const Elf64_Sym& symbol) {
  return ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && (symbol.st_other & kManagedSymbol) != 0 &&
         symbol.st_shndx != SHN_UNDEF && symbol.st_size != 0;
}

class Placer {
 public:
  Placer(std::span<std::byte> image, const Elf& elf, const std::vector<ManagedVariable>& variables,
         std::span<const uint64_t> addresses)
      : image_(image), elf_(elf), tables_(image.size()) {
    for (size_t i = 0; i < variables.size(); ++i) {
      address_of_[variables[i].symbol] = addresses[i];
      if (variables[i].initial != 0) initial_[variables[i].initial] = variables[i].bytes;
    }
  }

  const char* run() {
    for (uint32_t i = 0; i < elf_.sections(); ++i) {
      Elf64_Shdr section;
      if (!elf_.section(i, &section)) return "a section lies outside the image";
      if (section.sh_type == kOtherRelocations && section.sh_size != 0)
        return "machine code in two forms";
      const char* why = nullptr;
      if (section.sh_type == SHT_REL) why = table<Elf64_Rel>(i, section);
      if (section.sh_type == SHT_RELA) why = table<Elf64_Rela>(i, section);
      if (why != nullptr) return why;
    }
    return nullptr;
  }

 private:
  static uint64_t addend_of(const Elf64_Rela& entry) {
    return static_cast<uint64_t>(entry.r_addend);
  }
  static uint64_t addend_of(const Elf64_Rel&) { return 0; }

  template <class Entry>
  const char* table(uint32_t index, Elf64_Shdr section) {
    Elf64_Shdr target;
    if (!tables_.take(section.sh_size)) return "relocation tables that overlap";
    if (section.sh_entsize != sizeof(Entry) || !elf_.section(section.sh_info, &target))
      return "a damaged relocation table";
    if ((target.sh_flags & SHF_ALLOC) == 0)
      return nullptr;  // debug information: the variable's own storage will do
    uint64_t kept = 0;
    for (uint64_t at = 0; section.sh_size - at >= sizeof(Entry); at += sizeof(Entry)) {
      Entry entry;
      if (!read(std::span<const std::byte>(image_), section.sh_offset + at, &entry))
        return "a damaged relocation table";
      const auto found = address_of_.find(ELF64_R_SYM(entry.r_info));
      if (found == address_of_.end()) {
        if (in_initial_value(target, entry.r_offset))
          return "an initial value that holds an address";
        std::memcpy(image_.data() + section.sh_offset + kept, &entry, sizeof entry);
        kept += sizeof entry;
        continue;
      }
      const bool in_place = std::is_same_v<Entry, Elf64_Rel>;
      if (const char* why = apply(target, ELF64_R_TYPE(entry.r_info), entry.r_offset,
                                  found->second + addend_of(entry), in_place))
        return why;
    }
    std::memset(image_.data() + section.sh_offset + kept, 0, section.sh_size - kept);
    section.sh_size = kept;
    std::memcpy(image_.data() + elf_.section_header_at(index), &section, sizeof section);
    return nullptr;
  }

  // `in_place`: what is there already is to be added.
  const char* apply(const Elf64_Shdr& target, uint32_t type, uint64_t offset, uint64_t value,
                    bool in_place) {
    const bool half = type == kLow32 || type == kHigh32;
    if (!half && type != kAddress64 && type != kGeneric64) return "an unknown relocation";
    const uint64_t at = half ? kImmediateAt : 0, bytes = half ? 4 : 8;
    if (target.sh_type == SHT_NOBITS || offset > target.sh_size ||
        target.sh_size - offset < at + bytes)
      return "a relocation outside its section";
    std::byte* to = image_.data() + target.sh_offset + offset + at;
    uint64_t there = 0;
    std::memcpy(&there, to, bytes);
    if (half && in_place && there != 0) return "a half address with an offset in place";
    if (!half && in_place) value += there;
    if (type == kHigh32) value >>= 32;
    std::memcpy(to, &value, bytes);
    return nullptr;
  }

  bool in_initial_value(const Elf64_Shdr& target, uint64_t offset) const {
    if (target.sh_type == SHT_NOBITS) return false;
    const uint64_t at = target.sh_offset + offset;
    const auto next = initial_.upper_bound(at);
    return next != initial_.begin() && at - std::prev(next)->first < std::prev(next)->second;
  }

  std::span<std::byte> image_;
  const Elf& elf_;
  ReadBudget tables_;
  std::unordered_map<uint64_t, uint64_t> address_of_;  // by symbol
  std::map<uint64_t, uint64_t> initial_;               // values: offset in the image -> bytes
};

}  // namespace

bool is_executable(std::span<const std::byte> untrusted_elf) {
  const Elf elf(untrusted_elf);
  return elf.good() && elf.type() == ET_EXEC;
}

std::vector<ManagedVariable> managed_variables(std::span<const std::byte> untrusted_elf) {
  std::vector<ManagedVariable> found;
  const Elf elf(untrusted_elf);
  Elf64_Shdr table, strings;
  if (!elf.good() || !elf.first_of_type(SHT_SYMTAB, &table) ||
      table.sh_entsize != sizeof(Elf64_Sym))
    return found;
  if (table.sh_size / sizeof(Elf64_Sym) > kMostSymbols || !elf.section(table.sh_link, &strings))
    return found;
  ElfNames names(elf, strings);
  for (uint32_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); ++i) {
    Elf64_Sym symbol;
    Elf64_Shdr home;
    if (!read(untrusted_elf, table.sh_offset + uint64_t{i} * sizeof symbol, &symbol) ||
        !managed(symbol))
      continue;
    if (!elf.section(symbol.st_shndx, &home)) continue;
    if (symbol.st_value > home.sh_size || symbol.st_size > home.sh_size - symbol.st_value) continue;
    ManagedVariable v;
    v.name = names.at(symbol.st_name);
    if (!names.good()) return {};
    v.bytes = symbol.st_size;
    v.symbol = i;
    v.initial = home.sh_type == SHT_NOBITS ? 0 : home.sh_offset + symbol.st_value;
    found.push_back(std::move(v));
  }
  return found;
}

bool place_managed(std::span<std::byte> untrusted_elf,
                   const std::vector<ManagedVariable>& variables,
                   std::span<const uint64_t> addresses, std::string* why) {
  const Elf elf(untrusted_elf);
  const char* trouble = !elf.good() || addresses.size() != variables.size()
                            ? "no machine code"
                            : Placer(untrusted_elf, elf, variables, addresses).run();
  if (trouble != nullptr) *why = trouble;
  return trouble == nullptr;
}

}  // namespace tube::image
