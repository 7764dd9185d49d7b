// The rules about blobs, names and ids that generated code relies on.
#include <gtest/gtest.h>

#include <array>

#include "protocol/handle_id.h"
#include "protocol/wire_support.h"

namespace tube::wire {
namespace {

constexpr uint32_t kFixed = 24;

bool ok(BlobRef ref, uint32_t element_bytes = 1, uint32_t max_bytes = 0,
        size_t payload_bytes = 64) {
  return detail::blob_ok(payload_bytes, kFixed, ref, element_bytes, max_bytes);
}

TEST(BlobOk, AcceptsBytesBehindTheFixedStruct) {
  EXPECT_TRUE(ok({24, 40}));
  EXPECT_TRUE(ok({24, 1}));
  EXPECT_TRUE(ok({56, 8}));
  EXPECT_TRUE(ok({0, 0}));
  EXPECT_TRUE(ok({64, 0}));
}

TEST(BlobOk, RefusesWhatLiesOutside) {
  EXPECT_FALSE(ok({24, 41}));
  EXPECT_FALSE(ok({64, 1}));
  EXPECT_FALSE(ok({72, 0}));
  EXPECT_FALSE(ok({0, 8})) << "the fixed struct is no blob";
  EXPECT_FALSE(ok({16, 8}));
  EXPECT_FALSE(ok({28, 8})) << "not aligned";
}

TEST(BlobOk, DoesNotWrapAround) {
  EXPECT_FALSE(ok({24, 0xffffffffu}));
  EXPECT_FALSE(ok({0xfffffff8u, 16}));
  EXPECT_FALSE(ok({0xfffffff8u, 0xfffffff8u}));
}

TEST(BlobOk, WantsWholeElementsUpToTheLimit) {
  EXPECT_TRUE(ok({24, 24}, 8));
  EXPECT_FALSE(ok({24, 20}, 8));
  EXPECT_TRUE(ok({24, 16}, 8, 16));
  EXPECT_FALSE(ok({24, 24}, 8, 16));
}

TEST(NameOk, RefusesNulAndTooMuchText) {
  std::array<std::byte, 32> payload{};
  payload.fill(std::byte{'a'});
  EXPECT_TRUE(detail::name_ok(payload, kFixed, {24, 8}));
  payload[27] = std::byte{0};
  EXPECT_FALSE(detail::name_ok(payload, kFixed, {24, 8}));
  EXPECT_TRUE(detail::name_ok(payload, kFixed, {24, 3}));
  EXPECT_TRUE(detail::name_ok(payload, kFixed, {0, 0}));
  std::array<std::byte, kFixed + 2 * kMaxNameBytes> large;
  large.fill(std::byte{'b'});
  EXPECT_TRUE(detail::name_ok(large, kFixed, {24, kMaxNameBytes}));
  EXPECT_FALSE(detail::name_ok(large, kFixed, {24, kMaxNameBytes + 1}));
}

TEST(Align8, RoundsUp) {
  EXPECT_EQ(align8(0), 0u);
  EXPECT_EQ(align8(1), 8u);
  EXPECT_EQ(align8(8), 8u);
  EXPECT_EQ(align8(9), 16u);
}

TEST(HandleId, KeepsIndexAndGeneration) {
  const uint64_t id = make_id(kProxyMade | 17, 0xfffffffeu);
  EXPECT_EQ(id_index(id), kProxyMade | 17);
  EXPECT_EQ(id_generation(id), 0xfffffffeu);
  EXPECT_EQ(make_id(0, 0), kLegacyStream);
}

}  // namespace
}  // namespace tube::wire
