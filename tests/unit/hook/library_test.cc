// The finished hook without any proxy: what a program sees that merely loads it, and what the calls
// answer.
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/cuda_api.h"

namespace {

int open_fds() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

int threads() {
  int count = 0;
  DIR* folder = opendir("/proc/self/task");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

class HookLibrary : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("TUBE_DIR", "/tmp/tube-no-proxy-here", 1);
    setenv("TUBE_LOG_FILE", "/dev/null", 1);
    fds_before_ = open_fds();
    threads_before_ = threads();
    library_ = dlopen(getenv("TUBE_TEST_HOOK"), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  template <class F>
  static F* get(const char* name) {
    return reinterpret_cast<F*>(dlsym(library_, name));
  }
  static inline void* library_ = nullptr;
  static inline int fds_before_ = 0, threads_before_ = 0;
};

// First: nothing has been called yet.
TEST_F(HookLibrary, LoadingOpensNothingAndStartsNothing) {
  EXPECT_EQ(open_fds(), fds_before_);
  EXPECT_EQ(threads(), threads_before_);
}

TEST_F(HookLibrary, CallsBeforeInitAreNotInitialised) {
  int count = 0;
  CUdeviceptr pointer = 0;
  EXPECT_EQ(get<CUresult(int*)>("cuDeviceGetCount")(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(get<CUresult(CUdeviceptr*, size_t)>("cuMemAlloc_v2")(&pointer, 16),
            CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(get<CUresult()>("cuCtxSynchronize")(), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(get<CUresult(CUstream)>("cuStreamSynchronize_ptsz")(nullptr),
            CUDA_ERROR_NOT_INITIALIZED);
}

TEST_F(HookLibrary, InitWithoutAProxyIsSystemNotReadyAndLeavesNothingOpen) {
  auto* init = get<CUresult(unsigned)>("cuInit");
  EXPECT_EQ(init(1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(init(0), CUDA_ERROR_SYSTEM_NOT_READY);
  const int before = open_fds();
  EXPECT_EQ(init(0), CUDA_ERROR_SYSTEM_NOT_READY);
  EXPECT_EQ(open_fds(), before);
}

TEST_F(HookLibrary, ErrorsHaveNamesAndTexts) {
  const char* text = nullptr;
  auto* name = get<CUresult(CUresult, const char**)>("cuGetErrorName");
  auto* words = get<CUresult(CUresult, const char**)>("cuGetErrorString");
  ASSERT_EQ(name(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  ASSERT_EQ(words(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(name(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(words(CUDA_SUCCESS, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HookLibrary, ProcAddressAnswersItselfByVersion) {
  void* pointer = nullptr;
  CUdriverProcAddressQueryResult status{};
  auto* lookup =
      get<CUresult(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*)>(
          "cuGetProcAddress_v2");
  ASSERT_EQ(lookup("cuGetProcAddress", &pointer, 12000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(pointer, dlsym(library_, "cuGetProcAddress_v2"));
  ASSERT_EQ(lookup("cuMemAlloc", &pointer, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(pointer, dlsym(library_, "cuMemAlloc_v2"));
  ASSERT_EQ(lookup("cuStreamSynchronize", &pointer, 13000, 2, &status), CUDA_SUCCESS);
  EXPECT_EQ(pointer, dlsym(library_, "cuStreamSynchronize_ptsz"));
}

TEST_F(HookLibrary, MissingNameIsAStatusForWhoAsks) {
  void* pointer = &pointer;
  CUdriverProcAddressQueryResult status{};
  auto* lookup =
      get<CUresult(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*)>(
          "cuGetProcAddress_v2");
  EXPECT_EQ(lookup("cuNoSuchCall", &pointer, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(lookup("cuNoSuchCall", &pointer, 13000, 0, nullptr), CUDA_ERROR_NOT_FOUND);
}

TEST_F(HookLibrary, ContextLocalStorageTableIsOursAndRefusesWithoutAContext) {
  const unsigned char id[16] = {0xC6, 0x93, 0x33, 0x6E, 0x11, 0x21, 0xDF, 0x11,
                                0xA8, 0xC3, 0x68, 0xF3, 0x55, 0xD8, 0x95, 0x93};
  CUuuid uuid;
  std::memcpy(uuid.bytes, id, sizeof id);
  const void* table = nullptr;
  ASSERT_EQ(get<CUresult(const void**, const CUuuid*)>("cuGetExportTable")(&table, &uuid),
            CUDA_SUCCESS);
  auto* read =
      reinterpret_cast<CUresult (*)(void**, CUcontext, void*)>(static_cast<void* const*>(table)[2]);
  void* value = nullptr;
  EXPECT_EQ(read(&value, nullptr, &value), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(HookLibrary, UnknownExportTableIsRefused) {
  CUuuid uuid{};
  const void* table = nullptr;
  EXPECT_EQ(get<CUresult(const void**, const CUuuid*)>("cuGetExportTable")(&table, &uuid),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(table, nullptr);
}

TEST_F(HookLibrary, StaysWhenClosed) {
  void* again = dlopen(getenv("TUBE_TEST_HOOK"), RTLD_NOW | RTLD_LOCAL);
  auto* init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(again, "cuInit"));
  dlclose(again);
  dlclose(again);
  EXPECT_EQ(init(1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HookLibrary, ForkedChildMayStillTry) {
  auto* init = get<CUresult(unsigned)>("cuInit");
  const pid_t child = fork();
  if (child == 0) _exit(init(0) == CUDA_ERROR_SYSTEM_NOT_READY ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
