#include "hook/process/runtime_use.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace tube::hook {
namespace {

constexpr uint64_t kMostNames = 1 << 20;

bool read_at(int fd, void* to, uint64_t bytes, uint64_t offset) {
  return pread(fd, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

// A file that cannot be read counts as having it.
bool has_compiled_kernels(const char* path) {
  UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  Elf64_Ehdr header;
  if (!file.valid() || !read_at(file.get(), &header, sizeof header, 0) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return true;
  if (header.e_shnum == 0 || header.e_shentsize != sizeof(Elf64_Shdr) ||
      header.e_shstrndx >= header.e_shnum)
    return true;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (!read_at(file.get(), sections.data(), sections.size() * sizeof(Elf64_Shdr), header.e_shoff))
    return true;
  const Elf64_Shdr& names = sections[header.e_shstrndx];
  if (names.sh_size > kMostNames) return true;
  std::string text(names.sh_size, '\0');
  if (!read_at(file.get(), text.data(), text.size(), names.sh_offset)) return true;
  return memmem(text.data(), text.size(), ".nv_fatbin", sizeof ".nv_fatbin") !=
         nullptr;  // its NUL included
}

// Libraries of the system hold none; there are many of them.
bool of_the_system(const char* path) {
  const char* slash = std::strrchr(path, '/');
  const char* name = slash == nullptr ? path : slash + 1;
  for (const char* known :
       {"libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "ld-linux", "libstdc++.so",
        "libgcc_s.so", "libcuda.so", "linux-vdso"}) {
    if (std::strncmp(name, known, std::strlen(known)) == 0) return true;
  }
  return false;
}

struct Search {
  bool first = true;
  std::vector<std::string> files;
};

int look(dl_phdr_info* info, size_t, void* context) {
  auto& search = *static_cast<Search*>(context);
  if (search.first) {  // the program itself, without a name
    search.first = false;
    search.files.push_back("/proc/thread-self/exe");
  } else if (info->dlpi_name != nullptr && *info->dlpi_name == '/' &&
             !of_the_system(info->dlpi_name)) {
    search.files.push_back(info->dlpi_name);
  }
  return 0;
}

}  // namespace

bool wants_the_runtime(const char* program_name) {
  if (std::strncmp(program_name, "python", 6) == 0) return true;
  Search search;
  dl_iterate_phdr(look, &search);
  return std::any_of(search.files.begin(), search.files.end(),
                     [](const std::string& file) { return has_compiled_kernels(file.c_str()); });
}

}  // namespace tube::hook
