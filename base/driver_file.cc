#include "base/driver_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/env.h"
#include "base/mapping.h"
#include "base/unique_fd.h"

namespace tube {
namespace {

constexpr char kDriver[] = "libcuda.so.1";
constexpr uint32_t kTubeNote = 0x45425554;
constexpr const char* kFolders[] = {
    "/usr/lib/x86_64-linux-gnu",  "/usr/lib64",
    "/usr/lib/aarch64-linux-gnu", "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",      "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/wsl/lib",           "/usr/lib",
    "/run/opengl-driver/lib",     "/usr/local/cuda/compat"};

Result<Mapping> map_file(const char* path) {
  const UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC));
  struct stat s;
  if (!fd.valid() || fstat(fd.get(), &s) != 0 || !S_ISREG(s.st_mode) || s.st_size <= 0)
    return errorf("%s cannot be read", path);
  return Mapping::map(fd.get(), 0, static_cast<uint64_t>(s.st_size), PROT_READ);
}

// Whether the notes in [data, data + size) hold Tube's.
bool holds_note(const char* data, uint64_t size) {
  uint64_t at = 0;
  while (size - at >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note;
    std::memcpy(&note, data + at, sizeof note);
    at += sizeof note;
    const uint64_t name_bytes = (uint64_t{note.n_namesz} + 3) & ~uint64_t{3};
    const uint64_t bytes = name_bytes + ((uint64_t{note.n_descsz} + 3) & ~uint64_t{3});
    if (bytes > size - at) return false;
    if (note.n_type == kTubeNote && note.n_namesz == 5 && std::memcmp(data + at, "Tube", 5) == 0)
      return true;
    at += bytes;
  }
  return false;
}

void add(DriverSearch& search, const std::string& path) {
  if (std::find(search.looked_in.begin(), search.looked_in.end(), path) != search.looked_in.end())
    return;
  char real[PATH_MAX];
  if (path.find("/stubs/") != std::string::npos) return;
  if (realpath(path.c_str(), real) == nullptr) {
    search.looked_in.push_back(path);
    return;
  }
  if (std::strstr(real, "/stubs/") != nullptr || is_no_foreign_library(real)) return;
  search.looked_in.push_back(path);
  if (std::find(search.found.begin(), search.found.end(), real) == search.found.end())
    search.found.emplace_back(real);
}

// The loader's cache (ld.so(8)): a table of entries {flags, name offset, path offset, ...} behind a
// magic.
void add_from_loader_cache(DriverSearch& search, const char* name) {
  struct Header {
    char magic[20];
    uint32_t count;
    uint32_t strings_bytes;
    uint32_t unused[5];
  };
  struct Entry {
    int32_t flags;
    uint32_t key, value;
    uint32_t os_version;
    uint64_t hwcap;
  };
  Result<Mapping> file = map_file("/etc/ld.so.cache");
  if (!file || file->size() < sizeof(Header)) return;
  const char* data = reinterpret_cast<const char*>(file->data());
  const uint64_t size = file->size();
  const auto* header = reinterpret_cast<const Header*>(data);
  if (std::memcmp(header->magic, "glibc-ld.so.cache1.1", 20) != 0) return;
  if (sizeof(Header) + uint64_t{header->count} * sizeof(Entry) > size || data[size - 1] != 0)
    return;
  const auto* entries = reinterpret_cast<const Entry*>(header + 1);
  for (uint32_t i = 0; i < header->count; ++i) {
    if (entries[i].key >= size || entries[i].value >= size) continue;
    if (std::strcmp(data + entries[i].key, name) == 0) add(search, data + entries[i].value);
  }
}

void add_from_library_path(DriverSearch& search, const char* name) {
  const char* at = ::secure_getenv("LD_LIBRARY_PATH");
  while (at != nullptr && *at != '\0') {
    const char* end = strchrnul(at, ':');
    if (end != at) add(search, std::string(at, static_cast<size_t>(end - at)) + "/" + name);
    at = *end == ':' ? end + 1 : end;
  }
}

}  // namespace

bool is_no_foreign_library(const std::string& path) {
  Result<Mapping> file = map_file(path.c_str());
  if (!file || file->size() < sizeof(Elf64_Ehdr)) return true;
  const char* data = reinterpret_cast<const char*>(file->data());
  const uint64_t size = file->size();
  Elf64_Ehdr header;
  std::memcpy(&header, data, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > size ||
      header.e_phnum > (size - header.e_phoff) / sizeof(Elf64_Phdr)) {
    return true;
  }
  for (uint32_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, data + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type != PT_NOTE || segment.p_offset > size ||
        segment.p_filesz > size - segment.p_offset)
      continue;
    if (holds_note(data + segment.p_offset, segment.p_filesz)) return true;
  }
  return false;
}

DriverSearch search_driver() { return search_driver(env_text(Env::kRealDriver)); }

DriverSearch search_driver(const char* named) { return search_library(kDriver, named); }

DriverSearch search_library(const char* file, const char* named) {
  DriverSearch search;
  if (named != nullptr) {
    add(search, named);
    return search;
  }
  add_from_library_path(search, file);
  add_from_loader_cache(search, file);
  for (const char* folder : kFolders) add(search, std::string(folder) + "/" + file);
  return search;
}

std::vector<std::string> beside_driver(const char* file) {
  std::vector<std::string> paths;
  for (const std::string& driver : search_driver().found) {
    const std::string beside = driver.substr(0, driver.rfind('/') + 1) + file;
    if (!is_no_foreign_library(beside)) paths.push_back(beside);
  }
  return paths;
}

}  // namespace tube
