#include "hook/graphs/update_proofs.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "hook/memory/memory_map.h"

namespace tube::hook {
namespace {

UpdateShape shape(uint64_t word) { return {{word}}; }

TEST(UpdateProofs, HoldForTheSameShapeOfTheSameNodeInTheSameInstance) {
  UpdateProofs proofs;
  EXPECT_FALSE(proofs.hold(1, 2, shape(7)));
  proofs.add(1, 2, shape(7), proofs.version());
  EXPECT_TRUE(proofs.hold(1, 2, shape(7)));
  EXPECT_FALSE(proofs.hold(1, 2, shape(8)));
  EXPECT_FALSE(proofs.hold(1, 3, shape(7)));
  EXPECT_FALSE(proofs.hold(2, 2, shape(7)));
}

TEST(UpdateProofs, TheLastShapeIsTheProvenOne) {
  UpdateProofs proofs;
  proofs.add(1, 2, shape(7), proofs.version());
  proofs.add(1, 2, shape(8), proofs.version());
  EXPECT_FALSE(proofs.hold(1, 2, shape(7)));
  EXPECT_TRUE(proofs.hold(1, 2, shape(8)));
  EXPECT_EQ(proofs.size(), 1u);
}

TEST(UpdateProofs, AreDroppedByNodeByInstanceAndAltogether) {
  UpdateProofs proofs;
  for (uint64_t exec : {1, 2}) {
    for (uint64_t node : {3, 4}) proofs.add(exec, node, shape(7), proofs.version());
  }
  EXPECT_EQ(proofs.size(), 4u);
  proofs.drop(1, 3);
  proofs.drop(1, 3);
  EXPECT_FALSE(proofs.hold(1, 3, shape(7)));
  EXPECT_TRUE(proofs.hold(1, 4, shape(7)));
  proofs.drop(1);
  EXPECT_FALSE(proofs.hold(1, 4, shape(7)));
  EXPECT_TRUE(proofs.hold(2, 3, shape(7)));
  EXPECT_EQ(proofs.size(), 2u);
  EXPECT_EQ(proofs.drop_all().size(), 1u);
  EXPECT_FALSE(proofs.hold(2, 3, shape(7)));
  EXPECT_EQ(proofs.size(), 0u);
}

TEST(UpdateProofs, AnAnswerFromBeforeADropProvesNothing) {
  UpdateProofs proofs;
  uint64_t asked = proofs.version();
  proofs.drop(9);
  proofs.add(1, 2, shape(7), asked);
  EXPECT_FALSE(proofs.hold(1, 2, shape(7)));
  asked = proofs.version();
  (void)proofs.drop_all();
  proofs.add(1, 2, shape(7), asked);
  EXPECT_FALSE(proofs.hold(1, 2, shape(7)));
}

TEST(UpdateProofs, StartAnewWhenThereAreTooMany) {
  UpdateProofs proofs;
  for (uint64_t node = 0; node <= UpdateProofs::kMostNodes; ++node)
    proofs.add(1, node, shape(7), proofs.version());
  EXPECT_EQ(proofs.size(), 1u);
  EXPECT_TRUE(proofs.hold(1, UpdateProofs::kMostNodes, shape(7)));
  EXPECT_FALSE(proofs.hold(1, 0, shape(7)));
}

TEST(UpdateShapes, OfAKernelSayEverythingButTheArguments) {
  Kernel one, other;
  one.id = 5, other.id = 6;
  Context context, elsewhere;
  context.number = 1, elsewhere.number = 2;
  const LaunchShape plain{{1, 2, 3}, {4, 5, 6}, 7};
  UpdateShape reference, got;
  ASSERT_TRUE(shape_of(&one, plain, 24, &context, &reference));
  ASSERT_TRUE(shape_of(&one, plain, 24, &context, &got));
  EXPECT_EQ(got, reference);
  ASSERT_TRUE(shape_of(&other, plain, 24, &context, &got));
  EXPECT_NE(got, reference);
  ASSERT_TRUE(shape_of(&one, plain, 32, &context, &got));
  EXPECT_NE(got, reference);
  ASSERT_TRUE(shape_of(&one, plain, 24, &elsewhere, &got));
  EXPECT_NE(got, reference);
  for (int i = 0; i < 7; ++i) {
    LaunchShape changed = plain;
    (i < 3 ? changed.grid[i] : i < 6 ? changed.block[i - 3] : changed.shared_bytes) += 8;
    ASSERT_TRUE(shape_of(&one, changed, 24, &context, &got));
    EXPECT_NE(got, reference) << i;
  }
  EXPECT_FALSE(shape_of(&one, plain, 24, nullptr, &got));
}

// Two pieces of device memory, one from a pool, one of another device, pinned memory, two mapped
// pieces, two variables.
struct Memory {
  static constexpr uint64_t kA = 0x10000, kB = 0x20000, kPool = 0x30000, kFar = 0x40000,
                            kPinned = 0x50000, kMapped = 0x60000, kBytes = 4096;
  static constexpr uint64_t kMappedToo = 0x90000;
  static constexpr uint64_t kOne = 0x70000, kOther = 0x80000;
  Context context, far;
  Memory() {
    context.number = 1, far.number = 2, far.device = 1;
    memory_map().insert({kA, kBytes, 1, &context, MemoryKind::kDevice, 0});
    memory_map().insert({kB, kBytes, 2, &context, MemoryKind::kDevice, 0});
    memory_map().insert({kPool, kBytes, 3, &context, MemoryKind::kDevice, kFromPool});
    memory_map().insert({kFar, kBytes, 4, &far, MemoryKind::kDevice, 0});
    memory_map().insert({kPinned, kBytes, 5, &context, MemoryKind::kPinned, 0});
    memory_map().insert({kMapped, kBytes, 6, &context, MemoryKind::kMapped, 0});
    memory_map().insert({kMappedToo, kBytes, 9, &context, MemoryKind::kMapped, 0});
    memory_map().insert({kOne, kBytes, 7, &context, MemoryKind::kGlobal, 0});
    memory_map().insert({kOther, kBytes, 8, &context, MemoryKind::kGlobal, 0});
  }
  ~Memory() {
    Allocation gone;
    for (const uint64_t variable : {kOne, kOther})
      (void)memory_map().remove(variable, MemoryKind::kGlobal, &gone);
    memory_map().forget_context(&context);
    memory_map().forget_context(&far);
  }
};

CUDA_MEMCPY3D copy(uint64_t dst, uint64_t src, size_t bytes) {
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = src, c.dstDevice = dst;
  c.WidthInBytes = bytes, c.Height = c.Depth = 1;
  return c;
}

TEST(UpdateShapes, OfACopyAreTheSameForAnyDeviceMemoryOfOneKind) {
  Memory m;
  UpdateShape reference, got;
  ASSERT_TRUE(shape_of(copy(m.kA, m.kB, 64), &m.context, &reference));
  ASSERT_TRUE(shape_of(copy(m.kB + 8, m.kA + 256, 64), &m.context, &got));
  EXPECT_EQ(got, reference);
  ASSERT_TRUE(shape_of(copy(m.kA, m.kB, 65), &m.context, &got));
  EXPECT_NE(got, reference);
  ASSERT_TRUE(shape_of(copy(m.kA, m.kPool, 64), &m.context, &got));
  EXPECT_NE(got, reference);
  UpdateShape variable;
  ASSERT_TRUE(shape_of(copy(m.kA, m.kOne, 64), &m.context, &variable));
  EXPECT_NE(variable, reference);
  ASSERT_TRUE(shape_of(copy(m.kB, m.kOne + 64, 64), &m.context, &got));
  EXPECT_EQ(got, variable);
  ASSERT_TRUE(shape_of(copy(m.kA, m.kOther, 64), &m.context, &got));
  EXPECT_NE(got, variable);
}

TEST(UpdateShapes, OfACopyNeedOneRowOfDeviceMemoryOnBothSides) {
  Memory m;
  UpdateShape got;
  const auto provable = [&](const CUDA_MEMCPY3D& c) { return shape_of(c, &m.context, &got); };
  EXPECT_TRUE(provable(copy(m.kA, m.kB, m.kBytes)));
  EXPECT_FALSE(provable(copy(m.kA, m.kB, m.kBytes + 1)));
  EXPECT_FALSE(provable(copy(m.kA + 1, m.kB, m.kBytes)));
  EXPECT_FALSE(provable(copy(m.kA, m.kB, ~size_t{0})));
  EXPECT_FALSE(provable(copy(m.kA, m.kB, 0)));
  EXPECT_FALSE(provable(copy(m.kA, 0, 64)));
  EXPECT_FALSE(provable(copy(m.kA, m.kPinned, 64)));
  EXPECT_FALSE(provable(copy(m.kA, m.kMapped, 64)));
  EXPECT_FALSE(provable(copy(m.kA, m.kFar, 64)));
  EXPECT_FALSE(provable(copy(m.kA, m.kA + 63, 64)));
  EXPECT_TRUE(provable(copy(m.kA, m.kA + 64, 64)));
  CUDA_MEMCPY3D c = copy(m.kA, m.kB, 64);
  c.Height = 2;
  EXPECT_FALSE(provable(c));
  c = copy(m.kA, m.kB, 64);
  c.dstY = 1;
  EXPECT_FALSE(provable(c));
  c = copy(m.kA, m.kB, 64);
  c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_FALSE(provable(c));
  c = copy(m.kA, m.kB, 64);
  c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = reinterpret_cast<void*>(m.kB);
  EXPECT_FALSE(provable(c));
  Allocation gone;
  ASSERT_TRUE(memory_map().remove(m.kB, MemoryKind::kDevice, &gone));
  EXPECT_FALSE(provable(copy(m.kA, m.kB, 64)));
}

TEST(UpdateShapes, OfACopyInMappedMemoryNeedTheGpusOwnOpenToIt) {
  Memory m;
  UpdateShape reference, got;
  const auto provable = [&](const CUDA_MEMCPY3D& c) { return shape_of(c, &m.context, &got); };
  EXPECT_FALSE(provable(copy(m.kA, m.kMapped, 64)));
  memory_map().set_own_device(m.kMapped, 1);  // another GPU's
  EXPECT_FALSE(provable(copy(m.kA, m.kMapped, 64)));
  memory_map().set_own_device(m.kMapped, 0);
  ASSERT_TRUE(shape_of(copy(m.kA, m.kMapped, 64), &m.context, &reference));
  EXPECT_FALSE(provable(copy(m.kA, m.kMapped + 64, m.kBytes)));
  EXPECT_FALSE(provable(copy(m.kA, m.kMappedToo, 64)));
  memory_map().set_own_device(m.kMappedToo, 0);
  EXPECT_TRUE(provable(copy(m.kA, m.kMappedToo + 128, 64)));
  EXPECT_EQ(got, reference);
  EXPECT_TRUE(provable(copy(m.kA, m.kB, 64)));
  EXPECT_NE(got, reference);
  memory_map().set_own_device(m.kMapped, -1);
  EXPECT_FALSE(provable(copy(m.kA, m.kMapped, 64)));
  memory_map().set_own_device(m.kA, 0);  // no mapping: nothing changes
  EXPECT_TRUE(provable(copy(m.kA, m.kB, 64)));
}

CUDA_MEMSET_NODE_PARAMS fill(uint64_t dst, unsigned value, unsigned element, size_t width) {
  CUDA_MEMSET_NODE_PARAMS p{};
  p.dst = dst, p.value = value, p.elementSize = element, p.width = width, p.height = 1;
  return p;
}

TEST(UpdateShapes, OfAMemsetLeaveOutTheValueAndTheAddress) {
  Memory m;
  UpdateShape reference, got;
  ASSERT_TRUE(shape_of(fill(m.kA, 1, 4, 16), &m.context, &reference));
  ASSERT_TRUE(shape_of(fill(m.kB + 4, ~0u, 4, 16), &m.context, &got));
  EXPECT_EQ(got, reference);
  ASSERT_TRUE(shape_of(fill(m.kA, 1, 4, 17), &m.context, &got));
  EXPECT_NE(got, reference);
  ASSERT_TRUE(shape_of(fill(m.kA, 1, 2, 16), &m.context, &got));
  EXPECT_NE(got, reference);
}

TEST(UpdateShapes, OfAMemsetNeedWhatTheDriverSurelyTakes) {
  Memory m;
  UpdateShape got;
  const auto provable = [&](const CUDA_MEMSET_NODE_PARAMS& p) {
    return shape_of(p, &m.context, &got);
  };
  EXPECT_TRUE(provable(fill(m.kA, 255, 1, m.kBytes)));
  EXPECT_FALSE(provable(fill(m.kA, 256, 1, 16)));
  EXPECT_FALSE(provable(fill(m.kA, 1, 1, m.kBytes + 1)));
  EXPECT_FALSE(provable(fill(m.kA + 2, 1, 4, 16)));
  EXPECT_FALSE(provable(fill(m.kA, 1, 3, 16)));
  EXPECT_FALSE(provable(fill(m.kA, 1, 4, 0)));
  EXPECT_FALSE(provable(fill(m.kA, 1, 4, size_t{1} << 62)));
  EXPECT_FALSE(provable(fill(m.kFar, 1, 4, 16)));
  CUDA_MEMSET_NODE_PARAMS rows = fill(m.kA, 1, 4, 16);
  rows.height = 2, rows.pitch = 64;
  EXPECT_FALSE(provable(rows));
}

}  // namespace
}  // namespace tube::hook
