// cuGetProcAddress's rule, on a small table of the same shape as the generated one.
#include "protocol/proc_lookup.h"

#include <gtest/gtest.h>

namespace tube::hook {
namespace {
int targets[8];
}

const ProcRow kProcRows[] = {
    {"cuCtxCreate", 2000, false, &targets[0]},   {"cuCtxCreate", 3020, false, &targets[1]},
    {"cuCtxCreate", 12050, false, &targets[2]},  {"cuInit", 2000, false, &targets[3]},
    {"cuStreamQuery", 2000, false, &targets[4]}, {"cuStreamQuery", 7000, true, &targets[5]},
};
const uint32_t kProcRowCount = 6;
const int kHeaderCudaVersion = 13000;

namespace {

constexpr uint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
constexpr uint64_t kLegacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;

// What is found, or nullptr; the status must agree with it.
void* find(const char* name, int version, uint64_t flags = 0,
           int status_wanted = CU_GET_PROC_ADDRESS_SUCCESS) {
  void* out = &targets[7];
  CUdriverProcAddressQueryResult status{};
  const CUresult result = lookup(name, version, flags, &out, &status);
  EXPECT_EQ(result, out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(static_cast<int>(status), status_wanted);
  return out;
}

TEST(ProcLookup, TakesTheNewestVersionThatIsNotNewerThanAsked) {
  EXPECT_EQ(find("cuCtxCreate", 2000), &targets[0]);
  EXPECT_EQ(find("cuCtxCreate", 3019), &targets[0]);
  EXPECT_EQ(find("cuCtxCreate", 3020), &targets[1]);
  EXPECT_EQ(find("cuCtxCreate", 12049), &targets[1]);
  EXPECT_EQ(find("cuCtxCreate", 13000), &targets[2]);
  EXPECT_EQ(find("cuCtxCreate", 13000, kLegacy), &targets[2]);
}

TEST(ProcLookup, SaysWhyNothingWasFound) {
  EXPECT_EQ(find("cuCtxCreate", 1000, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT), nullptr);
  EXPECT_EQ(find("cuNoSuchThing", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND), nullptr);
  EXPECT_EQ(find("", 0, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND), nullptr);
  EXPECT_EQ(find("cuStreamQuer", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND), nullptr)
      << "a prefix is another name";
}

TEST(ProcLookup, PerThreadRequestsSeeOnlyPerThreadForms) {
  EXPECT_EQ(find("cuStreamQuery", 13000), &targets[4]);
  EXPECT_EQ(find("cuStreamQuery", 13000, kPerThread), &targets[5]);
  EXPECT_EQ(find("cuStreamQuery", 6050, kPerThread, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
            nullptr);
  EXPECT_EQ(find("cuInit", 13000, kPerThread), &targets[3])
      << "no per-thread form: the ordinary one";
}

TEST(ProcLookup, RefusesWhatMakesNoSense) {
  void* out = &targets[7];
  EXPECT_EQ(lookup(nullptr, 13000, 0, &out, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(lookup("cuInit", 13000, 0, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(lookup("cuInit", 13001, 0, &out, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(lookup("cuInit", 13000, 4, &out, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(out, &targets[7]) << "untouched";
  EXPECT_EQ(lookup("cuInit", 13000, 0, &out, nullptr), CUDA_SUCCESS) << "the status is optional";
}

}  // namespace
}  // namespace tube::hook
