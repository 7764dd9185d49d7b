// Which loads reach the driver, and what one session's changes are to another.
#include "proxy/code/module_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "protocol/driver_table.gen.h"
#include "protocol/known_kernel.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/module_state.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

const std::string kStateless = ".version 8.0\n.entry k() { ret; }\n";
const std::string kWithVariable = ".version 8.0\n.global .u32 counter;\n";

class ModuleCacheTest : public ::testing::Test {
 protected:
  ModuleCacheTest() : driver(test::make_fake_driver()), gpus(driver), cache(driver, gpus, true) {
    driver.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
    driver.cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; };
    driver.cuLibraryUnload = [](CUlibrary) {
      ++unloads;
      return CUDA_SUCCESS;
    };
    driver.cuKernelGetAttribute = [](int* value, CUfunction_attribute, CUkernel, CUdevice) {
      *value = limit;
      return CUDA_SUCCESS;
    };
    driver.cuKernelSetAttribute = [](CUfunction_attribute, int value, CUkernel, CUdevice) {
      limit = value;
      return CUDA_SUCCESS;
    };
    loads = unloads = 0;
    limit = 48;
    EXPECT_TRUE(gpus.open().ok());
  }

  std::shared_ptr<LoadedModule> get(uint64_t session, const std::string& text,
                                    bool may_share = true) {
    return get_from(cache, session, text, may_share);
  }
  std::shared_ptr<LoadedModule> get_from(ModuleCache& of, uint64_t session, const std::string& text,
                                         bool may_share = true) {
    std::shared_ptr<LoadedModule> module;
    bool fresh = false;
    const auto image = images.from_bytes(std::as_bytes(std::span(text)));
    const auto load = [](std::shared_ptr<const Image>*, uint64_t* raw) {
      *raw = ++loads;
      return CUDA_SUCCESS;
    };
    EXPECT_EQ(of.get({session, true, 0, may_share}, *image, {}, load, &module, &fresh),
              CUDA_SUCCESS);
    return module;
  }
  LoadedKernel* kernel(LoadedModule& module, const char* name, bool* fresh) {
    LoadedKernel* found = nullptr;
    EXPECT_EQ(module.kernel(driver, gpus, 0, name, &found, fresh), CUDA_SUCCESS);
    return found;
  }

  static inline int loads = 0, unloads = 0, limit = 0;
  Driver driver;
  Gpus gpus;
  ImageStore images;
  ModuleCache cache;
};

TEST_F(ModuleCacheTest, OneLoadServesSeveralSessions) {
  const auto first = get(1, kStateless), second = get(2, kStateless);
  EXPECT_EQ(first, second);
  EXPECT_EQ(loads, 1);
}

TEST_F(ModuleCacheTest, OneSessionGetsTwoModulesForTwoLoads) {
  const auto first = get(1, kStateless), again = get(1, kStateless);
  EXPECT_NE(first, again);
  EXPECT_EQ(get(2, kStateless), first);
  EXPECT_EQ(get(2, kStateless), again);
  EXPECT_EQ(loads, 2);
}

TEST_F(ModuleCacheTest, KernelsOfEarlierLoadsComeWithTheImage) {
  KernelRecord record("");
  cache.use_record(&record);
  uint64_t early = 0;
  for (const std::string& image : {kStateless, kWithVariable}) {
    bool fresh = false;
    auto module = get(1, image);
    kernel(*module, "k", &fresh);
    EXPECT_TRUE(fresh);
    EXPECT_EQ(cache.counts().kernels_early, early);
    cache.give_back(1, std::move(module));
    cache.unload_idle();
    cache.unload_retired();
    module = get(2, image);
    EXPECT_EQ(cache.counts().kernels_early, ++early);
    kernel(*module, "k", &fresh);
    EXPECT_FALSE(fresh);
  }
}

TEST_F(ModuleCacheTest, VariablesAndSpecialLoadsAreNotShared) {
  EXPECT_NE(get(1, kWithVariable), get(2, kWithVariable));
  EXPECT_NE(get(1, kStateless, false), get(2, kStateless, false));
  EXPECT_EQ(loads, 4);
}

