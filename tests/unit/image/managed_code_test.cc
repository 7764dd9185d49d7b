// Managed variables of machine code, on cubins that nvcc made of
// tests/conformance/managed_variables.cu, and on damaged ones.
#include "image/managed_code.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/unit/image/cubins.h"

namespace {

using tube::image::Bytes;
using tube::image::load_cubin;
using tube::image::view;

using tube::image::ManagedVariable;

std::span<std::byte> writable(Bytes& b) { return std::as_writable_bytes(std::span(b)); }

const ManagedVariable* named(const std::vector<ManagedVariable>& variables,
                             const std::string& name) {
  for (const ManagedVariable& v : variables)
    if (v.name == name) return &v;
  return nullptr;
}

size_t count_of(const Bytes& image, uint32_t half) {
  size_t count = 0;
  const char* at = image.data();
  const char* end = image.data() + image.size();
  while (at < end) {
    const void* found = memmem(at, static_cast<size_t>(end - at), &half, sizeof half);
    if (found == nullptr) break;
    ++count;
    at = static_cast<const char*>(found) + 1;
  }
  return count;
}

uint32_t low(uint64_t address) { return static_cast<uint32_t>(address); }
uint32_t high(uint64_t address) { return static_cast<uint32_t>(address >> 32); }

// Addresses that may be counted in `image`: neither half of one is there yet, whatever an image
// for debugging says of the folder that it was compiled in. No byte value occurs in two halves, so
// none appears where another one meets what stands beside it.
std::vector<uint64_t> addresses_for(const Bytes& image, size_t count) {
  std::vector<uint64_t> addresses;
  for (unsigned next = 0; addresses.size() < count && next + 8 <= 256; next += 8) {
    uint64_t address = 0;
    for (unsigned i = 0; i < 8; ++i) address |= uint64_t{255 - next - i} << (8 * i);
    if (count_of(image, low(address)) + count_of(image, high(address)) == 0)
      addresses.push_back(address);
  }
  return addresses;
}

// Relocations of loaded sections that name one of the symbols.
size_t relocations_left(const Bytes& image, const std::vector<ManagedVariable>& variables) {
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(image.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(image.data() + header->e_shoff);
  size_t left = 0;
  for (uint16_t i = 0; i < header->e_shnum; ++i) {
    const Elf64_Shdr& s = sections[i];
    if ((s.sh_type != SHT_REL && s.sh_type != SHT_RELA) ||
        (sections[s.sh_info].sh_flags & SHF_ALLOC) == 0)
      continue;
    for (uint64_t at = 0; at < s.sh_size; at += s.sh_entsize) {
      Elf64_Rel entry;
      std::memcpy(&entry, image.data() + s.sh_offset + at, sizeof entry);
      for (const ManagedVariable& v : variables) left += ELF64_R_SYM(entry.r_info) == v.symbol;
    }
  }
  return left;
}

class OfEachKind : public testing::TestWithParam<const char*> {};

TEST_P(OfEachKind, FindsVariablesWithTheirInitialValues) {
  const Bytes image = load_cubin("managed", GetParam());
  ASSERT_FALSE(image.empty());
  EXPECT_TRUE(tube::image::is_executable(view(image)));
  const auto variables = tube::image::managed_variables(view(image));
  ASSERT_EQ(variables.size(), 3u);
  const ManagedVariable* counter = named(variables, "counter");
  const ManagedVariable* large = named(variables, "large");
  const ManagedVariable* pair = named(variables, "pair");
  ASSERT_TRUE(counter != nullptr && large != nullptr && pair != nullptr);
  EXPECT_EQ(counter->bytes, 4u);
  EXPECT_EQ(large->bytes, 400000u);
  EXPECT_EQ(large->initial, 0u);
  int value = 0;
  std::memcpy(&value, image.data() + counter->initial, sizeof value);
  EXPECT_EQ(value, 41);
  double second = 0;
  std::memcpy(&second, image.data() + pair->initial + 16, sizeof second);
  EXPECT_EQ(second, 3.0);
}

TEST_P(OfEachKind, PlacesThem) {
  Bytes image = load_cubin("managed", GetParam());
  const auto variables = tube::image::managed_variables(view(image));
  const auto addresses = addresses_for(image, variables.size());
  ASSERT_EQ(addresses.size(), variables.size());
  const Bytes before = image;
  EXPECT_GT(relocations_left(before, variables), 0u);
  std::string why;
  ASSERT_TRUE(tube::image::place_managed(writable(image), variables, addresses, &why)) << why;
  EXPECT_EQ(relocations_left(image, variables), 0u);
  EXPECT_EQ(image.size(), before.size());
  for (const uint64_t address : addresses) {
    EXPECT_GT(count_of(image, low(address)), 0u) << GetParam();
    EXPECT_EQ(count_of(image, low(address)), count_of(image, high(address)));
  }
  // The others' relocations are all there.
  EXPECT_EQ(tube::image::managed_variables(view(image)).size(), 3u);
}

TEST_P(OfEachKind, AnyDamageIsSurvived) {
  const Bytes whole = load_cubin("managed", GetParam());
  std::mt19937_64 random(7);
  for (int round = 0; round < 3000; ++round) {
    Bytes image = whole;
    if (round % 4 == 0) image.resize(random() % whole.size());
    for (int i = 0; i < 3 && !image.empty(); ++i) {
      // Mostly where headers, symbols and relocations are.
      const size_t at = random() % image.size();
      image[at] = static_cast<char>(random());
    }
    if (image.size() > sizeof(Elf64_Ehdr) && round % 3 == 0)
      image[40 + random() % 24] = static_cast<char>(random());
    image.shrink_to_fit();
    const auto variables = tube::image::managed_variables(view(image));
    std::string why;
    (void)tube::image::place_managed(writable(image), variables,
                                     std::vector<uint64_t>(variables.size(), 0x1000), &why);
  }
}

INSTANTIATE_TEST_SUITE_P(Nvcc, OfEachKind,
                         testing::Values("plain", "debug", "older", "older_debug"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ManagedCode, WhatIsNoMachineCodeHasNone) {
  const Bytes text = {'.', 'v', 'e', 'r', 's', 'i', 'o', 'n'};
  EXPECT_TRUE(tube::image::managed_variables(view(text)).empty());
  EXPECT_FALSE(tube::image::is_executable(view(text)));
  EXPECT_TRUE(tube::image::managed_variables({}).empty());
}

TEST(ManagedCode, CodeInTwoFormsIsRefused) {
  Bytes image = load_cubin("managed", "plain");
  const auto variables = tube::image::managed_variables(view(image));
  auto* header = reinterpret_cast<Elf64_Ehdr*>(image.data());
  auto* sections = reinterpret_cast<Elf64_Shdr*>(image.data() + header->e_shoff);
  for (uint16_t i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type == SHT_RELA) sections[i].sh_type = 0x70000082;
  }
  std::string why;
  EXPECT_FALSE(tube::image::place_managed(writable(image), variables,
                                          addresses_for(image, variables.size()), &why));
  EXPECT_EQ(why, "machine code in two forms");
}

}  // namespace
