#include "image/code_size.h"

#include <algorithm>
#include <string_view>

#include "image/elf_file.h"

namespace tube::image {

uint64_t code_size(std::span<const std::byte> untrusted_elf) {
  const Elf elf(untrusted_elf);
  Elf64_Shdr strings;
  if (!elf.good() || !elf.section(elf.section_names(), &strings)) return 0;
  ElfNames names(elf, strings);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < elf.sections(); ++i) {
    Elf64_Shdr section;
    if (!elf.section(i, &section) || (section.sh_flags & SHF_ALLOC) == 0) continue;
    // Of the multiprocessors and of threads, not of the GPU's memory.
    const std::string_view name = names.at(section.sh_name);
    if (name.starts_with(".nv.shared") || name.starts_with(".nv.local")) continue;
    bytes = std::min(kMostCodeBytes, bytes + std::min(kMostCodeBytes, section.sh_size));
  }
  return bytes;
}

}  // namespace tube::image
