// Which images keep state: machine code made by hand, section by section, and PTX.
#include "image/state.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace tube::image {
namespace {

struct Section {
  std::string name;
  uint32_t type = SHT_PROGBITS;
  uint64_t bytes = 0;
};
struct Symbol {
  std::string name;
  unsigned type = STT_OBJECT;
  uint16_t section = 0;  // index into the list of sections, from 1; 0: undefined
  uint64_t bytes = 0;
};

// An executable of NVIDIA's machine with these sections (empty bytes), a symbol table and its
// names.
std::string make_elf(const std::vector<Section>& sections, const std::vector<Symbol>& symbols,
                     uint16_t type = ET_EXEC) {
  std::string names(1, '\0'), symbol_names(1, '\0'), body;
  std::vector<Elf64_Shdr> headers(1);
  std::memset(headers.data(), 0, sizeof(Elf64_Shdr));
  const auto add = [&](const std::string& name, uint32_t kind, const std::string& bytes,
                       uint64_t size) -> Elf64_Shdr& {
    Elf64_Shdr header{};
    header.sh_name = static_cast<Elf64_Word>(names.size());
    names += name + '\0';
    header.sh_type = kind;
    header.sh_offset = sizeof(Elf64_Ehdr) + body.size();
    header.sh_size = size;
    body += bytes;
    headers.push_back(header);
    return headers.back();
  };
  for (const Section& section : sections)
    add(section.name, section.type,
        section.type == SHT_NOBITS ? "" : std::string(section.bytes, '\1'), section.bytes);
  std::string table(sizeof(Elf64_Sym), '\0');
  for (const Symbol& symbol : symbols) {
    Elf64_Sym entry{};
    entry.st_name = static_cast<Elf64_Word>(symbol_names.size());
    symbol_names += symbol.name + '\0';
    entry.st_info = static_cast<unsigned char>(ELF64_ST_INFO(STB_LOCAL, symbol.type));
    entry.st_shndx = symbol.section;
    entry.st_size = symbol.bytes;
    table.append(reinterpret_cast<const char*>(&entry), sizeof(entry));
  }
  Elf64_Shdr& symtab = add(".symtab", SHT_SYMTAB, table, table.size());
  symtab.sh_entsize = sizeof(Elf64_Sym);
  symtab.sh_link = static_cast<Elf64_Word>(sections.size() + 2);
  add(".strtab", SHT_STRTAB, symbol_names, symbol_names.size());
  const std::string last = ".shstrtab";
  Elf64_Shdr header{};
  header.sh_name = static_cast<Elf64_Word>(names.size());
  names += last + '\0';
  header.sh_type = SHT_STRTAB;
  header.sh_offset = sizeof(Elf64_Ehdr) + body.size();
  header.sh_size = names.size();
  body += names;
  headers.push_back(header);
  Elf64_Ehdr elf{};
  std::memcpy(elf.e_ident, ELFMAG, SELFMAG);
  elf.e_ident[EI_CLASS] = ELFCLASS64;
  elf.e_type = type;
  elf.e_machine = 190;
  elf.e_shoff = sizeof(elf) + body.size();
  elf.e_shentsize = sizeof(Elf64_Shdr);
  elf.e_shnum = static_cast<uint16_t>(headers.size());
  elf.e_shstrndx = static_cast<uint16_t>(headers.size() - 1);
  std::string out(reinterpret_cast<const char*>(&elf), sizeof(elf));
  out += body;
  out.append(reinterpret_cast<const char*>(headers.data()), headers.size() * sizeof(Elf64_Shdr));
  return out;
}

bool code(const std::string& elf) { return code_is_stateless(std::as_bytes(std::span(elf))); }
bool text(const std::string& ptx) { return text_is_stateless(std::as_bytes(std::span(ptx))); }

const Section kCode{".text.k", SHT_PROGBITS, 128};
const std::string kTag = "_ZN31_INTERNAL_96319165_4_v_cu_plain4cuda3std3__45__cpo5beginE";

TEST(ImageState, CodeWithoutVariablesHasNone) {
  EXPECT_TRUE(code(make_elf({kCode}, {{"k", STT_FUNC, 1, 128}})));
  EXPECT_TRUE(code(
      make_elf({kCode, {".nv.constant0.k", SHT_PROGBITS, 64}, {".nv.constant4", SHT_PROGBITS, 8}},
               {{"k", STT_FUNC, 1, 128}})));
  EXPECT_TRUE(code(make_elf({kCode, {".nv.constant3", SHT_PROGBITS, 0}}, {})));
}

TEST(ImageState, AVariableIsState) {
  EXPECT_FALSE(
      code(make_elf({kCode, {".nv.global", SHT_NOBITS, 4}}, {{"counter", STT_OBJECT, 2, 4}})));
  EXPECT_FALSE(
      code(make_elf({kCode, {".nv.global.init", SHT_PROGBITS, 4}}, {{"table", STT_OBJECT, 2, 4}})));
  EXPECT_FALSE(code(
      make_elf({kCode, {".nv.constant3", SHT_PROGBITS, 16}}, {{"factors", STT_OBJECT, 2, 16}})));
}

TEST(ImageState, WhatTheCompilerMakesIsNone) {
  EXPECT_TRUE(code(make_elf({kCode, {".nv.global.init", SHT_PROGBITS, 30}},
                            {{"$str", STT_OBJECT, 2, 10}, {"__unnamed_1", STT_OBJECT, 2, 18}})));
  EXPECT_FALSE(code(make_elf({kCode, {".nv.global.init", SHT_PROGBITS, 30}},
                             {{"$str", STT_OBJECT, 2, 10}, {"counter", STT_OBJECT, 2, 4}})));
  EXPECT_FALSE(
      code(make_elf({kCode, {".nv.global", SHT_NOBITS, 4}}, {{"__unnamed_1", STT_OBJECT, 2, 4}})))
      << "a variable without a name, which begins with zeros";
}

TEST(ImageState, TagsOfTheLibrariesAreNone) {
  EXPECT_TRUE(code(make_elf({kCode, {".nv.global", SHT_NOBITS, 1}}, {{kTag, STT_OBJECT, 2, 1}})));
  EXPECT_FALSE(code(make_elf({kCode, {".nv.global", SHT_NOBITS, 4}}, {{kTag, STT_OBJECT, 2, 4}})))
      << "a tag has one byte";
  EXPECT_FALSE(
      code(make_elf({kCode, {".nv.global", SHT_NOBITS, 1}},
                    {{"_ZN31_INTERNAL_96319165_4_v_cu_plain4mine4flagE", STT_OBJECT, 2, 1}})));
  EXPECT_FALSE(code(
      make_elf({kCode, {".nv.global", SHT_NOBITS, 1}}, {{"_ZN4cuda3std4flagE", STT_OBJECT, 2, 1}})))
      << "external linkage";
}

TEST(ImageState, TablesOfNvidiasHeadersAreKnownByTheirContent) {
  EXPECT_FALSE(code(make_elf({kCode, {".nv.global.init", SHT_PROGBITS, 2304}},
                             {{"mrg32k3aM1", STT_OBJECT, 2, 2304}})))
      << "a program's own of that name; tests/unit/image/tables_test.cc has the real ones";
  EXPECT_FALSE(code(make_elf({kCode, {".nv.global", SHT_NOBITS, 24}},
                             {{"__cudart_i2opi_f", STT_OBJECT, 2, 24}})));
  EXPECT_TRUE(code(make_elf({kCode, {".nv.global", SHT_NOBITS, 1}},
                            {{"_ZN73_INTERNAL_6e914f1a_36_flash_fwd_hdim96_bf16_causal_sm80_cu_"
                              "fe83ea95_373164cute7productE",
                              STT_OBJECT, 2, 1}})));
}

TEST(ImageState, BytesThatNoSymbolAccountsForAreState) {
  EXPECT_FALSE(
      code(make_elf({kCode, {".nv.global", SHT_NOBITS, 4096}}, {{kTag, STT_OBJECT, 2, 1}})));
  EXPECT_FALSE(code(make_elf({kCode, {".nv.global", SHT_NOBITS, 4}}, {})));
}

TEST(ImageState, FunctionsThatTheDriverSupplies) {
  EXPECT_TRUE(code(make_elf({kCode}, {{"vprintf", STT_FUNC, 0, 0}, {"malloc", STT_FUNC, 0, 0}})));
  EXPECT_FALSE(code(make_elf({kCode}, {{"cudaGraphLaunch", STT_FUNC, 0, 0}})));
  EXPECT_FALSE(code(make_elf({kCode}, {{"texture", 10, 1, 0}})));
}

TEST(ImageState, WhatCannotBeReadIsState) {
  const std::string good =
      make_elf({kCode, {".nv.global", SHT_NOBITS, 1}}, {{kTag, STT_OBJECT, 2, 1}});
  EXPECT_FALSE(code(make_elf({kCode}, {}, ET_REL)));
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(code(good.substr(0, size))) << size;
  for (size_t at = 0; at < good.size(); ++at) {  // no damage may read outside
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 0xff);
    (void)code(damaged);
  }
}

