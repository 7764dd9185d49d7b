#include "sim/machine/linked_image.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "image/elf_file.h"
#include "image/managed_code.h"

namespace tube::sim {
namespace {

constexpr char kTexts[] = ".tube.sim.ptx";
constexpr uint64_t kAddress64 = 2;  // the type of the slots' relocations
constexpr uint64_t kValueAlign = 16;

// The sections, in the order of their headers; the last six only when there are managed variables.
enum Section : uint16_t {
  kNull,
  kSectionNames,
  kText,
  kSymbolNames,
  kSymbols,
  kInitial,
  kZero,
  kSlots,
  kRelocations,
  kAllSections
};

class Writer {
 public:
  void add(Section index, const char* name, uint32_t type, uint64_t flags, const std::string& bytes,
           uint64_t size) {
    Elf64_Shdr& s = headers_[index];
    s.sh_name = static_cast<uint32_t>(names_.size());
    names_.append(name).push_back('\0');
    s.sh_type = type;
    s.sh_flags = flags;
    body_.resize((body_.size() + 7) / 8 * 8, '\0');
    s.sh_offset = sizeof(Elf64_Ehdr) + body_.size();
    s.sh_size = size;
    s.sh_addralign = 8;
    body_ += bytes;
    count_ = std::max<uint16_t>(count_, static_cast<uint16_t>(index + 1));
  }
  Elf64_Shdr& header(Section index) { return headers_[index]; }

  std::string finish() {
    names_ += std::string(".shstrtab") + '\0';
    const auto own_name = static_cast<uint32_t>(names_.size() - sizeof ".shstrtab");
    const std::string names = names_;
    add(kSectionNames, "", SHT_STRTAB, 0, names, names.size());
    headers_[kSectionNames].sh_name = own_name;
    body_.resize((body_.size() + 7) / 8 * 8, '\0');
    Elf64_Ehdr h{};
    std::memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64;
    h.e_ident[EI_DATA] = ELFDATA2LSB;
    h.e_ident[EI_VERSION] = EV_CURRENT;
    h.e_type = ET_EXEC;
    h.e_machine = image::kCudaMachine;
    h.e_version = EV_CURRENT;
    h.e_ehsize = sizeof h;
    h.e_shentsize = sizeof(Elf64_Shdr);
    h.e_shnum = count_;
    h.e_shstrndx = kSectionNames;
    h.e_shoff = sizeof h + body_.size();
    std::string out(reinterpret_cast<const char*>(&h), sizeof h);
    out += body_;
    out.append(reinterpret_cast<const char*>(headers_), count_ * sizeof(Elf64_Shdr));
    return out;
  }

