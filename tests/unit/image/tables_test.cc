// Tables in NVIDIA's headers are no state of a program: on cubins that nvcc made of tables.cu, as
// they are and with one bit of a table changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "image/code_size.h"
#include "image/elf_file.h"
#include "image/state.h"
#include "tests/unit/image/cubins.h"

namespace {

using namespace tube::image;

constexpr const char* kTables[] = {"precalc_xorwow_matrix", "mrg32k3aM1",
                                   "__cr_lgamma_table",     "__cudart_i2opi_d",
                                   "__cudart_i2opi_f",      "__cudart_sin_cos_coeffs"};

// Where in the image the symbol of this name stands, and what it says.
bool find_symbol(const std::vector<char>& image, const std::string& name, uint64_t* at,
                 Elf64_Sym* symbol) {
  const Elf elf(view(image));
  Elf64_Shdr table, strings;
  if (!elf.first_of_type(SHT_SYMTAB, &table) || !elf.section(table.sh_link, &strings)) return false;
  ElfNames names(elf, strings);
  for (*at = table.sh_offset; *at < table.sh_offset + table.sh_size; *at += sizeof *symbol)
    if (read(view(image), *at, symbol) && names.at(symbol->st_name) == name) return true;
  return false;
}

TEST(Tables, OfNvidiasHeadersAreNoState) {
  for (const char* kind : {"plain", "older"}) {
    const std::vector<char> image = load_cubin("tables", kind);
    uint64_t at = 0;
    Elf64_Sym symbol;
    for (const char* name : kTables)
      ASSERT_TRUE(find_symbol(image, name, &at, &symbol)) << name << " is not in " << kind;
    EXPECT_TRUE(code_is_stateless(view(image))) << kind;
  }
}

TEST(Tables, BesideAVariableThereIsState) {
  EXPECT_FALSE(load_cubin("tables", "state").empty());
  EXPECT_FALSE(code_is_stateless(view(load_cubin("tables", "state"))));
}

TEST(Tables, OfOtherContentAreAProgramsOwn) {
  for (const char* name : kTables) {
    std::vector<char> image = load_cubin("tables", "plain");
    uint64_t at = 0;
    Elf64_Sym symbol;
    ASSERT_TRUE(find_symbol(image, name, &at, &symbol));
    Elf64_Shdr section;
    ASSERT_TRUE(Elf(view(image)).section(symbol.st_shndx, &section));
    image[section.sh_offset + symbol.st_value + symbol.st_size - 1] ^= 1;
    EXPECT_FALSE(code_is_stateless(view(image))) << name;
  }
}

TEST(Tables, ThatOtherFilesCanNameAreAProgramsOwn) {
  std::vector<char> image = load_cubin("tables", "plain");
  uint64_t at = 0;
  Elf64_Sym symbol;
  ASSERT_TRUE(find_symbol(image, kTables[0], &at, &symbol));
  symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, ELF64_ST_TYPE(symbol.st_info));
  std::memcpy(image.data() + at, &symbol, sizeof symbol);
  EXPECT_FALSE(code_is_stateless(view(image)));
}

TEST(Tables, OutsideOfTheirSectionAreDamage) {
  std::vector<char> image = load_cubin("tables", "plain");
  uint64_t at = 0;
  Elf64_Sym symbol;
  ASSERT_TRUE(find_symbol(image, kTables[0], &at, &symbol));
  for (const uint64_t value : {uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - symbol.st_size + 1}) {
    symbol.st_value = value;
    std::memcpy(image.data() + at, &symbol, sizeof symbol);
    EXPECT_FALSE(code_is_stateless(view(image)));
  }
}

TEST(CodeSize, IsWhatTheGpuKeeps) {
  for (const char* kind : {"plain", "older", "state"}) {
    const std::vector<char> image = load_cubin("tables", kind);
    EXPECT_GT(code_size(view(image)), 2u * 102400);  // two of its tables
    EXPECT_LT(code_size(view(image)), image.size());
  }
  EXPECT_EQ(code_size({}), 0u);
}

TEST(CodeSize, OfALieIsBounded) {
  std::vector<char> image = load_cubin("tables", "plain");
  const Elf elf(view(image));
  for (uint32_t i = 0; i < elf.sections(); ++i) {
    Elf64_Shdr section;
    ASSERT_TRUE(elf.section_header(i, &section));
    section.sh_type = i == 0 || i == elf.section_names() ? section.sh_type : SHT_NOBITS;
    section.sh_flags |= SHF_ALLOC;
    if (section.sh_type == SHT_NOBITS) section.sh_size = UINT64_MAX - i;
    std::memcpy(image.data() + elf.section_header_at(i), &section, sizeof section);
  }
  EXPECT_EQ(code_size(view(image)), kMostCodeBytes);
}

}  // namespace
