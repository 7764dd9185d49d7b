// Finds PTX in a module image: text, the wrapper that cudart hands over (both versions), or a bare
// fatbin (image/fatbin.h).
//
// Where the caller has only a pointer (size 0) the headers' own sizes are the limit: such an image
// comes from the program itself.
#include "image/fatbin.h"

#include <cstring>
#include <string>

#include "sim/ptx/ptx.h"

namespace tube::sim::ptx {
namespace {

using image::FatbinHeader;
using image::kFatbinMagic;
using image::kWrapperMagic;
using image::own_size;
using image::Wrapper;

constexpr uint64_t kMaxText = 256u << 20;

struct Best {
  int sm = -1;
  std::string text;
  bool cubin = false;  // something else was there
  bool too_new = false;
  std::string trouble;  // why an entry could not be read
};

bool looks_like_text(const char* text, size_t size) {
  size_t i = 0;
  while (i < size && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r' || text[i] == '\t')) ++i;
  return i < size && (text[i] == '/' || text[i] == '.');
}

void search(const std::byte* data, uint64_t size, int sm, Best* best) {
  image::FatbinReader reader(data, size);
  image::Entry entry;
  while (reader.next(&entry)) {
    if (!entry.is(image::EntryKind::kPtx)) {
      best->cubin = true;
      continue;
    }
    if (entry.sm > sm) {
      best->too_new = true;
      continue;
    }
    std::string text;
    if (entry.sm > best->sm && unpack(entry, kMaxText, &text, &best->trouble)) {
      best->sm = entry.sm;
      best->text = std::move(text);
    }
  }
  if (reader.trouble() != nullptr) best->trouble = reader.trouble();
}

void trim(std::string* text) {
  const size_t nul = text->find('\0');
  if (nul != std::string::npos) text->resize(nul);
}

}  // namespace

namespace {

// The first four bytes. Text of unknown size may be shorter: it is read until a byte is zero.
uint32_t magic_of(const std::byte* data, bool known_size) {
  unsigned char first[4] = {};
  for (size_t i = 0; i < 4; ++i) {
    std::memcpy(&first[i], data + i, 1);
    if (!known_size && first[i] == 0) break;
  }
  uint32_t magic = 0;
  std::memcpy(&magic, first, sizeof(magic));
  return magic;
}

}  // namespace

std::string find_ptx(const void* bytes, size_t size, int sm, std::string* why) {
  std::string ignored;
  if (why == nullptr) why = &ignored;
  why->clear();
  if (bytes == nullptr) {
    *why = "no image";
    return {};
  }
  if (size != 0 && size < sizeof(uint32_t)) {
    *why = "the image is too short";
    return {};
  }
  const auto* const data = static_cast<const std::byte*>(bytes);
  const uint32_t magic = magic_of(data, size != 0);
  Best best;
  if (magic == kWrapperMagic) {
    Wrapper wrapper;
    if (size != 0 && size < sizeof(wrapper)) {
      *why = "the wrapper is cut short";
      return {};
    }
    std::memcpy(&wrapper, bytes, sizeof(wrapper));
    if (wrapper.data == nullptr) {
      *why = "the wrapper holds no fatbin";
      return {};
    }
    search(static_cast<const std::byte*>(wrapper.data), own_size(wrapper.data), sm, &best);
  } else if (magic == kFatbinMagic) {
    if (size != 0 && size < sizeof(FatbinHeader)) {
      *why = "the fatbin is cut short";
      return {};
    }
    search(data, size != 0 ? size : own_size(bytes), sm, &best);
  } else if (magic == image::kElfMagic) {
    best.cubin = true;
  } else {
    const char* const text = static_cast<const char*>(bytes);
    const size_t length = size != 0 ? strnlen(text, size) : std::strlen(text);
    if (looks_like_text(text, length)) return std::string(text, length);
    *why = "neither PTX nor a fatbin";
    return {};
  }
  trim(&best.text);
  if (!best.text.empty()) return best.text;
  if (!best.trouble.empty()) *why = best.trouble;
  else if (best.too_new) *why = "only PTX for newer devices than sm_" + std::to_string(sm);
  else if (best.cubin)
    *why =
        "only machine code (a cubin), no PTX: build with -gencode arch=compute_NN,code=compute_NN";
  else *why = "the image holds no PTX";
  return {};
}

}  // namespace tube::sim::ptx