 private:
  Elf64_Shdr headers_[kAllSections] = {};
  std::string names_ = std::string(1, '\0');
  std::string body_;
  uint16_t count_ = 0;
};

template <class T>
void append(std::string* to, const T& value) {
  to->append(reinterpret_cast<const char*>(&value), sizeof value);
}

void add_managed(Writer& writer, const std::vector<ptx::Variable>& variables) {
  std::string names(1, '\0'), initial, relocations;
  std::string symbols(sizeof(Elf64_Sym), '\0');
  uint64_t zero_bytes = 0, count = 0;
  for (const ptx::Variable& v : variables) {
    if (!v.managed) continue;
    Elf64_Sym symbol{};
    symbol.st_name = static_cast<uint32_t>(names.size());
    names.append(v.name).push_back('\0');
    symbol.st_info = ELF64_ST_INFO(v.visible ? STB_GLOBAL : STB_LOCAL, STT_OBJECT);
    symbol.st_other = image::kManagedSymbol;
    symbol.st_shndx = v.image.empty() ? kZero : kInitial;
    symbol.st_size = v.size;
    if (v.image.empty()) {
      symbol.st_value = zero_bytes;
      zero_bytes += (v.size + kValueAlign - 1) / kValueAlign * kValueAlign;
    } else {
      symbol.st_value = initial.size();
      initial.append(reinterpret_cast<const char*>(v.image.data()),
                     std::min<uint64_t>(v.image.size(), v.size));
      initial.resize(symbol.st_value + (v.size + kValueAlign - 1) / kValueAlign * kValueAlign,
                     '\0');
    }
    ++count;
    append(&symbols, symbol);
    append(&relocations, Elf64_Rela{(count - 1) * 8, ELF64_R_INFO(count, kAddress64), 0});
  }
  if (count == 0) return;
  writer.add(kSymbolNames, ".strtab", SHT_STRTAB, 0, names, names.size());
  writer.add(kSymbols, ".symtab", SHT_SYMTAB, 0, symbols, symbols.size());
  writer.header(kSymbols).sh_link = kSymbolNames;
  writer.header(kSymbols).sh_entsize = sizeof(Elf64_Sym);
  writer.add(kInitial, ".nv.global.init", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, initial,
             initial.size());
  writer.add(kZero, ".nv.global", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, "", zero_bytes);
  writer.add(kSlots, ".nv.constant4", SHT_PROGBITS, SHF_ALLOC, std::string(count * 8, '\0'),
             count * 8);
  writer.add(kRelocations, ".rela.nv.constant4", SHT_RELA, SHF_INFO_LINK, relocations,
             relocations.size());
  writer.header(kRelocations).sh_link = kSymbols;
  writer.header(kRelocations).sh_info = kSlots;
  writer.header(kRelocations).sh_entsize = sizeof(Elf64_Rela);
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : elf_(bytes) {}
  bool has(Section index) const {
    return elf_.good() && (elf_.sections() == kText + 1 || elf_.sections() == kAllSections) &&
           index < elf_.sections();
  }
  // Empty when it does not lie in the image.
  std::span<const std::byte> section(Section index) const {
    Elf64_Shdr s;
    return elf_.section(index, &s) && s.sh_type != SHT_NOBITS
               ? bytes().subspan(s.sh_offset, s.sh_size)
               : std::span<const std::byte>{};
  }
  bool named(Section index, std::string_view name) const {
    Elf64_Shdr s, strings;
    return elf_.section(index, &s) && elf_.section(kSectionNames, &strings) &&
           image::ElfNames(elf_, strings).at(s.sh_name) == name;
  }
  std::span<const std::byte> bytes() const { return elf_.bytes(); }

 private:
  image::Elf elf_;
};

void find_placed(const Reader& reader, std::vector<PlacedVariable>* placed) {
  const auto slots = reader.section(kSlots);
  const auto relocations = reader.section(kRelocations);
  std::vector<bool> open(slots.size() / 8, false);
  for (size_t at = 0; relocations.size() - at >= sizeof(Elf64_Rela); at += sizeof(Elf64_Rela)) {
    Elf64_Rela entry;
    std::memcpy(&entry, relocations.data() + at, sizeof entry);
    if (entry.r_offset / 8 < open.size()) open[entry.r_offset / 8] = true;
  }
  const auto variables = image::managed_variables(reader.bytes());
  for (size_t i = 0; i < variables.size() && i < open.size(); ++i) {
    if (open[i]) continue;
    uint64_t address = 0;
    std::memcpy(&address, slots.data() + i * 8, sizeof address);
    placed->push_back({variables[i].name, address});
  }
}

}  // namespace

std::string pack_linked(const std::vector<std::string>& texts,
                        const std::vector<ptx::Variable>& variables) {
  std::string body;
  for (const std::string& t : texts) {
    append(&body, uint64_t{t.size()});
    body += t;
  }
  Writer writer;
  writer.add(kText, kTexts, SHT_PROGBITS, 0, body, body.size());
  add_managed(writer, variables);
  return writer.finish();
}

bool unpack_linked(const void* image, size_t size, std::vector<std::string_view>* texts,
                   std::vector<PlacedVariable>* placed) {
  const Reader reader({static_cast<const std::byte*>(image), size});
  if (!reader.has(kText) || !reader.named(kText, kTexts)) return false;
  const auto body = reader.section(kText);
  for (uint64_t at = 0; body.size() - at >= 8;) {
    uint64_t n = 0;
    std::memcpy(&n, body.data() + at, sizeof n);
    at += sizeof n;
    if (n > body.size() - at) return false;
    texts->emplace_back(reinterpret_cast<const char*>(body.data()) + at, n);
    at += n;
  }
  if (placed != nullptr && reader.has(kRelocations)) find_placed(reader, placed);
  return !texts->empty();
}

}  // namespace tube::sim
