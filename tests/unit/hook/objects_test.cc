#include "hook/process/objects.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace tube::hook {
namespace {

class ObjectsTest : public testing::Test {
 protected:
  void SetUp() override { objects_->start(); }
  Slot* make(Kind kind) {
    Slot* slot = objects_->allocate(kind);
    objects_->publish(slot);
    return slot;
  }
  std::unique_ptr<Objects> objects_ = std::make_unique<Objects>();
};

TEST_F(ObjectsTest, FindsWhatWasPublishedAndOnlyByItsKind) {
  Slot* stream = make(Kind::kStream);
  void* handle = objects_->handle_of(stream);
  EXPECT_EQ(objects_->find(Kind::kStream, handle), stream);
  EXPECT_EQ(objects_->find(Kind::kEvent, handle), nullptr);
}

TEST_F(ObjectsTest, DoesNotFindBeforePublishing) {
  Slot* slot = objects_->allocate(Kind::kEvent);
  EXPECT_EQ(objects_->find(Kind::kEvent, objects_->handle_of(slot)), nullptr);
}

TEST_F(ObjectsTest, StaleHandleIsNotFoundAfterReuseOfItsSlot) {
  Slot* slot = make(Kind::kEvent);
  void* stale = objects_->handle_of(slot);
  ASSERT_TRUE(objects_->remove(slot));
  Slot* again = make(Kind::kEvent);
  ASSERT_EQ(again, slot);
  EXPECT_EQ(objects_->find(Kind::kEvent, stale), nullptr);
  EXPECT_EQ(objects_->find(Kind::kEvent, objects_->handle_of(again)), again);
}

// Another thread's record that creates in that slot must come behind the one that destroys: nobody
// gets the slot before.
TEST_F(ObjectsTest, ARetiredSlotIsOutOfUseButNotGivenOutBeforeItsEndIsTold) {
  Slot* first = make(Kind::kEvent);
  Slot* second = make(Kind::kStream);
  void* stale = objects_->handle_of(first);
  {
    Retired gone(*objects_);
    ASSERT_TRUE(gone.add(first));
    ASSERT_TRUE(gone.add(second));
    EXPECT_FALSE(gone.add(first));
    EXPECT_EQ(objects_->find(Kind::kEvent, stale), nullptr);
    EXPECT_NE(make(Kind::kEvent), first);
    EXPECT_NE(make(Kind::kStream), second);
  }
  EXPECT_EQ(make(Kind::kEvent), first);
  EXPECT_EQ(make(Kind::kStream), second);
}

// Creating a stream has no answer: who would be refused must hear of it here.
TEST_F(ObjectsTest, AsManyStreamsLiveAsTheProxyTakes) {
  std::vector<Slot*> all;
  for (uint32_t i = 0; i < wire::most_alive(Kind::kStream); ++i) all.push_back(make(Kind::kStream));
  EXPECT_EQ(objects_->allocate(Kind::kStream), nullptr);
  objects_->remove(all.front());
  EXPECT_NE(make(Kind::kStream), nullptr);
  EXPECT_EQ(objects_->allocate(Kind::kStream), nullptr);
  EXPECT_NE(make(Kind::kGraph), nullptr);
}

TEST_F(ObjectsTest, RemovingTwiceFails) {
  Slot* slot = make(Kind::kModule);
  EXPECT_TRUE(objects_->remove(slot));
  EXPECT_FALSE(objects_->remove(slot));
}

TEST_F(ObjectsTest, SmallNumbersAndProgramAddressesAreNoHandles) {
  int on_stack = 0;
  for (const void* p : {static_cast<const void*>(nullptr), reinterpret_cast<const void*>(1),
                        reinterpret_cast<const void*>(2), static_cast<const void*>(&on_stack),
                        reinterpret_cast<const void*>(~uintptr_t{0})}) {
    EXPECT_EQ(objects_->find(Kind::kStream, p), nullptr);
  }
}

TEST_F(ObjectsTest, HandlesNeighbouringOneThatLivesAreNotFound) {
  auto* handle = static_cast<char*>(objects_->handle_of(make(Kind::kStream)));
  EXPECT_EQ(objects_->find(Kind::kStream, handle + 1), nullptr);
  EXPECT_EQ(objects_->find(Kind::kStream, handle + 16), nullptr);
}

TEST_F(ObjectsTest, DereferencingAHandleFaults) {
  auto* handle = static_cast<volatile int*>(objects_->handle_of(make(Kind::kStream)));
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    (void)*handle;
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(ObjectsTest, ThreadsNeverShareASlot) {
  constexpr int kThreads = 4, kEach = 2000;
  std::vector<std::vector<void*>> handles(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        Slot* slot = make(Kind::kEvent);
        if (i % 2 == 0) objects_->remove(slot);
        else handles[t].push_back(objects_->handle_of(slot));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  std::set<void*> all;
  for (const auto& list : handles) all.insert(list.begin(), list.end());
  EXPECT_EQ(all.size(), size_t{kThreads} * kEach / 2);
  for (void* handle : all) EXPECT_NE(objects_->find(Kind::kEvent, handle), nullptr);
}

}  // namespace
}  // namespace tube::hook
