// What holds no lock while it stands at the context gate, and the janitor beside a stream that
// waits.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "proxy/code/module_cache.h"
#include "proxy/gpu/janitor.h"
#include "tests/unit/proxy/gate_driver.h"

namespace tube::proxy {
namespace {

// ---- who stands behind another's wait holds no lock ----

// This thread is the program whose stream waits; the other is one that shares a module and the
// context's limits with it.
class SharingTest : public ContextGateTest {
 protected:
  SharingTest() : cache_(driver(), gpus_, true) { EXPECT_TRUE(gpus_.open().ok()); }

  std::shared_ptr<LoadedModule> get(uint64_t session) {
    const std::string text = ".version 8.0\n.entry k() { ret; }\n";
    const auto load = [](std::shared_ptr<const Image>*, uint64_t* raw) {
      CUlibrary library = nullptr;
      const CUresult error =
          driver().cuLibraryLoadData(&library, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0);
      *raw = reinterpret_cast<uint64_t>(library);
      return error;
    };
    std::shared_ptr<LoadedModule> module;
    bool fresh = false;
    EXPECT_EQ(
        cache_.get({session, true, 0, true}, *images_.from_bytes(std::as_bytes(std::span(text))),
                   {}, load, &module, &fresh),
        CUDA_SUCCESS);
    return module;
  }
  LoadedKernel* kernel(LoadedModule& module, const char* name) {
    LoadedKernel* found = nullptr;
    bool fresh = false;
    EXPECT_EQ(module.kernel(driver(), gpus_, 0, name, &found, &fresh), CUDA_SUCCESS);
    return found;
  }
  // Does `what` in another program, and comes back when that stands behind this one's wait.
  template <class What>
  std::thread start(What what) {
    EXPECT_EQ(wait(), CUDA_SUCCESS);
    std::thread other([this, what] {
      what();
      ended_ = true;
      g_looks.something_happened();
    });
    g_looks.wait_for(1, [this] { return ended_.load(); });
    EXPECT_FALSE(ended_);
    return other;
  }

  std::atomic<bool> ended_{false};
  ImageStore images_;
  ModuleCache cache_;
};

TEST_F(SharingTest, ALookUpOfAnothersKernel) {
  const auto module = get(1);
  LoadedKernel* mine = kernel(*module, "mine");
  std::thread other = start([&] { (void)kernel(*get(2), "theirs"); });
  EXPECT_EQ(module->raise_limit(driver(), *mine, 0, 0, 100), CUDA_SUCCESS);
  EXPECT_EQ(module->limit(*mine, 0), 100);
  EXPECT_FALSE(module->table(0, gpus_.capabilities(), 16000).empty());
  EXPECT_EQ(kernel(*module, "mine"), mine);
  EXPECT_NE(kernel(*module, "theirs"), nullptr) << "its own waits do not count";
  g_over = true;
  other.join();
}

TEST_F(SharingTest, ALoadOfTheSameImage) {
  std::thread other = start([&] { (void)get(2); });
  (void)get(1);
  EXPECT_EQ(g_loads, 1);
  g_over = true;
  other.join();
  EXPECT_EQ(g_loads, 1) << "the other one shares it";
}

TEST_F(SharingTest, ALargerStack) {
  SharedLimits limits;
  EXPECT_EQ(limits.want(driver(), gate(), 1, 1, CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS);
  std::thread other = start([&] {
    EXPECT_EQ(limits.want(driver(), gate(), 2, 1, CU_LIMIT_STACK_SIZE, 8192), CUDA_SUCCESS);
  });
  EXPECT_EQ(limits.want(driver(), gate(), 1, 1, CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
  EXPECT_EQ(limits.want(driver(), gate(), 1, 2, CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS)
      << "its own waits do not count";
  EXPECT_EQ(g_limit, 4096);
  limits.forget(driver(), gate(), 1, 2);
  EXPECT_EQ(g_limit, 1024);
  g_over = true;
  other.join();
  EXPECT_EQ(g_limit, 8192);
}

// An allocation that fails never waits for a program.
TEST_F(SharingTest, RoomIsMadeWhenNobodyWaits) {
  cache_.give_back(1, get(1));
  ASSERT_EQ(wait(), CUDA_SUCCESS);
  EXPECT_FALSE(cache_.make_room(0));
  EXPECT_EQ(g_unloads, 0);
  g_over = true;
  EXPECT_TRUE(cache_.make_room(0));
  EXPECT_EQ(g_unloads, 1);
}

// ---- the janitor beside a stream that waits ----

class WaitedForTest : public SharingTest {
 protected:
  WaitedForTest() {
    EXPECT_EQ(wait(), CUDA_SUCCESS);
    janitor_.wake();
    while (janitor_.state() != Janitor::State::kHeldBack) std::this_thread::yield();
  }
  // Until the janitor has looked often; `kOften` of these may lie a second apart, so only where it
  // is in a hurry.
  void held_back() {
    g_looks.clear();
    g_looks.wait_for(1, [this] { return worked_ != 0; });
    EXPECT_EQ(worked_, 0);
  }
  void through() {
    while (janitor_.state() != Janitor::State::kIdle) std::this_thread::yield();
    EXPECT_EQ(worked_, 1);
  }

  std::atomic<int> worked_{0};
  Janitor janitor_{driver(), gpus_, {{}, [this] { ++worked_; }, {}}};
};

TEST_F(WaitedForTest, BeginsWhenNothingWaits) {
  janitor_.hurry(Janitor::Need::kSoon);
  gate().set_patience(0);
  held_back();
  g_over = true;
  through();
}

TEST_F(WaitedForTest, HasPatienceForWhoNeedsItNow) {
  janitor_.hurry(Janitor::Need::kNow);
  held_back();
  g_over = true;
  through();
}

TEST_F(WaitedForTest, BeginsForWhoNeedsItNowWhenPatienceEnds) {
  janitor_.hurry(Janitor::Need::kNow);
  held_back();
  gate().set_patience(1);
  through();
  EXPECT_FALSE(g_over);
  janitor_.wake();
  EXPECT_FALSE(janitor_.finish(600'000)) << "the next wish is nobody's need";
  EXPECT_EQ(worked_, 1);
}

// ---- the janitor beside copies in flight ----

class DisturbedTest : public SharingTest {
 protected:
  DisturbedTest() {
    janitor_.wake();
    while (janitor_.state() != Janitor::State::kHeldBack) std::this_thread::yield();
    EXPECT_EQ(worked_, 0);
  }
  void through() {
    while (janitor_.state() != Janitor::State::kIdle) std::this_thread::yield();
    EXPECT_EQ(worked_, 1);
  }

  std::atomic<int> worked_{0};
  std::atomic<bool> copies_{true};
  Janitor janitor_{
      driver(), gpus_, {{}, [this] { ++worked_; }, {}, [this] { return bool{copies_}; }}};
};

TEST_F(DisturbedTest, BeginsWhenTheyAreThrough) {
  copies_ = false;
  through();
}

TEST_F(DisturbedTest, BeginsForWhoNeedsItSoon) {
  janitor_.hurry(Janitor::Need::kSoon);
  through();
}

TEST_F(DisturbedTest, BeginsWhenPatienceEnds) {
  gate().set_patience(0);
  through();
}

}  // namespace
}  // namespace tube::proxy