TEST(ImageState, TextByItsDeclarations) {
  const std::string head = ".version 8.0\n.target sm_90\n.address_size 64\n";
  EXPECT_TRUE(text(head + ".visible .entry k(.param .u64 p)\n{\n\tld.param.u64 %rd1, "
                          "[p];\n\tst.global.u32 [%rd1], 3;\n\tret;\n}\n"));
  EXPECT_TRUE(text(head + ".extern .func  (.param .b32 func_retval0) vprintf\n(\n\t.param .b64 "
                          "a\n)\n;\n.global .align 1 .b8 $str[10] = {104, 101};\n"));
  EXPECT_TRUE(text(head + ".global .align 1 .b8 $str$1[1];\n")) << "an empty text";
  EXPECT_TRUE(text(head + ".global .align 1 .b8 " + kTag +
                   "[1];\n.global .align 1 .b8 __unnamed_1[4] = {1};\n"));
  EXPECT_FALSE(text(head + ".global .align 1 .b8 " + kTag + "[2];\n"));
  EXPECT_FALSE(text(head + ".global .align 4 .u32 counter;\n"));
  EXPECT_FALSE(text(head + ".visible .global .align 4 .u32 counter = 41;\n"));
  EXPECT_FALSE(text(head + ".const .align 4 .b8 factors[16];\n"));
  EXPECT_FALSE(text(head + ".global .attribute(.managed) .align 4 .u32 man;\n"));
  EXPECT_FALSE(text(head + ".extern .func  (.param .b32 r) cudaGraphLaunch\n"));
  EXPECT_FALSE(text(head + ".extern .func mymalloc\n"));
  EXPECT_FALSE(text(head + ".visible .entry k() { ret; } .global .u32 counter;\n"));
  EXPECT_FALSE(text("no PTX at all"));
}

