#include "proxy/code/image_scan.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "image/code_size.h"
#include "image/fatbin.h"
#include "image/managed_code.h"
#include "image/state.h"
#include "protocol/handle_id.h"

namespace tube::proxy {
namespace {

bool contains(const void* bytes, size_t size, const char* name) {
  return memmem(bytes, size, name, std::strlen(name)) != nullptr;
}

bool is_elf(const void* bytes, size_t size) {
  return size >= 4 && std::memcmp(bytes,
                                  "\x7f"
                                  "ELF",
                                  4) == 0;
}

// In the order of the flags' bits; the last stands for all others.
constexpr const char* kRuntime[] = {"vprintf", "__assertfail", nullptr};
constexpr uint32_t kWrites = wire::kKernelPrints | wire::kKernelAsserts;
static_assert(wire::kKernelPrints == 1 && wire::kKernelAsserts == 2 && kKernelAllocates == 4);

// Whether PTX declares a function of the device runtime that neither prints nor asserts.
bool declares_others(std::string_view text) {
  constexpr std::string_view kExtern = ".extern", kFunction = ".func";
  const auto skip = [&text](size_t at) { return text.find_first_not_of(" \t\r\n", at); };
  for (size_t at = 0; (at = text.find(kExtern, at)) != text.npos;) {
    at = skip(at + kExtern.size());
    if (at == text.npos || text.substr(at, kFunction.size()) != kFunction) continue;
    at = skip(at + kFunction.size());
    if (at != text.npos && text[at] == '(') at = text.find(')', at);
    if (at != text.npos && text[at] == ')') at = skip(at + 1);
    if (at == text.npos) return true;
    const std::string_view name = text.substr(at, text.find_first_of(" \t\r\n(;", at) - at);
    if (name != kRuntime[0] && name != kRuntime[1]) return true;
  }
  return false;
}

uint32_t scan_bytes(const void* bytes, size_t size) {
  const bool managed =
      is_elf(bytes, size)
          ? !image::managed_variables({static_cast<const std::byte*>(bytes), size}).empty()
          : contains(bytes, size, ".managed");
  const bool others = is_elf(bytes, size)
                          ? image::calls_outside({static_cast<const std::byte*>(bytes), size})
                          : declares_others({static_cast<const char*>(bytes), size});
  return (contains(bytes, size, kRuntime[0]) ? wire::kKernelPrints : 0) |
         (contains(bytes, size, kRuntime[1]) ? wire::kKernelAsserts : 0) |
         (others ? kKernelAllocates : 0) | (managed ? kImageManaged : 0);
}

// The facts of one piece of code, joined to those of others: a kernel in two pieces may be either.
void add_facts(const void* bytes, size_t size, ImageFacts* facts, bool* all_known) {
  const uint32_t all = scan_bytes(bytes, size);
  const std::span whole(static_cast<const std::byte*>(bytes), size);
  facts->stateless = facts->stateless && (is_elf(bytes, size) ? image::code_is_stateless(whole)
                                                              : image::text_is_stateless(whole));
  const bool asks = (all & kRuntimeFlags) != 0;
  facts->all |= all;
  facts->code_bytes =
      std::max(facts->code_bytes, is_elf(bytes, size) ? image::code_size(whole) : uint64_t{size});
  *all_known = *all_known && is_elf(bytes, size) &&
               (!asks || image::kernel_calls(whole, kRuntime, &facts->by_function));
}

// Machine code runs on GPUs of its major version and the same or a later minor one.
bool runs_on(int sm, int capability) { return sm / 10 == capability / 10 && sm <= capability; }

bool wanted(const image::Entry& entry, int capability, bool machine_code) {
  return machine_code ? entry.is(image::EntryKind::kElf) && runs_on(entry.sm, capability)
                      : entry.is(image::EntryKind::kPtx) && entry.sm <= capability;
}

// Scans the entries of one form; true when there was one that could be read.
bool scan_form(std::span<const std::byte> fatbin, int capability, bool machine_code,
               image::Unpacker& unpacker, ImageFacts* facts, bool* all_known) {
  image::FatbinReader reader(fatbin.data(), fatbin.size());
  image::Entry entry;
  bool any = false;
  std::string bytes;
  while (!unpacker.exhausted() && reader.next(&entry)) {
    if (!wanted(entry, capability, machine_code) || !unpacker.unpack(entry, &bytes)) continue;
    any = true;
    add_facts(bytes.data(), bytes.size(), facts, all_known);
  }
  return any;
}

}  // namespace

bool is_fatbin(std::span<const std::byte> untrusted_image) {
  uint32_t magic = 0;
  if (untrusted_image.size() >= sizeof magic)
    std::memcpy(&magic, untrusted_image.data(), sizeof magic);
  return magic == image::kFatbinMagic;
}

// The newest entry of that form that can be loaded as it is.
std::string select_code(std::span<const std::byte> untrusted_image, int capability, Form form) {
  const bool machine_code = form == Form::kMachineCode;
  if (!is_fatbin(untrusted_image)) {
    if (machine_code != image::is_executable(untrusted_image)) return {};
    return {reinterpret_cast<const char*>(untrusted_image.data()), untrusted_image.size()};
  }
  image::FatbinReader reader(untrusted_image.data(), untrusted_image.size());
  image::Entry entry;
  int newest = -1;
  image::Unpacker unpacker;
  std::string bytes, candidate;
  while (reader.next(&entry)) {
    if (entry.sm <= newest || !wanted(entry, capability, machine_code) ||
        !unpacker.unpack(entry, &candidate))
      continue;
    if (machine_code && !image::is_executable(std::as_bytes(std::span(candidate)))) continue;
    newest = entry.sm;
    bytes.swap(candidate);
  }
  return unpacker.exhausted() ? std::string() : bytes;  // which one is the newest is not known then
}

bool is_compiled(std::span<const std::byte> untrusted_image, int capability) {
  if (!is_fatbin(untrusted_image))
    return !is_elf(untrusted_image.data(), untrusted_image.size()) &&
           contains(untrusted_image.data(), untrusted_image.size(), ".version");
  image::FatbinReader reader(untrusted_image.data(), untrusted_image.size());
  bool text = false;
  for (image::Entry entry; reader.next(&entry);) {
    if (wanted(entry, capability, true)) return false;
    text = text || wanted(entry, capability, false);
  }
  return text;
}

uint32_t ImageFacts::writes(const std::string& kernel) const {
  const auto found = by_function.find(kernel);
  return (found != by_function.end() ? found->second : all) & kWrites;
}

ImageFacts::Runtime ImageFacts::runtime(const std::string& kernel) const {
  const auto found = by_function.find(kernel);
  if (found == by_function.end()) return {all & kRuntimeFlags, 0};
  if ((found->second & image::kCallsThroughPointer) != 0) return {kRuntimeFlags, 0};
  return {found->second & kRuntimeFlags, found->second & kRuntimeFlags};
}

ImageFacts scan_image(std::span<const std::byte> untrusted_image, std::span<const int> capabilities,
                      uint64_t max_bytes) {
  ImageFacts facts;
  image::Unpacker unpacker(max_bytes);
  facts.stateless = true;
  bool all_known = true;
  if (!is_fatbin(untrusted_image)) {
    add_facts(untrusted_image.data(), untrusted_image.size(), &facts, &all_known);
  } else {
    for (size_t i = 0; i < capabilities.size(); ++i) {
      if (std::find(capabilities.begin(), capabilities.begin() + static_cast<std::ptrdiff_t>(i),
                    capabilities[i]) != capabilities.begin() + static_cast<std::ptrdiff_t>(i))
        continue;
      const bool any =
          scan_form(untrusted_image, capabilities[i], true, unpacker, &facts, &all_known) ||
          scan_form(untrusted_image, capabilities[i], false, unpacker, &facts, &all_known);
      facts.stateless = facts.stateless && any;
    }
  }
  if (unpacker.exhausted()) {
    facts.all |= kRuntimeFlags | kImageManaged;
    facts.stateless = all_known = false;
  }
  if (!all_known) facts.by_function.clear();
  return facts;
}

}  // namespace tube::proxy
