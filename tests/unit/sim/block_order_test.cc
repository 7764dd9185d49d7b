// How blocks are dealt out (sim/machine/block_order.h).
#include "sim/machine/block_order.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tube::sim {
namespace {

using Ends = std::vector<std::pair<uint64_t, uint64_t>>;

// Kernels and when they end, of what is there.
Ends ends(BlockOrder& order) {
  Ends found;
  while (const auto next = order.next_ns()) {
    if (const auto kernel = order.end_next()) found.push_back({*kernel, *next});
  }
  return found;
}

TEST(BlockOrder, ALaterKernelWaitsUntilAllBlocksOfTheEarlierOnesAreDealtOut) {
  BlockOrder order(4, 10);
  order.add(1, {10}, 0);
  order.add(2, {8}, 0);
  order.add(3, {1}, 0);
  EXPECT_EQ(ends(order), (Ends{{1, 30}, {2, 50}, {3, 50}}));
  EXPECT_EQ(order.kernels(), 0u);
}

TEST(BlockOrder, TheLastWaveLeavesRoom) {
  BlockOrder order(4, 10);
  order.add(1, {5}, 0);
  order.add(2, {2}, 0);
  order.add(3, {4}, 15);
  EXPECT_EQ(ends(order), (Ends{{1, 20}, {2, 20}, {3, 30}}));
}

TEST(BlockOrder, AKernelOnMultiprocessorsOfItsOwnWaitsForNobody) {
  BlockOrder order(4, 10);
  const SmRange slice{0, 1}, rest{1, 3};
  order.add(1, {9, rest}, 0);
  order.add(2, {3, slice}, 0);
  order.add(3, {3, rest}, 0);
  EXPECT_EQ(ends(order), (Ends{{1, 30}, {2, 30}, {3, 40}}));
}

TEST(BlockOrder, AKernelOnAllMultiprocessorsIsInTheWayOfASlice) {
  BlockOrder order(4, 10);
  order.add(1, {8}, 0);
  order.add(2, {1, {0, 1}}, 0);
  EXPECT_EQ(ends(order), (Ends{{1, 20}, {2, 30}}));
}

TEST(BlockOrder, BlocksOfAHigherPriorityAreDealtOutFirst) {
  BlockOrder order(4, 10);
  order.add(1, {8, {}, 0}, 0);
  order.add(2, {8, {}, 0}, 0);
  order.add(3, {4, {}, -1}, 5);
  EXPECT_EQ(ends(order), (Ends{{3, 20}, {1, 30}, {2, 50}}));
}

}  // namespace
}  // namespace tube::sim
