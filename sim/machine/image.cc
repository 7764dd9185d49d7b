// Images: how big they are and what is in them.
#include <elf.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "sim/machine/image.h"

namespace tube::sim {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243B1;
constexpr uint32_t kFatbinMagic = 0xBA55ED50;

constexpr int kNewestPtx = 90;  // what a 13.0 driver reads

struct Wrapper {
  uint32_t magic, version;
  const void* data;
  const void* extra;
};
struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_size;
  uint64_t size;
};

size_t elf_size(const char* p) {
  Elf64_Ehdr header;
  std::memcpy(&header, p, sizeof header);
  uint64_t size =
      std::max<uint64_t>(header.e_phoff + uint64_t{header.e_phnum} * header.e_phentsize,
                         header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize);
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, p + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS)
      size = std::max<uint64_t>(size, section.sh_offset + section.sh_size);
  }
  return size;
}

}  // namespace

size_t image_size(const void* image) {
  uint32_t magic = 0;
  const char* p = static_cast<const char*>(image);
  if (*p == '\0') return 1;
  // PTX text may be shorter than a magic number; the first NUL ends it.
  if (strnlen(p, 4) < 4 && static_cast<unsigned char>(p[0]) < 0x80) return strnlen(p, 4) + 1;
  std::memcpy(&magic, p, sizeof magic);
  if (magic == kWrapperMagic) {
    Wrapper w;
    std::memcpy(&w, p, sizeof w);
    return sizeof w;
  }
  if (magic == kFatbinMagic) {
    FatbinHeader h;
    std::memcpy(&h, p, sizeof h);
    return h.header_size + h.size;
  }
  if (std::memcmp(p, ELFMAG, SELFMAG) == 0) return elf_size(p);
  return std::strlen(p) + 1;
}

CUresult compile_image(const void* image, size_t size, int sm, Code* code, std::string* error) {
  std::vector<std::string_view> texts;
  std::string text;
  uint32_t magic = 0;
  size_t known = size != 0 ? size : image_size(image);
  if (size == 0 && *static_cast<const char*>(image) == '\0')
    return CUDA_ERROR_INVALID_IMAGE;  // an empty text
  if (known >= 4) std::memcpy(&magic, image, sizeof magic);
  ptx::CompileResult result;
  if (unpack_linked(image, known, &texts, &code->placed)) {
    result = ptx::link(texts);
  } else {
    text = ptx::find_ptx(image, magic == kWrapperMagic ? size : known, sm, error);
    if (text.empty()) {
      bool container = magic == kWrapperMagic || magic == kFatbinMagic || known < 4 ||
                       std::memcmp(image, ELFMAG, SELFMAG) == 0;
      bool malformed = error->find("malformed") != std::string::npos ||
                       error->find("truncated") != std::string::npos;
      return container && !malformed ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE;
    }
    result = ptx::compile(text);
  }
  if (result.module == nullptr) {
    *error = "line " + std::to_string(result.error.line) + ": " + result.error.message +
             (result.error.instruction.empty() ? "" : ": " + result.error.instruction);
    return CUDA_ERROR_INVALID_PTX;
  }
  if (result.module->isa_version() > kNewestPtx) {
    *error = "PTX " + std::to_string(result.module->isa_version() / 10) + "." +
             std::to_string(result.module->isa_version() % 10);
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  if (result.module->target_sm() > sm) {
    *error = "the PTX is for sm_" + std::to_string(result.module->target_sm()) +
             ", the device is sm_" + std::to_string(sm);
    return CUDA_ERROR_INVALID_PTX;
  }
  code->module = std::move(result.module);
  return CUDA_SUCCESS;
}

CUresult parse_jit_options(unsigned count, CUjit_option* options, void** values, JitOptions* out) {
  if (count > 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    size_t number = reinterpret_cast<size_t>(values[i]) &
                    0xffffffffu;  // sizes are unsigned ints in a pointer's place
    switch (options[i]) {
      case CU_JIT_INFO_LOG_BUFFER: out->info = static_cast<char*>(values[i]); break;
      case CU_JIT_ERROR_LOG_BUFFER: out->error = static_cast<char*>(values[i]); break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        out->info_size = number;
        out->info_size_out = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        out->error_size = number;
        out->error_size_out = &values[i];
        break;
      default:
        if (options[i] < 0 || options[i] >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

void report_jit(const JitOptions& o, const std::string& error) {
  size_t written = 0;
  if (o.error != nullptr && o.error_size > 0) {
    std::string line = error.empty() ? "" : "tube sim: " + error + "\n";
    written = std::min(line.size(), o.error_size - 1);
    std::memcpy(o.error, line.data(), written);
    o.error[written] = '\0';
  }
  if (o.info != nullptr && o.info_size > 0) o.info[0] = '\0';
  if (o.error_size_out != nullptr) *o.error_size_out = reinterpret_cast<void*>(written);
  if (o.info_size_out != nullptr) *o.info_size_out = nullptr;
}

bool read_whole_file(const char* path, std::string* bytes) {
  struct stat st;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  std::stringstream buffer;
  buffer << in.rdbuf();
  *bytes = buffer.str();
  return true;
}

}  // namespace tube::sim