TEST_F(ModuleCacheTest, AModuleOutlivesItsUsers) {
  auto first = get(1, kStateless);
  cache.give_back(1, std::shared_ptr(first));
  EXPECT_EQ(get(2, kStateless), first);
  EXPECT_EQ(unloads, 0);
  cache.give_back(2, std::shared_ptr(first));
  cache.unload_idle();
  EXPECT_EQ(unloads, 1);
  EXPECT_EQ(cache.counts().idle, 0u);
}

TEST_F(ModuleCacheTest, ANameEndsWithItsModuleAndTheKernelsThatHaveIt) {
  std::weak_ptr<const std::string> name;
  LaunchNotes notes;
  const std::shared_ptr<LaunchNote> note = notes.add();
  {
    auto module = get(1, kStateless);
    bool fresh = false;
    KernelState state;
    state.launches = &notes;
    state.name = kernel(*module, "k", &fresh)->name;
    name = state.name;
    note->launched(state.name.get());
    cache.give_back(1, std::move(module));
    cache.unload_idle();
    EXPECT_EQ(notes.in_flight(), std::vector<std::string>{"k"}) << "the client has it still";
  }
  EXPECT_TRUE(name.expired());
  EXPECT_TRUE(notes.in_flight().empty());
}

TEST_F(ModuleCacheTest, OnlySoManyStayWithoutUsers) {
  for (int i = 0; i < 1100; ++i) cache.give_back(1, get(1, kStateless + "// " + std::to_string(i)));
  EXPECT_GT(unloads, 50);
  EXPECT_LE(cache.counts().idle, 1025u);
  const int before = loads;
  cache.give_back(2, get(2, kStateless + "// 1099"));
  EXPECT_EQ(loads, before) << "the last ones are there";
}

TEST_F(ModuleCacheTest, AModuleInUseIsNotUnloaded) {
  const auto first = get(1, kStateless);
  cache.unload_idle();
  EXPECT_EQ(unloads, 0);
  EXPECT_EQ(get(2, kStateless), first);
}

TEST_F(ModuleCacheTest, OwnModulesWaitForTheirUnload) {
  cache.give_back(1, get(1, kWithVariable));
  EXPECT_EQ(unloads, 0);
  EXPECT_EQ(cache.counts().retired, 1u);
  cache.unload_retired();
  EXPECT_EQ(unloads, 1);
}

TEST_F(ModuleCacheTest, RoomIsMadeOfWhatNobodyUses) {
  EXPECT_FALSE(cache.make_room(0));
  const auto used = get(1, kStateless);
  EXPECT_FALSE(cache.make_room(0));
  cache.give_back(1, get(1, kWithVariable));
  cache.give_back(1, std::shared_ptr(used));
  EXPECT_TRUE(cache.make_room(0));
  EXPECT_EQ(unloads, 2);
  EXPECT_FALSE(cache.make_room(0));
}

TEST_F(ModuleCacheTest, TooManyThatWaitAreUnloaded) {
  for (int i = 0; i < 300; ++i) cache.give_back(1, get(1, kWithVariable));
  EXPECT_GT(unloads, 100);
  EXPECT_LT(unloads, 300);
}

// On another GPU the unload may stand behind a kernel that waits for this session's program.
class OnTwoGpus : public ModuleCacheTest {
 protected:
  OnTwoGpus() : both(driver) {
    driver.cuDeviceGetCount = [](int* count) { return *count = 2, CUDA_SUCCESS; };
    driver.cuDeviceGet = [](CUdevice* device, int ordinal) {
      return *device = ordinal, CUDA_SUCCESS;
    };
    driver.cuCtxGetDevice = [](CUdevice* device) { return *device = current, CUDA_SUCCESS; };
    current = 0;
    EXPECT_TRUE(both.open().ok());
  }
  // Modules with state, and with a kernel that was looked up on each of these GPUs; the last one
  // has the thread.
  void make_and_give_back(std::initializer_list<int> on) {
    for (int i = 0; i < 300; ++i) {
      auto module = get_from(two, 1, kWithVariable);
      for (current = 0; const int gpu : on) {
        current = gpu;
        LoadedKernel* found = nullptr;
        bool fresh = false;
        EXPECT_EQ(module->kernel(driver, both, static_cast<uint32_t>(gpu), "k", &found, &fresh),
                  CUDA_SUCCESS);
      }
      two.give_back(1, std::move(module));
    }
  }
  static inline CUdevice current = 0;
  int surplus = 0;
  Gpus both;
  ModuleCache two{driver, both, true, [this](uint32_t) { return ++surplus, false; }};
};

