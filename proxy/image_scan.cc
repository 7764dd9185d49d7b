#include "proxy/image_scan.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "image/fatbin.h"
#include "protocol/handle_id.h"

namespace tube::proxy {
namespace {

bool contains(const void* bytes, size_t size, const char* name) { return memmem(bytes, size, name, std::strlen(name)) != nullptr; }

uint32_t scan_bytes(const void* bytes, size_t size) {
  return (contains(bytes, size, "vprintf") ? wire::kKernelPrints : 0) | (contains(bytes, size, "__assertfail") ? wire::kKernelAsserts : 0);
}

// Machine code runs on GPUs of its major version and the same or a later minor one.
bool runs_on(int sm, int capability) { return sm / 10 == capability / 10 && sm <= capability; }

bool wanted(const image::Entry& entry, int capability, bool machine_code) {
  return machine_code ? entry.is(image::EntryKind::kElf) && runs_on(entry.sm, capability)
                      : entry.is(image::EntryKind::kPtx) && entry.sm <= capability;
}

// Scans the entries of one form; true when there was one that could be read.
bool scan_form(std::span<const std::byte> fatbin, int capability, bool machine_code, uint32_t* found) {
  image::FatbinReader reader(fatbin.data(), fatbin.size());
  image::Entry entry;
  bool any = false;
  std::string bytes, why;
  while (reader.next(&entry)) {
    if (!wanted(entry, capability, machine_code) || !image::unpack(entry, image::kMaxUnpackedBytes, &bytes, &why)) continue;
    any = true;
    *found |= scan_bytes(bytes.data(), bytes.size());
  }
  return any;
}

}  // namespace

uint32_t scan_image(std::span<const std::byte> untrusted_image, std::span<const int> capabilities) {
  uint32_t magic = 0;
  if (untrusted_image.size() >= sizeof(magic)) std::memcpy(&magic, untrusted_image.data(), sizeof(magic));
  if (magic != image::kFatbinMagic) return scan_bytes(untrusted_image.data(), untrusted_image.size());
  uint32_t found = 0;
  for (size_t i = 0; i < capabilities.size(); ++i) {
    if (std::find(capabilities.begin(), capabilities.begin() + static_cast<std::ptrdiff_t>(i), capabilities[i]) !=
        capabilities.begin() + static_cast<std::ptrdiff_t>(i)) continue;
    if (!scan_form(untrusted_image, capabilities[i], true, &found)) scan_form(untrusted_image, capabilities[i], false, &found);
  }
  return found;
}

}  // namespace tube::proxy