TEST(ImageState, TextWhoseVariablesStandWhereCompilersPutNone) {
  const std::string head = ".version 8.0\n.target sm_90\n";
  const std::string sized = head + ".address_size 64\n";
  for (const char* declaration :
       {".global.u32 counter;\n", ".visible.global .u32 counter;\n",
        ".weak.global.align 4 .u32 counter;\n", "{ ret; }.global .u32 counter;\n",
        ".visible\n.global\n.u32 counter;\n", ".global\f.u32 counter;\n",
        ".global .align 4 .b8 $str[4], counter[4];\n",
        ".global .align 4 .b8 $str[4] = {1}, counter[4];\n",
        ".global .align 4 .b8 $str[4] = {1}\n, counter[4];\n",
        ".global .align 4 .u32 __unnamed_1;\n", ".global .align 4 .u32 __unnamed_1[2] = {1, 2};\n",
        ".global .align 1 .b8 __unnamed_1[4];\n", ".entry k() { ret; } .const .u32 factor = 3;\n",
        ".file 1 \"a.cu\" .extern .func cudaGraphLaunch\n"})
    EXPECT_FALSE(text(sized + declaration)) << declaration;
  EXPECT_FALSE(text(head + ".address_size 64 .global .u32 counter;\n"));
  EXPECT_FALSE(text(head + ".address_size 64.global .u32 counter;\n"));
  EXPECT_FALSE(text(".version 8.0\n.target sm_90.global .u32 counter;\n"));
  EXPECT_TRUE(text(sized + ".visible .entry k(\n\t.param .u64 .ptr .global .align 16 k_param_0\n)\n"
                           "{\n\tcvta.to.global.u64 %rd2, %rd1;\n\t@%p1 ld.const.u32 %r1, [c];\n"
                           "\tcp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                           " [a], [b], 16, [c];\n}\n"))
      << "spaces of instructions and of parameters";
}

}  // namespace
}  // namespace tube::image
