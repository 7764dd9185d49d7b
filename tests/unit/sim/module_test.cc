#include <unistd.h>

#include "tests/unit/sim/support.h"

#include <cstdint>
#include <string>

namespace tube::sim::test {
namespace {

using ModuleTest = SimTest;

TEST_F(ModuleTest, LaunchesAndFindsSymbols) {
  load();
  CUdeviceptr p, counter;
  size_t bytes = 0;
  CU_OK(cuMemAlloc(&p, 4000));
  CU_OK(cuMemsetD32(p, 1, 1000));
  CU_OK(launch_add(p, 1000, 41));
  EXPECT_EQ(42u, read(p + 3996));
  CU_OK(cuModuleGetGlobal(&counter, &bytes, module_, "counter"));
  EXPECT_EQ(4u, bytes);
  EXPECT_EQ(7u, read(counter));
  CUfunction none;
  CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&none, module_, "nothing"));
  CU_OK(cuModuleUnload(module_));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&none, module_, "add"));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, launch_add(p, 1, 1));
}

TEST_F(ModuleTest, PackedArgumentsEqualPointerArguments) {
  load();
  struct {
    CUdeviceptr p;
    unsigned n, k;
  } packed{0, 1, 5};
  CU_OK(cuMemAlloc(&packed.p, 4));
  CU_OK(cuMemsetD32(packed.p, 0, 1));
  size_t size = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  CU_OK(cuLaunchKernel(add_, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(5u, read(packed.p));
  void* params[] = {&packed.p, &packed.n, &packed.k};
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cuLaunchKernel(add_, 1, 1, 1, 1, 1, 1, 0, nullptr, params, extra));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cuLaunchKernel(add_, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
}

TEST_F(ModuleTest, ParametersHaveOffsets) {
  load();
  size_t offset = 0, size = 0;
  CU_OK(cuFuncGetParamInfo(add_, 2, &offset, &size));
  EXPECT_EQ(12u, offset);
  EXPECT_EQ(4u, size);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(add_, 3, &offset, &size));
}

TEST_F(ModuleTest, LimitsAreCheckedAtTheCall) {
  load();
  CUdeviceptr p = 0;
  unsigned n = 0, k = 0;
  void* params[] = {&p, &n, &k};
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cuLaunchKernel(add_, 0, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cuLaunchKernel(add_, 1, 65536, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cuLaunchKernel(add_, 1, 1, 1, 1025, 1, 1, 0, nullptr, params, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cuLaunchKernel(add_, 1, 1, 1, 1, 1, 65, 0, nullptr, params, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cuLaunchKernel(add_, 1, 1, 1, 1, 1, 1, 49153, nullptr, params, nullptr));
  CU_OK(cuFuncSetAttribute(add_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
  CU_OK(cuLaunchKernel(add_, 1, 1, 1, 1, 1, 1, 100000, nullptr, params, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cuFuncSetAttribute(add_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20));
  CU_IS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        cuLaunchCooperativeKernel(add_, 1000000, 1, 1, 128, 1, 1, 0, nullptr, params));
  CU_OK(cuCtxSynchronize());
}

TEST_F(ModuleTest, BadPtxNamesTheLineInTheLog) {
  char log[512] = "";
  std::string text =
      ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k() {\n  frobnicate.u32 "
      "%r1;\n  ret;\n}\n";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CU_IS(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&module_, text.c_str(), 2, options, values));
  EXPECT_NE(nullptr, std::strstr(log, "line 5")) << log;
  EXPECT_NE(nullptr, std::strstr(log, "frobnicate")) << log;
  EXPECT_EQ(std::strlen(log), reinterpret_cast<size_t>(values[1]));
}

// A process that faulted gets no context of the device any more: in one of its own, started anew.
TEST_F(ModuleTest, AnIllegalAddressIsStickyAndNoNewContextHelps) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto body = [this] {
    load();
    CU_OK(launch_one(store_, 0x4240));
    CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    CUdeviceptr p;
    CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&p, 4));
    CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(nullptr));
    CU_OK(cuDevicePrimaryCtxReset(device_));
    CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&p, 4));
    CUcontext again;
    CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuDevicePrimaryCtxRetain(&again, device_));
    _exit(HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}

TEST_F(ModuleTest, LibrariesLoadIntoEveryContext) {
  CUlibrary library;
  CUkernel kernel;
  CUfunction f;
  CU_OK(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned count = 0;
  CU_OK(cuLibraryGetKernelCount(&count, library));
  EXPECT_EQ(3u, count);
  CU_OK(cuLibraryGetKernel(&kernel, library, "store"));
  CU_OK(cuKernelGetFunction(&f, kernel));
  CUdeviceptr p, global;
  size_t bytes;
  CU_OK(cuMemAlloc(&p, 4));
  CU_OK(launch_one(reinterpret_cast<CUfunction>(kernel), p));
  EXPECT_EQ(1u, read(p));
  CU_OK(cuLibraryGetGlobal(&global, &bytes, library, "counter"));
  EXPECT_EQ(7u, read(global));
  const char* name = nullptr;
  CU_OK(cuKernelGetName(&name, kernel));
  EXPECT_STREQ("store", name);
  CU_OK(cuLibraryUnload(library));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cuLibraryGetKernel(&kernel, library, "store"));
}

TEST_F(ModuleTest, LinkedImageIsAnElfFileThatLoads) {
  CUlinkState link;
  CU_OK(cuLinkCreate(0, nullptr, nullptr, &link));
  CU_OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(kKernels), sizeof kKernels,
                      "kernels", 0, nullptr, nullptr));
  void* image = nullptr;
  size_t size = 0;
  CU_OK(cuLinkComplete(link, &image, &size));
  ASSERT_GT(size, 64u);
  EXPECT_EQ(0, std::memcmp(image,
                           "\x7f"
                           "ELF",
                           4));
  CU_OK(cuModuleLoadData(&module_, image));
  CU_OK(cuLinkDestroy(link));
  CU_OK(cuModuleGetFunction(&store_, module_, "store"));
}

TEST_F(ModuleTest, OccupancyFollowsThreadsAndSharedMemory) {
  load();
  int few = 0, many = 0;
  CU_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&few, add_, 1024, 0));
  CU_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&many, add_, 128, 0));
  EXPECT_EQ(2, few);
  EXPECT_EQ(16, many);
  CU_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&few, add_, 128, 48 * 1024));
  EXPECT_EQ(4, few);
  int grid = 0, block = 0;
  CU_OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, add_, nullptr, 0, 0));
  EXPECT_EQ(1024, block);
}

}  // namespace
}  // namespace tube::sim::test
