// For whom one that finds no memory waits: on posters that are plain numbers.
#include <gtest/gtest.h>

#include <map>

#include "proxy/waits/posted_records.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kLong = 3'600'000'000'000;

class PostedRecordsTest : public testing::Test {
 protected:
  struct Other {
    uint64_t posted = 0, executed = 0;
    bool gone = false, waits = false;
  };

  PostedRecordsTest() {
    for (const uint64_t id : {1, 2, 3}) join(id);
  }
  void join(uint64_t id) {
    others[id] = {};
    posted.join(
        id, {.mark =
                 [this, id] {
                   return PostedRecords::Mark{.ring = others[id].posted, .gone = others[id].gone};
                 },
             .is_past =
                 [this, id](PostedRecords::Mark& mark) {
                   return !mark.gone && (others[id].waits || others[id].executed >= mark.ring);
                 }});
  }
  // `serve` happens before each further look. How many there were.
  template <class Serve>
  int settle(Serve serve) {
    int looks = 0;
    EXPECT_TRUE(posted.settle(1, {.serve = [&] { serve(++looks); }, .stop = [] { return false; }}));
    return looks;
  }

  PostedRecords posted{kLong};
  std::map<uint64_t, Other> others;
};

TEST_F(PostedRecordsTest, WhoIsAloneNeedNotAskAgain) {
  posted.leave(2);
  posted.leave(3);
  EXPECT_FALSE(posted.settle(1, {.serve = [] {}, .stop = [] { return false; }}));
}

TEST_F(PostedRecordsTest, NobodyWaitsForWhatIsExecuted) {
  others[2] = {.posted = 5, .executed = 5};
  EXPECT_EQ(settle([](int) { FAIL(); }), 0);
  EXPECT_EQ(posted.waits(), 0u);
}

TEST_F(PostedRecordsTest, WhatWasPostedBeforeIsWaitedFor) {
  others[2] = {.posted = 5, .executed = 3};
  others[3] = {.posted = 2, .executed = 1};
  EXPECT_EQ(settle([&](int look) {
              if (look == 2) others[3].executed = 2;
              if (look == 4) others[2].executed = 5;
              others[3].posted += 10;  // later: of no concern
            }),
            4);
  EXPECT_EQ(posted.waits(), 1u);
}

TEST_F(PostedRecordsTest, WhoWaitsForMemoryIsNotWaitedFor) {
  others[2] = {.posted = 5, .executed = 3};
  EXPECT_EQ(settle([&](int look) { others[2].waits = look == 3; }), 3);
}

TEST_F(PostedRecordsTest, TwoThatSettleDoNotWaitForEachOther) {
  others[1] = {.posted = 2, .executed = 1};  // in its request
  others[2] = {.posted = 2, .executed = 1};
  int looks = 0;
  EXPECT_EQ(settle([&](int) {
              const bool others_too =
                  posted.settle(2, {.serve = [&] { ++looks; }, .stop = [] { return false; }});
              EXPECT_TRUE(others_too);
              others[2].executed = 2;
            }),
            1);
  EXPECT_EQ(looks, 0);
}

TEST_F(PostedRecordsTest, TheEndOfAClientIsWaitedForWhateverItsSessionDoes) {
  others[2] = {.gone = true, .waits = true};
  EXPECT_EQ(settle([&](int look) {
              if (look == 3) posted.leave(2);
            }),
            3);
}

TEST_F(PostedRecordsTest, AStopAndTheTimeEndIt) {
  others[2] = {.posted = 5, .executed = 3};
  int looks = 0;
  EXPECT_TRUE(posted.settle(1, {.serve = [&] { ++looks; }, .stop = [&] { return looks == 2; }}));
  EXPECT_EQ(looks, 2);
  PostedRecords at_once{0};
  for (const uint64_t id : {1, 2})
    at_once.join(id, {.mark = [] { return PostedRecords::Mark{}; },
                      .is_past = [](PostedRecords::Mark&) { return false; }});
  EXPECT_TRUE(at_once.settle(1, {.serve = [] { FAIL(); }, .stop = [] { return false; }}));
}

}  // namespace
}  // namespace tube::proxy
