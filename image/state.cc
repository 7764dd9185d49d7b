#include "image/state.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "base/hash.h"
#include "image/elf_file.h"

namespace tube::image {
namespace {

constexpr unsigned kTexture = 10,
                   kSampler = 12;      // STT_CUDA_TEXTURE to STT_CUDA_SAMPLER (older code)
constexpr uint64_t kMostPadding = 16;  // of a variable

// Functions of the driver that keep nothing in the module.
constexpr std::string_view kKnownFunctions[] = {"vprintf", "malloc", "free", "__assertfail"};

bool known_function(std::string_view name) {
  for (std::string_view known : kKnownFunctions) {
    if (name == known) return true;
  }
  return false;
}

// Tables of numbers in NVIDIA's headers and in the compiler's library, as CUDA 12 and 13 have them.
struct KnownTable {
  std::string_view name;
  uint64_t bytes;
  Hash128 content;
};
constexpr KnownTable kKnownTables[] = {
    // cuRAND's headers: what XORWOW and MRG32k3a skip ahead with
    {"precalc_xorwow_matrix", 102400, {0x645dbed576eb30dc, 0x0e72f97042d503ea}},
    {"precalc_xorwow_offset_matrix", 102400, {0x9f34db3c5d00eba9, 0x2e9e8a96bed0ffc7}},
    {"mrg32k3aM1", 2304, {0xe4b0367ca9786c00, 0x72d47458969beed9}},
    {"mrg32k3aM1Seq", 2304, {0x249dd80225b6e9fa, 0x201f3b87068ad2a3}},
    {"mrg32k3aM1SubSeq", 2016, {0x579acd73ef41507c, 0xb65448542d7a495d}},
    {"mrg32k3aM2", 2304, {0x435e7c59fd9ef3f3, 0xa4213f51ebca486e}},
    {"mrg32k3aM2Seq", 2304, {0xd1b6ffd8ec86ec64, 0xb1a251597153701e}},
    {"mrg32k3aM2SubSeq", 2016, {0x772253dda47ea20b, 0x764046a922f5c982}},
    {"__cr_lgamma_table", 72, {0x776737b0a7caa83a, 0x7ca7f718a0cdfc4d}},
    // sin, cos and tan: 2/pi, and coefficients of polynomials
    {"__cudart_i2opi_d", 144, {0x8eb45bc5fa461f75, 0xb0104941ce178b68}},
    {"__cudart_i2opi_f", 24, {0xee3deca5c7f8df1c, 0x8fc8645f76bc384f}},
    {"__cudart_sin_cos_coeffs", 128, {0x4d53712b92bc0490, 0xda0d49f4d2b8c2c7}},  // CUDA 12
    {"__cudart_sin_cos_coeffs", 128, {0x072a7d84a02940c5, 0x25563964aa3796d9}},  // 13
};

bool starts_with(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}

constexpr std::string_view kUnnamed = "__unnamed_";

bool made_by_compiler(std::string_view name) {
  return starts_with(name, "$str") || starts_with(name, kUnnamed);
}

// _ZN31_INTERNAL_<file>4cuda3std...: internal linkage, and the namespace right behind the file's
// own.
bool is_library_tag(std::string_view name) {
  constexpr std::string_view kBegin = "_ZN";
  if (!starts_with(name, kBegin)) return false;
  size_t at = kBegin.size(), length = 0;
  for (; at < name.size() && name[at] >= '0' && name[at] <= '9' && length < 4096; ++at)
    length = length * 10 + static_cast<size_t>(name[at] - '0');
  if (length == 0 || length > name.size() - at || !starts_with(name.substr(at), "_INTERNAL_"))
    return false;
  const std::string_view inner = name.substr(at + length);
  return starts_with(inner, "4cuda3std") || starts_with(inner, "6thrust") ||
         starts_with(inner, "3cub") || starts_with(inner, "4cute");
}

bool is_known_table(std::string_view name, std::span<const std::byte> bytes) {
  const auto named = [&](const KnownTable& table) {
    return name == table.name && bytes.size() == table.bytes;
  };
  if (std::none_of(std::begin(kKnownTables), std::end(kKnownTables), named)) return false;
  const Hash128 content = hash128(bytes.data(), bytes.size());
  return std::any_of(
      std::begin(kKnownTables), std::end(kKnownTables),
      [&](const KnownTable& table) { return named(table) && content == table.content; });
}

bool holds_nothing(std::string_view name, uint64_t bytes) {
  return made_by_compiler(name) || (bytes == 1 && is_library_tag(name));
}

struct Variables {  // a section of variables, and what its symbols account for
  uint32_t section = 0;
  uint64_t bytes = 0;
  uint64_t known_bytes = 0;
  std::span<const std::byte> content;  // empty: zeros, which are not in the image
};

// A table is read once for each symbol that says so, and `budget` bounds that: it is no table then.
bool is_table(std::string_view name, const Elf64_Sym& symbol, const Variables& section,
              ReadBudget& budget) {
  return ELF64_ST_BIND(symbol.st_info) == STB_LOCAL && symbol.st_value <= section.content.size() &&
         symbol.st_size <= section.content.size() - symbol.st_value &&
         budget.take(symbol.st_size) &&
         is_known_table(name, section.content.subspan(symbol.st_value, symbol.st_size));
}

bool check_symbol(ElfNames& names, const Elf64_Sym& symbol, std::span<Variables> variables,
                  ReadBudget& budget) {
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  const std::string_view name = names.at(symbol.st_name);
  if (!names.good()) return false;
  if (type >= kTexture && type <= kSampler) return false;
  if (type == STT_FUNC && symbol.st_shndx == SHN_UNDEF) return known_function(name);
  if (type == STT_SECTION || symbol.st_size == 0) return true;
  for (Variables& section : variables) {
    if (section.section != symbol.st_shndx) continue;
    // A function's name has content; of zeros is a variable that the compiler found no name for.
    if (starts_with(name, kUnnamed) && section.content.empty()) return false;
    if (!holds_nothing(name, symbol.st_size) && !is_table(name, symbol, section, budget))
      return false;
    section.known_bytes += symbol.st_size + kMostPadding;
  }
  return true;
}

}  // namespace

bool code_is_stateless(std::span<const std::byte> untrusted_elf) {
  const Elf elf(untrusted_elf);
  Elf64_Shdr strings;
  if (!elf.good() || elf.type() != ET_EXEC || !elf.section(elf.section_names(), &strings))
    return false;
  ElfNames section_names(elf, strings);
  Variables variables[3];
  size_t found = 0;
  Elf64_Shdr symbols{};
  for (uint32_t i = 0; i < elf.sections(); ++i) {
    Elf64_Shdr section;
    if (!elf.section(i, &section)) return false;
    const std::string_view name = section_names.at(section.sh_name);
    if (section.sh_type == SHT_SYMTAB) symbols = section;
    if (section.sh_size == 0) continue;
    if (name != ".nv.global" && name != ".nv.global.init" && name != ".nv.constant3") continue;
    if (found == std::size(variables)) return false;
    variables[found++] = {i, section.sh_size, 0, {}};
    if (section.sh_type != SHT_NOBITS)
      variables[found - 1].content = untrusted_elf.subspan(section.sh_offset, section.sh_size);
  }
  if (!section_names.good() || symbols.sh_type != SHT_SYMTAB ||
      symbols.sh_entsize != sizeof(Elf64_Sym))
    return false;
  if (symbols.sh_size / sizeof(Elf64_Sym) > kMostSymbols || !elf.section(symbols.sh_link, &strings))
    return false;
  ElfNames names(elf, strings);
  const std::span<Variables> sections(variables, found);
  ReadBudget budget(untrusted_elf.size());
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols.sh_size; at += sizeof(Elf64_Sym)) {
    Elf64_Sym symbol;
    if (!read(untrusted_elf, symbols.sh_offset + at, &symbol) ||
        !check_symbol(names, symbol, sections, budget))
      return false;
  }
  for (const Variables& section : sections) {
    if (section.known_bytes < section.bytes) return false;
  }
  return true;
}

