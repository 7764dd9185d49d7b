#include "policies/memory/address_scan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

constexpr uint64_t kBase = 0x1000'0000'0000;

std::vector<std::byte> bytes_with(uint64_t word, size_t at, size_t size) {
  std::vector<std::byte> bytes(size);
  std::memcpy(bytes.data() + at, &word, sizeof word);
  return bytes;
}

TEST(AddressScan, FindsAWordWhereverItBegins) {
  for (size_t at = 0; at <= 40 - 8; ++at) {
    AddressSpans spans;
    spans.add(kBase, 4 * kMiB);
    spans.scan_small(bytes_with(kBase + 5, at, 40));
    EXPECT_TRUE(spans.named(kBase)) << at;
    EXPECT_TRUE(spans.any_named());
  }
}

TEST(AddressScan, PointersUpToTheSlackOutsideCount) {
  const uint64_t end = kBase + 4 * kMiB;
  for (const uint64_t word :
       {kBase, kBase - 4, kBase - kPointerSlack, end - 1, end, end + 8, end + kPointerSlack - 1}) {
    AddressSpans spans;
    spans.add(kBase, 4 * kMiB);
    spans.scan_small(bytes_with(word, 0, 8));
    EXPECT_TRUE(spans.named(kBase)) << std::hex << word;
  }
  for (const uint64_t word :
       {kBase - kPointerSlack - 1, end + kPointerSlack, uint64_t{0}, ~uint64_t{0}}) {
    AddressSpans spans;
    spans.add(kBase, 4 * kMiB);
    spans.scan_small(bytes_with(word, 0, 8));
    EXPECT_FALSE(spans.any_named()) << std::hex << word;
  }
}

TEST(AddressScan, NeighboursWithTheirGapAreToldApart) {
  AddressSpans spans;
  const uint64_t step = 4 * kMiB + kBlockGap;
  for (uint64_t i = 0; i < 20; ++i) spans.add(kBase + i * step, 4 * kMiB);
  spans.scan_small(bytes_with(kBase + 7 * step, 3, 32));
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(spans.named(kBase + i * step), i == 7) << i;
  spans.remove(kBase + 7 * step);
  EXPECT_FALSE(spans.any_named());
  EXPECT_EQ(spans.size(), 19u);
}

TEST(AddressScan, WithoutAGapBothNeighboursCount) {
  AddressSpans spans;
  for (uint64_t i = 0; i < 4; ++i) spans.add(kBase + i * 4 * kMiB, 4 * kMiB);
  spans.scan_small(bytes_with(kBase + 8 * kMiB, 0, 8));
  EXPECT_FALSE(spans.named(kBase));
  EXPECT_TRUE(spans.named(kBase + 4 * kMiB));
  EXPECT_TRUE(spans.named(kBase + 8 * kMiB));
  EXPECT_FALSE(spans.named(kBase + 12 * kMiB));
}

TEST(AddressScan, BulkDataIsLookedAtWhereWordsAreAlignedOnTheGpu) {
  constexpr size_t kBytes = 3 * kSmallPieceBytes;
  for (const uint64_t address : {kBase, kBase + 1, kBase + 4, uint64_t{0}}) {
    for (size_t at = 0; at + 8 <= kBytes; at += 257) {
      AddressSpans spans;
      spans.add(kBase + 100 * kMiB, 4 * kMiB);
      spans.scan_bulk(bytes_with(kBase + 101 * kMiB, at, kBytes), address);
      EXPECT_EQ(spans.any_named(), (address + at) % 8 == 0) << address << " " << at;
    }
  }
}

TEST(AddressScan, NothingIsReadBeyondTheEnd) {
  AddressSpans spans;
  spans.add(kBase, kMiB);
  for (size_t size = 0; size < 300; ++size) {
    std::vector<std::byte> bytes(size);
    spans.scan_small(bytes);
    spans.scan_bulk(bytes, size);
  }
  for (size_t extra = 0; extra < 16; ++extra) {
    std::vector<std::byte> bytes(kSmallPieceBytes + extra);
    for (uint64_t address = 0; address < 8; ++address) spans.scan_bulk(bytes, address);
  }
  EXPECT_FALSE(spans.any_named());
}

TEST(AddressScan, AddressesThatWereThereOverlap) {
  AddressSet set;
  EXPECT_FALSE(set.overlaps(kBase, kMiB));
  set.add(kBase, kMiB);
  set.add(kBase + 3 * kMiB, kMiB);
  EXPECT_TRUE(set.overlaps(kBase, kMiB));
  EXPECT_TRUE(set.overlaps(kBase - kMiB, kMiB + 1));
  EXPECT_FALSE(set.overlaps(kBase - kMiB, kMiB));
  EXPECT_FALSE(set.overlaps(kBase + kMiB, 2 * kMiB));
  set.add(kBase + kMiB, 2 * kMiB);
  EXPECT_TRUE(set.overlaps(kBase + 2 * kMiB, 1));
}

TEST(AddressScan, TheSetOfAddressesIsBoundedAndForgetsNothing) {
  AddressSet set;
  std::mt19937_64 random(3);
  std::vector<uint64_t> all;
  for (size_t i = 0; i < 2 * AddressSet::kMost + 10; ++i) {
    all.push_back(kBase + (random() % (1u << 24)) * 4096 * 2);
    set.add(all.back(), 4096);
  }
  for (const uint64_t each : all) EXPECT_TRUE(set.overlaps(each, 1));
}

}  // namespace
}  // namespace tube::policies
