#include "tools/tubectl/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "base/mapping.h"
#include "base/unique_fd.h"

namespace tube::ctl {
namespace {

class Reader {
 public:
  explicit Reader(std::span<const std::byte> file) : file_(file) {}

  // A copy, because nothing in a file says that it is aligned.
  template <class T>
  std::optional<T> at(uint64_t offset) const {
    if (offset > file_.size() || file_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    memcpy(&value, file_.data() + offset, sizeof value);
    return value;
  }

  std::string string_at(const Elf64_Shdr& table, uint64_t index) const {
    if (table.sh_offset > file_.size() || index >= file_.size() - table.sh_offset) return {};
    const char* start = reinterpret_cast<const char*>(file_.data() + table.sh_offset + index);
    return std::string(start, strnlen(start, file_.size() - table.sh_offset - index));
  }

 private:
  std::span<const std::byte> file_;
};

std::vector<Elf64_Shdr> sections(const Reader& reader, const Elf64_Ehdr& header) {
  std::vector<Elf64_Shdr> all;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    std::optional<Elf64_Shdr> section =
        reader.at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr));
    if (!section) break;
    all.push_back(*section);
  }
  return all;
}

void read_dynamic(const Reader& reader, const Elf64_Shdr& section, const Elf64_Shdr& strings,
                  ElfFile& out) {
  for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= section.sh_size; at += sizeof(Elf64_Dyn)) {
    std::optional<Elf64_Dyn> entry = reader.at<Elf64_Dyn>(section.sh_offset + at);
    if (!entry || entry->d_tag == DT_NULL) return;
    if (entry->d_tag == DT_SONAME) out.soname = reader.string_at(strings, entry->d_un.d_val);
    if (entry->d_tag == DT_RPATH) out.rpath = reader.string_at(strings, entry->d_un.d_val);
    if (entry->d_tag == DT_NEEDED)
      out.needed.push_back(reader.string_at(strings, entry->d_un.d_val));
  }
}

void read_symbols(const Reader& reader, const Elf64_Shdr& section, const Elf64_Shdr& strings,
                  ElfFile& out) {
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
    std::optional<Elf64_Sym> symbol = reader.at<Elf64_Sym>(section.sh_offset + at);
    if (!symbol) return;
    unsigned binding = ELF64_ST_BIND(symbol->st_info);
    if (symbol->st_shndx == SHN_UNDEF || (binding != STB_GLOBAL && binding != STB_WEAK)) continue;
    out.exported.push_back(reader.string_at(strings, symbol->st_name));
  }
}

}  // namespace

Result<ElfFile> read_elf(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) return errno_error(errno, path);
  if (info.st_size < static_cast<off_t>(sizeof(Elf64_Ehdr)))
    return errorf("%s: not an ELF file", path.c_str());
  Result<Mapping> mapping =
      Mapping::map(fd.get(), 0, static_cast<uint64_t>(info.st_size), PROT_READ);
  if (!mapping.ok()) return mapping.error();
  Reader reader({mapping->data(), static_cast<size_t>(info.st_size)});
  Elf64_Ehdr header = *reader.at<Elf64_Ehdr>(0);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return errorf("%s: not a 64-bit ELF file", path.c_str());
  }
  ElfFile out;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    std::optional<Elf64_Phdr> segment =
        reader.at<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment && segment->p_type == PT_INTERP) out.has_interpreter = true;
  }
  std::vector<Elf64_Shdr> all = sections(reader, header);
  for (const Elf64_Shdr& section : all) {
    if (section.sh_link >= all.size()) continue;
    if (section.sh_type == SHT_DYNAMIC) read_dynamic(reader, section, all[section.sh_link], out);
    if (section.sh_type == SHT_DYNSYM) read_symbols(reader, section, all[section.sh_link], out);
  }
  constexpr std::string_view kRuntimeSays =
      "CUDA driver version is insufficient for CUDA runtime version";
  out.cuda_runtime = memmem(mapping->data(), static_cast<size_t>(info.st_size), kRuntimeSays.data(),
                            kRuntimeSays.size()) != nullptr;
  for (const std::string& needed : out.needed)
    out.cuda_runtime = out.cuda_runtime || needed.starts_with("libcudart.so");
  return out;
}

}  // namespace tube::ctl