namespace {

std::string_view next_word(std::string_view& line) {
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return line = {};
  line.remove_prefix(begin);
  const size_t end = line.find_first_of(" \t");
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end == std::string_view::npos ? line.size() : end);
  return word;
}

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%';
}

// One variable, and the end of its declaration in this line: no list of several.
bool declares_one(std::string_view declaration) {
  int depth = 0;
  for (const char c : declaration) {
    if (c == ';') return true;
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c == ',' && depth == 0) return false;
  }
  return false;
}

// ".global .align 1 .b8 NAME[10] = {..};" or "NAME;": by the name, the type, and what follows it.
bool harmless_variable(std::string_view line) {
  std::string_view word;
  std::string_view type;
  do {
    word = next_word(line);
    if (word == ".align") {
      next_word(line);
    } else if (!word.empty() && word[0] == '.') {
      type = word;
    }
  } while (word == ".align" || (!word.empty() && word[0] == '.'));
  if (!declares_one(std::string_view(word.data(), line.data() + line.size()))) return false;
  const size_t end = word.find_first_of("[;=");
  const std::string_view name = word.substr(0, end);
  const std::string_view rest =
      end == std::string_view::npos ? std::string_view() : word.substr(end);
  // An empty text has no content; without a type and content it is a variable that the compiler
  // found no name for.
  if (made_by_compiler(name)) {
    const bool content = line.find('{') != std::string_view::npos;
    return type == ".b8" && starts_with(rest, "[") && (content || !starts_with(name, kUnnamed));
  }
  const bool one_byte =
      type == ".b8" && (starts_with(rest, ";") || starts_with(rest, "[1]") || rest.empty());
  return !name.empty() && holds_nothing(name, one_byte ? 1 : 2);
}

