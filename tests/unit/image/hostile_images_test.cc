// Images made to cost: tables and names that lie upon each other, so that a small image says more
// than any memory holds. Each of these would take what reads them minutes or gigabytes if it
// believed them; the answer is that they are damaged.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "image/elf_file.h"
#include "image/kernel_calls.h"
#include "image/managed_code.h"
#include "image/state.h"
#include "tests/unit/image/cubins.h"

namespace tube::image {
namespace {

using namespace std::string_literals;

constexpr size_t kTableBytes = 8u << 20, kSymbols = 300'000, kSections = 60'000;
constexpr const char* kWanted[] = {"vprintf"};

// An executable with symbols and their names, and behind the usual sections others whose headers
// the test makes.
class HostileElf {
 public:
  std::vector<Elf64_Sym> symbols;
  std::string strings;  // of the symbols
  std::string section_strings = "\0.nv.callgraph\0"s;
  std::vector<Elf64_Shdr> more;  // offset and size 0: all of the image

  std::string bytes() const {
    std::string out(sizeof(Elf64_Ehdr), '\0');
    std::vector<Elf64_Shdr> headers(1, Elf64_Shdr{});
    const auto add = [&](uint32_t type, const void* data, size_t size) -> Elf64_Shdr& {
      Elf64_Shdr header{};
      header.sh_type = type;
      header.sh_offset = out.size();
      header.sh_size = size;
      out.append(static_cast<const char*>(data), size);
      return headers.emplace_back(header);
    };
    add(SHT_STRTAB, section_strings.data(), section_strings.size());
    add(SHT_STRTAB, strings.data(), strings.size());
    Elf64_Shdr& table = add(SHT_SYMTAB, symbols.data(), symbols.size() * sizeof(Elf64_Sym));
    table.sh_link = 2;
    table.sh_entsize = sizeof(Elf64_Sym);
    headers.insert(headers.end(), more.begin(), more.end());
    for (Elf64_Shdr& header : headers) {
      if (header.sh_type != SHT_NULL && header.sh_size == 0)
        header.sh_size = out.size() / sizeof(Elf64_Rel) * sizeof(Elf64_Rel);
    }
    Elf64_Ehdr elf{};
    std::memcpy(elf.e_ident, ELFMAG, SELFMAG);
    elf.e_ident[EI_CLASS] = ELFCLASS64;
    elf.e_type = ET_EXEC;
    elf.e_machine = kCudaMachine;
    elf.e_shoff = out.size();
    elf.e_shentsize = sizeof(Elf64_Shdr);
    elf.e_shnum = static_cast<uint16_t>(headers.size());
    elf.e_shstrndx = 1;
    std::memcpy(out.data(), &elf, sizeof(elf));
    return out.append(reinterpret_cast<const char*>(headers.data()),
                      headers.size() * sizeof(Elf64_Shdr));
  }
};

Elf64_Sym symbol(uint32_t name, unsigned type, uint16_t section = 1) {
  Elf64_Sym made{};
  made.st_name = name;
  made.st_info = static_cast<unsigned char>(ELF64_ST_INFO(STB_GLOBAL, type));
  made.st_other = type == STT_OBJECT ? kManagedSymbol : 0;
  made.st_shndx = section;
  made.st_size = 1;
  return made;
}

void expect_damaged(const std::string& image) {
  EXPECT_TRUE(managed_variables(view(image)).empty());
  EXPECT_FALSE(code_is_stateless(view(image)));
  CallsByFunction calls;
  EXPECT_FALSE(kernel_calls(view(image), kWanted, &calls));
  EXPECT_TRUE(calls.empty());
}

class OfEachType : public testing::TestWithParam<unsigned> {};

TEST_P(OfEachType, OneNameAsLongAsItsTableForAllSymbols) {
  HostileElf elf;
  elf.strings.assign(kTableBytes, 'x');
  elf.symbols.assign(kSymbols, symbol(0, GetParam()));
  expect_damaged(elf.bytes());
}

TEST_P(OfEachType, NamesThatAreEachOthersEnds) {
  HostileElf elf;
  elf.strings.assign(kTableBytes, 'x');
  for (size_t at = 0; at < kTableBytes; at += kMostNameBytes / 2)
    elf.strings[at] = '\0';  // none is too long by itself
  for (uint32_t i = 0; i < kSymbols; ++i) elf.symbols.push_back(symbol(i + 1, GetParam()));
  expect_damaged(elf.bytes());
}

TEST_P(OfEachType, MoreSymbolsThanAnyCompilerMakes) {
  HostileElf elf;
  elf.strings = "\0x\0"s;
  elf.symbols.assign(kMostSymbols + 1, symbol(1, GetParam()));
  expect_damaged(elf.bytes());
}

TEST_P(OfEachType, ManyHonestNamesAreRead) {
  HostileElf elf;
  elf.strings.assign(1, '\0');
  for (uint32_t i = 0; i < 100'000; ++i) {
    elf.symbols.push_back(symbol(static_cast<uint32_t>(elf.strings.size()), GetParam()));
    elf.strings += "a_kernel_of_some_library_" + std::to_string(i) + '\0';
  }
  const std::string image = elf.bytes();
  EXPECT_TRUE(code_is_stateless(view(image)));
  EXPECT_EQ(managed_variables(view(image)).size(),
            GetParam() == STT_OBJECT ? elf.symbols.size() : 0u);
  CallsByFunction calls;
  EXPECT_TRUE(kernel_calls(view(image), kWanted, &calls));
  EXPECT_EQ(calls.size(), GetParam() == STT_FUNC ? elf.symbols.size() : 0u);
}

INSTANTIATE_TEST_SUITE_P(Symbols, OfEachType, testing::Values(STT_OBJECT, STT_FUNC));

TEST(HostileImages, SectionNamesThatAreOneLongName) {
  HostileElf elf;
  elf.symbols.push_back(symbol(0, STT_FUNC));
  elf.strings.assign(1, '\0');
  elf.section_strings.assign(kTableBytes, 'x');
  for (size_t at = 0; at < kTableBytes; at += kMostNameBytes / 2) elf.section_strings[at] = '\0';
  for (uint32_t i = 0; i < kSections; ++i) {
    Elf64_Shdr section{};
    section.sh_type = SHT_PROGBITS;
    section.sh_name = i + 1;
    elf.more.push_back(section);
  }
  const std::string image = elf.bytes();
  EXPECT_FALSE(code_is_stateless(view(image)));
  CallsByFunction calls;
  EXPECT_FALSE(kernel_calls(view(image), kWanted, &calls));
  EXPECT_TRUE(calls.empty());
}

TEST(HostileImages, CallGraphsThatAreOneAndTheSame) {
  HostileElf elf;
  elf.strings.assign(kTableBytes, '\0');
  for (uint32_t i = 0; i < 1000; ++i) elf.symbols.push_back(symbol(0, STT_FUNC));
  Elf64_Shdr section{};
  section.sh_type = SHT_PROGBITS;
  section.sh_name = 1;  // .nv.callgraph
  elf.more.assign(kSections, section);
  CallsByFunction calls;
  EXPECT_FALSE(kernel_calls(view(elf.bytes()), kWanted, &calls));
}

TEST(HostileImages, RelocationTablesThatAreOneAndTheSame) {
  HostileElf elf;
  elf.strings = std::string("\0x", 2) + std::string(kTableBytes, '\0');
  elf.symbols = {Elf64_Sym{}, symbol(1, STT_OBJECT)};
  Elf64_Shdr section{};
  section.sh_type = SHT_REL;
  section.sh_entsize = sizeof(Elf64_Rel);
  section.sh_info = 4;  // the first of them
  section.sh_flags = SHF_ALLOC;
  elf.more.assign(kSections, section);
  std::string image = elf.bytes(), why;
  const std::vector<ManagedVariable> variables = managed_variables(view(image));
  ASSERT_EQ(variables.size(), 1u);
  const uint64_t address = 0x1000;
  EXPECT_FALSE(
      place_managed(std::as_writable_bytes(std::span(image)), variables, {&address, 1}, &why));
  EXPECT_EQ(why, "relocation tables that overlap");
}

}  // namespace
}  // namespace tube::image
