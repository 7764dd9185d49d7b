// When a session asks the driver for the sake of host functions that the GPU has not got to.
#include "proxy/waits/host_calls.h"

#include <gtest/gtest.h>

namespace tube::proxy {
namespace {

constexpr uint64_t kLookNs = HostCalls::kLookNs;

TEST(HostCallsTest, OneThatIsOutstandingIsAskedForNowAndThen) {
  HostCalls calls;
  EXPECT_FALSE(calls.due(10 * kLookNs));
  uint64_t word = 0;
  calls.posted(word, 1);
  EXPECT_TRUE(calls.due(10 * kLookNs));
  EXPECT_FALSE(calls.due(11 * kLookNs - 1));
  EXPECT_TRUE(calls.due(11 * kLookNs));
}

TEST(HostCallsTest, TheLastOfAWordCounts) {
  HostCalls calls;
  uint64_t word = 0, other = 0;
  calls.posted(word, 1);
  calls.posted(word, 2);
  calls.posted(other, 1);
  word = 1;
  other = 1;
  EXPECT_TRUE(calls.due(10 * kLookNs));
  word = 2;
  EXPECT_TRUE(calls.any()) << "until it is looked at";
  EXPECT_FALSE(calls.due(11 * kLookNs));
  EXPECT_FALSE(calls.any());
}

TEST(HostCallsTest, NobodyAsksOnceTheContextHasFailed) {
  HostCalls calls;
  uint64_t word = 0;
  calls.posted(word, 1);
  calls.clear();
  EXPECT_FALSE(calls.any());
  EXPECT_FALSE(calls.due(10 * kLookNs));
}

}  // namespace
}  // namespace tube::proxy