// An instruction's name, in front of its first point; of "sm_90" and "64" there is none.
bool is_opcode(std::string_view word) {
  return !word.empty() && word[0] >= 'a' && word[0] <= 'z' && word != "debug" &&
         std::all_of(word.begin(), word.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

// How often the line names a space for variables, or something external, outside of instructions
// (ld.global) and of what pointers point to (.ptr .global).
size_t count_declarations(std::string_view line) {
  constexpr std::string_view kSpaces[] = {"global",     "const",   "tex",   "texref",
                                          "samplerref", "surfref", "extern"};
  size_t count = 0;
  for (size_t at = line.find('.'); at != std::string_view::npos; at = line.find('.', at + 1)) {
    size_t end = at + 1;
    while (end < line.size() && is_word_character(line[end])) ++end;
    const std::string_view name = line.substr(at + 1, end - at - 1);
    if (std::find(std::begin(kSpaces), std::end(kSpaces), name) == std::end(kSpaces)) continue;
    size_t begin = at;
    while (begin > 0 && (is_word_character(line[begin - 1]) || line[begin - 1] == '.')) --begin;
    if (is_opcode(line.substr(begin, line.find('.', begin) - begin))) continue;
    const std::string_view before = line.substr(0, line.find_last_not_of(" \t", begin - 1) + 1);
    constexpr std::string_view kPointer = " .ptr";
    if (begin != 0 && begin == at && before.size() >= kPointer.size() &&
        before.substr(before.size() - kPointer.size()) == kPointer)
      continue;
    ++count;
  }
  return count;
}

bool line_is_stateless(std::string_view line) {
  constexpr std::string_view kLinkage[] = {".visible", ".extern", ".weak", ".common"};
  size_t others = count_declarations(line);  // than those that are read here
  std::string_view word = next_word(line);
  bool external = false;
  for (std::string_view linkage : kLinkage) {
    if (word != linkage) continue;
    external = word == ".extern";
    word = next_word(line);
    break;
  }
  // Compilers write a statement a line; several on one line are not read here.
  if (external) --others;
  if (word == ".global") --others;
  if (others != 0 || (external && word.empty())) return false;
  if (word == ".const" || word == ".tex" || word == ".texref" || word == ".samplerref" ||
      word == ".surfref")
    return false;
  if (word == ".func" && external) {  // .extern .func (.param .b32 func_retval0) NAME
    std::string_view name = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    name.remove_prefix(name.find_last_of(" \t)") + 1);
    return known_function(name);
  }
  return word != ".global" || harmless_variable(line);
}

}  // namespace

bool text_is_stateless(std::span<const std::byte> untrusted_text) {
  std::string_view text(reinterpret_cast<const char*>(untrusted_text.data()),
                        untrusted_text.size());
  if (text.find(".version") == std::string_view::npos || text.find("/*") != std::string_view::npos)
    return false;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line_is_stateless(line)) return false;
  }
  return true;
}

}  // namespace tube::image
