#include "hook/graphs/graph_step_what.h"

#include <gtest/gtest.h>

namespace tube::hook {
namespace {

// As a program's stack leaves it: every byte that is no member has this value.
CUDA_MEMCPY3D copy_on(int garbage) {
  CUDA_MEMCPY3D copy;
  std::memset(static_cast<void*>(&copy), garbage, sizeof copy);
  copy.srcXInBytes = copy.srcY = copy.srcZ = copy.srcLOD = copy.srcPitch = copy.srcHeight = 0;
  copy.dstXInBytes = copy.dstY = copy.dstZ = copy.dstLOD = copy.dstPitch = copy.dstHeight = 0;
  copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcHost = copy.dstHost = copy.reserved0 = copy.reserved1 = nullptr;
  copy.srcDevice = copy.dstDevice = 0;
  copy.srcArray = copy.dstArray = nullptr;
  copy.WidthInBytes = 64, copy.Height = copy.Depth = 1;
  return copy;
}

bool same(const StepWhat& a, const StepWhat& b) {
  return !StepWhat::Less()(a, b) && !StepWhat::Less()(b, a);
}

TEST(GraphStepWhat, EqualCopiesAreOneWhateverStandsBetweenTheirMembers) {
  EXPECT_TRUE(same(what_of(copy_on(0), wire::StepDirection::kToGpu),
                   what_of(copy_on(0xa5), wire::StepDirection::kToGpu)));
}

TEST(GraphStepWhat, OtherCopiesDirectionsAndFunctionsAreOthers) {
  CUDA_MEMCPY3D other = copy_on(0);
  other.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  EXPECT_FALSE(same(what_of(copy_on(0), wire::StepDirection::kToGpu),
                    what_of(other, wire::StepDirection::kToGpu)));
  EXPECT_FALSE(same(what_of(copy_on(0), wire::StepDirection::kToGpu),
                    what_of(copy_on(0), wire::StepDirection::kFromGpu)));
  int data = 0;
  EXPECT_FALSE(same(what_of(nullptr, &data), what_of(nullptr, nullptr)));
}

}  // namespace
}  // namespace tube::hook
