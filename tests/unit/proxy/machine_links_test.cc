// The file in which the proxies of a user tell each other what they do on the links.
#include "proxy/copy/machine_links.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>

namespace tube::proxy {
namespace {

CUuuid uuid(char fill) {
  CUuuid id;
  std::memset(&id, fill, sizeof(id));
  return id;
}

class MachineLinksTest : public ::testing::Test {
 protected:
  std::unique_ptr<MachineLinks> open(const char* workflow,
                                     const std::vector<CUuuid>& gpus = {uuid(1)}) {
    auto links = MachineLinks::open(path, workflow, gpus);
    EXPECT_TRUE(links.ok()) << (links.ok() ? "" : links.error().message);
    return links.ok() ? links.take() : nullptr;
  }

  static std::string make_folder() {
    char name[] = "/tmp/tube-links-XXXXXX";
    EXPECT_NE(::mkdtemp(name), nullptr);
    return name;
  }
  ~MachineLinksTest() override { std::filesystem::remove_all(folder); }

  const std::string folder = make_folder();
  const std::string path = folder + "/links";
};

TEST_F(MachineLinksTest, EachSeesWhatTheOthersMoved) {
  const auto a = open("a"), b = open("b", {uuid(2), uuid(1)});
  a->mine(0, true).bytes = 100;
  b->mine(1, true).bytes = 7;
  b->mine(1, true).needed_bytes_per_s = 9;
  b->mine(0, false).bytes = 5;
  const auto seen = a->others();
  ASSERT_EQ(seen.size(), 4u);
  uint64_t mine_up = 0, other_down = 0, needed = 0;
  for (const MachineLinks::Other& link : seen) {
    EXPECT_EQ(link.workflow, "b");
    EXPECT_EQ(link.pid, getpid());
    const CUuuid mine = uuid(1);
    const bool same = std::memcmp(&link.gpu, &mine, sizeof(mine)) == 0;
    if (same && link.to_gpu) mine_up += link.bytes, needed += link.needed_bytes_per_s;
    if (!same && !link.to_gpu) other_down += link.bytes;
  }
  EXPECT_EQ(mine_up, 7u);
  EXPECT_EQ(needed, 9u);
  EXPECT_EQ(other_down, 5u);
  EXPECT_EQ(b->others().size(), 2u);
}

// As proxies in two PID namespaces may.
TEST_F(MachineLinksTest, ProxiesWithTheSameProcessNumberAreTwo) {
  const auto a = open("a"), b = open("b"), c = open("c");
  const auto links = a->others();
  const auto times = a->others_time(uuid(1));
  ASSERT_EQ(links.size(), 4u);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(links[0].pid, links[2].pid);
  EXPECT_EQ(links[0].slot, links[1].slot);
  EXPECT_NE(links[0].slot, links[2].slot);
  EXPECT_EQ(times[0].pid, times[1].pid);
  EXPECT_NE(times[0].slot, times[1].slot);
}

TEST_F(MachineLinksTest, WhoEndedIsNotCountedAndItsSlotBeginsAnew) {
  const auto a = open("a");
  open("b")->mine(0, true).bytes = 7;
  EXPECT_TRUE(a->others().empty());
  const auto c = open("c");
  ASSERT_EQ(a->others().size(), 2u);
  EXPECT_EQ(a->others()[0].bytes, 0u);
}

TEST_F(MachineLinksTest, SlotsAreBounded) {
  std::vector<std::unique_ptr<MachineLinks>> all;
  for (uint32_t i = 0; i < MachineLinks::kSlots; ++i) all.push_back(open("many"));
  EXPECT_FALSE(MachineLinks::open(path, "one more", {}).ok());
  all.pop_back();
  EXPECT_NE(open("one more"), nullptr);
}

TEST_F(MachineLinksTest, AFileOfAnotherLayoutIsLeftAlone) {
  FILE* file = fopen(path.c_str(), "w");
  fputs("something else altogether", file);
  fclose(file);
  EXPECT_FALSE(MachineLinks::open(path, "a", {}).ok());
}

// A proxy that dies at any instruction: it takes a slot, counts, leaves, again and again.
TEST_F(MachineLinksTest, AThousandDeathsLeaveItUsable) {
  const auto watcher = open("watcher");
  std::mt19937 random(7);
  for (int death = 0; death < 1000; ++death) {
    int begun[2];
    ASSERT_EQ(pipe(begun), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (bool said = false;; said = true) {
        auto links = MachineLinks::open(path, "doomed", {uuid(1), uuid(2)});
        if (!links.ok()) _exit(1);
        if (!said && write(begun[1], "b", 1) != 1) _exit(1);
        auto held = links.take();
        for (int i = 0; i < 20; ++i) held->mine(i % 2 != 0, true).bytes += 1;
      }
    }
    close(begun[1]);
    char byte = 0;
    ASSERT_EQ(read(begun[0], &byte, 1), 1);
    close(begun[0]);
    for (auto spin = random() % 20'000; spin != 0; --spin) asm volatile("");
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it could not take a slot";
    ASSERT_TRUE(watcher->others().empty());
  }
  std::vector<std::unique_ptr<MachineLinks>> all;
  for (uint32_t i = 1; i < MachineLinks::kSlots; ++i) all.push_back(open("after"));
  EXPECT_EQ(watcher->others().size(), 2u * all.size());
}

}  // namespace
}  // namespace tube::proxy
