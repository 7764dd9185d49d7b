#include <gtest/gtest.h>

#include "proxy/common/client_limits.h"
#include "proxy/session/objects.h"

namespace tube::proxy {
namespace {

using wire::Kind;
using wire::make_id;

TEST(Objects, FindsWhatWasInserted) {
  Objects objects;
  ASSERT_EQ(objects.insert(Kind::kEvent, make_id(7, 1), uint64_t{0x70}, 1), CUDA_SUCCESS);
  ASSERT_NE(objects.find(Kind::kEvent, make_id(7, 1)), nullptr);
  EXPECT_EQ(objects.find(Kind::kEvent, make_id(7, 1))->raw, 0x70u);
  EXPECT_EQ(objects.count(Kind::kEvent), 1u);
}

TEST(Objects, AnIdOfOneKindIsNoneOfAnother) {
  Objects objects;
  ASSERT_EQ(objects.insert(Kind::kEvent, make_id(7, 1), uint64_t{0x70}, 1), CUDA_SUCCESS);
  EXPECT_EQ(objects.find(Kind::kStream, make_id(7, 1)), nullptr);
}

TEST(Objects, AStaleGenerationIsUnknown) {
  Objects objects;
  ASSERT_EQ(objects.insert(Kind::kEvent, make_id(7, 1), uint64_t{0x70}, 1), CUDA_SUCCESS);
  ASSERT_TRUE(objects.erase(Kind::kEvent, make_id(7, 1)));
  ASSERT_EQ(objects.insert(Kind::kEvent, make_id(7, 2), uint64_t{0x71}, 1), CUDA_SUCCESS);
  EXPECT_EQ(objects.find(Kind::kEvent, make_id(7, 1)), nullptr);
  EXPECT_FALSE(objects.erase(Kind::kEvent, make_id(7, 1)));
}

TEST(Objects, RefusesATakenIdAndIndicesOutOfRange) {
  Objects objects;
  ASSERT_EQ(objects.insert(Kind::kEvent, make_id(7, 1), uint64_t{0x70}, 1), CUDA_SUCCESS);
  EXPECT_EQ(objects.admit(Kind::kEvent, make_id(7, 1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(objects.admit(Kind::kEvent, make_id(0, 1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(objects.admit(Kind::kEvent, make_id(limits::kObjectIndex, 1)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(objects.admit(Kind::kEvent, make_id(wire::kProxyMade | 3, 1)),
            CUDA_ERROR_INVALID_VALUE);
}

TEST(Objects, ANewerOneWithItsIndexLeavesTheOlderOneThere) {
  Objects objects;
  for (uint32_t generation : {1, 2, 3})
    ASSERT_EQ(objects.insert(Kind::kEvent, make_id(7, generation), uint64_t{generation}, 1),
              CUDA_SUCCESS);
  EXPECT_EQ(objects.count(Kind::kEvent), 3u);
  EXPECT_EQ(objects.ids(Kind::kEvent).size(), 3u);
  EXPECT_EQ(objects.find(Kind::kEvent, make_id(7, 1))->raw, 1u);
  EXPECT_EQ(objects.find(Kind::kEvent, make_id(7, 3))->raw, 3u);
  EXPECT_EQ(objects.admit(Kind::kEvent, make_id(7, 1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(objects.erase(Kind::kEvent, make_id(7, 1)));
  EXPECT_FALSE(objects.erase(Kind::kEvent, make_id(7, 1)));
  EXPECT_EQ(objects.find(Kind::kEvent, make_id(7, 1)), nullptr);
  EXPECT_TRUE(objects.erase(Kind::kEvent, make_id(7, 3)));
  EXPECT_EQ(objects.find(Kind::kEvent, make_id(7, 2))->raw, 2u);
  EXPECT_TRUE(objects.erase(Kind::kEvent, make_id(7, 2)));
  EXPECT_EQ(objects.count(Kind::kEvent), 0u);
}

TEST(Objects, StopsAtTheLimit) {
  Objects objects;
  const uint32_t limit = limits::objects(Kind::kGreenContext);
  for (uint32_t i = 1; i <= limit; ++i)
    ASSERT_EQ(objects.insert(Kind::kGreenContext, make_id(i, 1), uint64_t{i}, 1), CUDA_SUCCESS);
  EXPECT_EQ(objects.admit(Kind::kGreenContext, make_id(limit + 1, 1)), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(Objects, WhatHasEndedWithTheDriverIsThereForItsEndAlone) {
  Objects objects;
  ASSERT_EQ(objects.insert(Kind::kEvent, make_id(3, 1), 0x100, 1), CUDA_SUCCESS);
  objects.find(Kind::kEvent, make_id(3, 1))->ended = true;
  EXPECT_EQ(objects.find(Kind::kEvent, make_id(3, 1)), nullptr);
  EXPECT_TRUE(objects.ids(Kind::kEvent).empty());
  EXPECT_NE(objects.find_to_end(Kind::kEvent, make_id(3, 1)), nullptr);
  EXPECT_EQ(objects.ids_to_end(Kind::kEvent).size(), 1u);
  EXPECT_EQ(objects.admit(Kind::kEvent, make_id(3, 1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(objects.erase(Kind::kEvent, make_id(3, 1)));
  EXPECT_EQ(objects.count(Kind::kEvent), 0u);
}

TEST(Objects, TheSameHandleKeepsItsProxyMadeId) {
  Objects objects;
  const uint64_t first = objects.adopt(Kind::kGraphNode, 0x100, 1);
  EXPECT_EQ(objects.adopt(Kind::kGraphNode, 0x100, 1), first);
  EXPECT_NE(objects.adopt(Kind::kGraphNode, 0x200, 1), first);
  ASSERT_TRUE(objects.erase(Kind::kGraphNode, first));
  // The driver reuses handles: the new object must not answer to the old id.
  EXPECT_NE(objects.adopt(Kind::kGraphNode, 0x100, 1), first);
}

// Texture and surface objects: each GPU counts its own.
TEST(Objects, TheSameHandleOfAnotherGpuIsAnotherObject) {
  Objects objects;
  const uint64_t here = objects.adopt(Kind::kTexObject, 1, 1, 0, 0);
  const uint64_t there = objects.adopt(Kind::kTexObject, 1, 2, 0, 1);
  EXPECT_NE(here, there);
  EXPECT_EQ(objects.adopted(Kind::kTexObject, 1, 0), here);
  EXPECT_EQ(objects.adopted(Kind::kTexObject, 1, 1), there);
  ASSERT_TRUE(objects.erase(Kind::kTexObject, there));
  EXPECT_EQ(objects.adopted(Kind::kTexObject, 1, 1), 0u);
  EXPECT_EQ(objects.adopted(Kind::kTexObject, 1, 0), here);
}

TEST(Objects, WhatIsOwnedGoesWithItsOwner) {
  Objects objects;
  const uint64_t a = objects.adopt(Kind::kGraphNode, 0x100, 1, 5);
  const uint64_t b = objects.adopt(Kind::kGraphNode, 0x200, 1, 6);
  objects.change_owner(Kind::kGraphNode, 6, 5);
  objects.erase_owned(Kind::kGraphNode, 5);
  EXPECT_EQ(objects.find(Kind::kGraphNode, a), nullptr);
  EXPECT_EQ(objects.find(Kind::kGraphNode, b), nullptr);
  EXPECT_EQ(objects.count(Kind::kGraphNode), 0u);
}

}  // namespace
}  // namespace tube::proxy
