// A client that leaves shared modules: what it gets instead, and that nothing stays behind.
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kLibrary = make_id(1, 1), kKernel = make_id(1, 1);
const auto kAhead = reinterpret_cast<CUlibrary>(4);

class OwnModule : public SessionTest {
 protected:
  OwnModule() {
    loads = unloads = 0;
    set = {};
    refuse = false;
    driver.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
    driver.cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; };
    driver.cuLibraryLoadData = [](CUlibrary* library, const void*, CUjit_option*, void**,
                                  unsigned int, CUlibraryOption*, void**, unsigned int options) {
      if (options == 0) {  // compiled ahead
        *library = kAhead;
        return CUDA_SUCCESS;
      }
      EXPECT_EQ(options, 1u);  // the bytes stay
      *library = reinterpret_cast<CUlibrary>(++loads << 8);
      return CUDA_SUCCESS;
    };
    driver.cuLibraryUnload = [](CUlibrary library) {
      if (library != kAhead) ++unloads;
      return CUDA_SUCCESS;
    };
    driver.cuLibraryGetKernel = [](CUkernel* kernel, CUlibrary library, const char*) {
      *kernel = reinterpret_cast<CUkernel>(reinterpret_cast<uint64_t>(library) + 1);
      return CUDA_SUCCESS;
    };
    driver.cuKernelGetAttribute = [](int* value, CUfunction_attribute, CUkernel, CUdevice) {
      *value = 48;
      return CUDA_SUCCESS;
    };
    driver.cuKernelSetAttribute = [](CUfunction_attribute attribute, int value, CUkernel,
                                     CUdevice) {
      set.emplace_back(attribute, value);
      return refuse ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    };
    driver.cuGraphCreate = [](CUgraph* graph, unsigned int) {
      *graph = reinterpret_cast<CUgraph>(0x77);
      return CUDA_SUCCESS;
    };
    driver.cuGraphDestroy = [](CUgraph) { return CUDA_SUCCESS; };
  }
  ~OwnModule() override { session.reset(); }

  CUresult set_attribute(CUfunction_attribute attribute, int value, uint64_t kernel = kKernel) {
    wire::tubeKernelSetAttribute set_it{};
    set_it.kernel = kernel;
    set_it.attribute = attribute;
    set_it.value = value;
    post(set_it);
    return static_cast<CUresult>(async_error());
  }
  // One that the shared module cannot have.
  CUresult leave(uint64_t kernel = kKernel) {
    return set_attribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, kernel);
  }
  void unload(uint64_t library = kLibrary) {
    wire::tubeUnload away{};
    away.library = library;
    post(away);
  }
  void make_graph() {
    wire::cuGraphCreate create{};
    create.phGraph = make_id(1, 1);
    post(create);
  }
  uint64_t loaded() const { return loads - unloads; }

  const std::string stateless = ".version 8.0\n.entry k() { ret; }\n";
  static inline uint64_t loads = 0, unloads = 0;
  static inline std::vector<std::pair<int, int>> set;
  static inline bool refuse = false;
};

TEST_F(OwnModule, LoadingAndLeavingInALoopKeepsNothing) {
  constexpr uint64_t kTimes = 1500;
  for (uint64_t i = 0; i < kTimes; ++i) {
    if (i == kTimes / 2) make_graph();  // from here on the shared one goes back with the unload
    load(stateless);
    ASSERT_EQ(leave(), CUDA_SUCCESS);
    unload();
    ASSERT_LE(loaded(), 1 + limits::kRetiredModules + 1);
  }
  EXPECT_EQ(loads, kTimes + 1) << "the shared one only once";
  modules.unload_retired();
  EXPECT_EQ(loaded(), 1u);
  EXPECT_EQ(modules.counts().idle, 1u) << "which is there for others";
}

TEST_F(OwnModule, LeavingManyImagesInALoopKeepsWhatIsKeptForOthers) {
  for (uint64_t i = 0; i < 1500; ++i) {
    load(stateless + "// " + std::to_string(i));
    ASSERT_EQ(leave(), CUDA_SUCCESS);
    unload();
    ASSERT_LE(loaded(), 1025 + limits::kRetiredModules + 2);
  }
}

TEST_F(OwnModule, ManyLoadsAtOnceLeaveEachOfThem) {
  for (uint32_t i = 1; i <= 3; ++i) load(stateless, make_id(i, 1), make_id(i, 1));
  for (uint32_t i = 1; i <= 3; ++i) ASSERT_EQ(leave(make_id(i, 1)), CUDA_SUCCESS);
  EXPECT_EQ(loads, 6u);
  EXPECT_EQ(modules.counts().idle, 3u);
}

// A node's kernel is named by the function that it was added with, which nobody else of this client
// may have meanwhile.
TEST_F(OwnModule, WithAGraphTheSharedModuleStaysUntilTheUnload) {
  make_graph();
  load(stateless);
  ASSERT_EQ(leave(), CUDA_SUCCESS);
  EXPECT_EQ(loads, 2u);
  EXPECT_EQ(modules.counts().idle, 0u);
  load(stateless, make_id(2, 1), make_id(2, 1));
  EXPECT_EQ(loads, 3u);
  unload();
  EXPECT_EQ(modules.counts().idle, 1u);
}

TEST_F(OwnModule, TheClientsOwnLimitComesAlong) {
  load(stateless);
  EXPECT_EQ(set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 16), CUDA_SUCCESS);
  EXPECT_TRUE(set.empty()) << "less than others may want";
  ASSERT_EQ(leave(), CUDA_SUCCESS);
  ASSERT_EQ(set.size(), 2u);
  EXPECT_EQ(set[0],
            std::pair(static_cast<int>(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 16));
}

TEST_F(OwnModule, AfterAnErrorEverythingIsAsBefore) {
  load(stateless);
  EXPECT_EQ(set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 16), CUDA_SUCCESS);
  refuse = true;
  EXPECT_EQ(leave(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(modules.counts().retired, 1u);
  refuse = false;
  EXPECT_EQ(leave(), CUDA_SUCCESS);
  EXPECT_EQ(loads, 3u);
  EXPECT_EQ(modules.counts().idle, 1u);
}

}  // namespace
}  // namespace tube::proxy
