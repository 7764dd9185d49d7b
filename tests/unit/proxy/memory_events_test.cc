// The list of what became of GPU memory: bursts are one entry, and it never grows beyond its bound.
#include "proxy/memory/memory_events.h"

#include <gtest/gtest.h>

namespace tube::proxy {
namespace {

MemoryEvent event(int pid, uint64_t bytes) {
  return {.what = "pool", .name = "f", .pid = pid, .gpu = 0, .bytes = bytes, .why = "age"};
}

TEST(MemoryEvents, WhatComesTogetherIsOneEntry) {
  MemoryEvents events;
  events.note(event(1, 10), 1'000'000'000);
  events.note(event(1, 20), 1'900'000'000);
  events.note(event(1, 5), 2'800'000'000);
  events.note(event(1, 7), 3'800'000'000);
  events.note(event(2, 1), 3'800'000'001);
  events.note(event(1, 1), 3'800'000'002);
  const auto list = events.list();
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[0].bytes, 35u);
  EXPECT_EQ(list[0].times, 3u);
  EXPECT_EQ(list[0].at_ns, 2'800'000'000u);
  EXPECT_EQ(list[1].bytes, 7u);
  EXPECT_EQ(list[2].pid, 2);
}

TEST(MemoryEvents, OnlyTheLastOnesStay) {
  MemoryEvents events;
  for (int i = 0; i < 1000; ++i) events.note(event(i, 1), 1);
  const auto list = events.list();
  ASSERT_EQ(list.size(), MemoryEvents::kMost);
  EXPECT_EQ(list.back().pid, 999);
  EXPECT_EQ(list.front().pid, 1000 - static_cast<int>(MemoryEvents::kMost));
}

}  // namespace
}  // namespace tube::proxy