TEST_F(OnTwoGpus, ASessionUnloadsWhatIsOnItsOwn) {
  make_and_give_back({1});
  EXPECT_GT(unloads, 100);
  EXPECT_EQ(surplus, 0);
}

TEST_F(OnTwoGpus, ASessionLeavesTheOthersToTheJanitor) {
  make_and_give_back({0, 1});
  EXPECT_EQ(unloads, 0);
  EXPECT_GT(surplus, 0);
  EXPECT_FALSE(two.make_room(1));
  EXPECT_EQ(unloads, 0);
  two.unload_surplus();
  EXPECT_GT(unloads, 100);
  const int before = unloads;
  two.unload_surplus();
  EXPECT_EQ(unloads, before);
}

TEST_F(OnTwoGpus, ASessionLeavesIdleOnesOfOthersToo) {
  for (int i = 0; i < 1100; ++i) {
    auto module = get_from(two, 1, kStateless + "// " + std::to_string(i));
    module->comes_to(0);
    module->comes_to(1);
    two.give_back(1, std::move(module));
  }
  EXPECT_EQ(unloads, 0);
  EXPECT_GT(surplus, 0);
  two.unload_surplus();
  EXPECT_GT(unloads, 50);
}

TEST_F(OnTwoGpus, WhoNeedsRoomAsksTheJanitorForTheRest) {
  auto module = get_from(two, 1, kStateless);
  module->comes_to(0);
  module->comes_to(1);
  two.give_back(1, std::move(module));
  EXPECT_FALSE(two.make_room(1));
  EXPECT_EQ(surplus, 1);
  two.unload_surplus();
  EXPECT_EQ(unloads, 1);
  EXPECT_FALSE(two.make_room(1));
  EXPECT_EQ(surplus, 1) << "there is nothing any more";
}

TEST_F(OnTwoGpus, RoomIsMadeOfWhatIsOnItsOwn) {
  make_and_give_back({0});
  const int before = unloads;
  current = 1;
  EXPECT_FALSE(two.make_room(1));
  EXPECT_EQ(unloads, before);
  current = 0;
  EXPECT_TRUE(two.make_room(0));
  EXPECT_EQ(unloads, 300);
}

TEST_F(ModuleCacheTest, AKernelIsAskedForOnce) {
  const auto module = get(1, kStateless);
  bool fresh = false;
  LoadedKernel* first = kernel(*module, "k", &fresh);
  EXPECT_TRUE(fresh);
  EXPECT_EQ(kernel(*get(2, kStateless), "k", &fresh), first);
  EXPECT_FALSE(fresh);
}

TEST_F(ModuleCacheTest, TheTableTellsWhatWasThereFirst) {
  const auto module = get(1, kStateless);
  bool fresh = false;
  LoadedKernel* one = kernel(*module, "some_kernel", &fresh);
  EXPECT_EQ(module->raise_limit(driver, *one, 0, 0, 100), CUDA_SUCCESS);
  EXPECT_EQ(limit, 100);
  EXPECT_EQ(module->raise_limit(driver, *one, 0, 0, 64), CUDA_SUCCESS);
  EXPECT_EQ(limit, 100) << "it only grows";
  EXPECT_EQ(module->raise_limit(driver, *one, 0, 0, -1), CUDA_ERROR_INVALID_VALUE);
  const std::vector<std::byte> table = module->table(0, gpus.capabilities(), 16000);
  ASSERT_GE(table.size(), sizeof(wire::KnownKernel));
  wire::KnownKernel entry;
  std::memcpy(&entry, table.data(), sizeof(entry));
  EXPECT_EQ(entry.entry_bytes, table.size());
  EXPECT_EQ(entry.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES].value, 48);
  const size_t at = sizeof(entry) + entry.parameter_count * sizeof(KernelParameter);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(table.data()) + at, entry.name_bytes),
            "some_kernel");
  EXPECT_TRUE(module->table(0, gpus.capabilities(), 8).empty());
  EXPECT_TRUE(module->table(1, gpus.capabilities(), 16000).empty()) << "it was not loaded there";
}

}  // namespace
}  // namespace tube::proxy
