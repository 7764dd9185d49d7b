#include "tests/unit/sim/support.h"

#include <string>

namespace tube::sim::test {
namespace {

using DeviceTest = SimTest;

TEST_F(DeviceTest, EveryAttributeHasAnAnswer) {
  for (int id = 1; id < CU_DEVICE_ATTRIBUTE_MAX; ++id) {
    int value = -12345;
    CU_IS(CUDA_SUCCESS, cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(id), device_));
    EXPECT_NE(-12345, value) << id;
  }
  int value = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, device_));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99));
}

TEST_F(DeviceTest, NameUuidAndBusIdAreConsistent) {
  char name[64], bus[32];
  CUuuid uuid;
  CU_OK(cuDeviceGetName(name, sizeof name, device_));
  EXPECT_NE(std::string(), name);
  CU_OK(cuDeviceGetUuid(&uuid, device_));
  CU_OK(cuDeviceGetPCIBusId(bus, sizeof bus, device_));
  CUdevice found = -1;
  CU_OK(cuDeviceGetByPCIBusId(&found, bus));
  EXPECT_EQ(device_, found);
}

TEST_F(DeviceTest, ErrorsHaveNamesAndTexts) {
  const char* text = nullptr;
  CU_OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT_STREQ("CUDA_ERROR_ILLEGAL_ADDRESS", text);
  CU_OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ("out of memory", text);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(static_cast<CUresult>(12345), &text));
}

TEST_F(DeviceTest, ProcAddressFollowsVersionAndStreamMode) {
  void *v1 = nullptr, *v2 = nullptr, *per_thread = nullptr, *plain = nullptr;
  CU_OK(cuGetProcAddress("cuCtxGetDevice", &v1, 12000, 0, nullptr));
  CU_OK(cuGetProcAddress("cuCtxGetDevice", &v2, 13000, 0, nullptr));
  EXPECT_NE(v1, v2);
  CU_OK(cuGetProcAddress("cuLaunchKernel", &plain, 12000, 0, nullptr));
  CU_OK(cuGetProcAddress("cuLaunchKernel", &per_thread, 12000,
                         CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
  EXPECT_NE(plain, per_thread);
  CUdriverProcAddressQueryResult status;
  void* none = &status;
  CU_OK(cuGetProcAddress("cuNoSuchCall", &none, 12000, 0, &status));
  EXPECT_EQ(nullptr, none);
  EXPECT_EQ(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
  CU_OK(cuGetProcAddress("cuLaunchKernel", &none, 6050,
                         CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, status);
  CU_IS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("", &none, 0, 0, nullptr));
}

TEST_F(DeviceTest, PrivateTablesAreNotThere) {
  const void* table = &table;
  CUuuid id{};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuGetExportTable(&table, &id));
}

TEST_F(DeviceTest, ContextsStackPerThread) {
  CUcontext own = nullptr, current = nullptr, popped = nullptr;
  CU_OK(cuCtxCreate(&own, nullptr, 0, device_));
  CU_OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(own, current);
  CU_OK(cuCtxPopCurrent(&popped));
  EXPECT_EQ(own, popped);
  CU_OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(context_, current);
  CU_OK(cuCtxDestroy(own));
  CUdeviceptr p;
  CU_OK(cuCtxPushCurrent(own));  // may be current, and answers 709
  CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&p, 4));
  CU_OK(cuCtxPopCurrent(nullptr));
  CU_OK(cuCtxSetCurrent(nullptr));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&p, 4));
  CU_OK(cuCtxSetCurrent(context_));
}

TEST_F(DeviceTest, PrimaryContextCountsItsReferences) {
  unsigned flags = 0;
  int active = 0;
  CUcontext again = nullptr;
  CU_OK(cuDevicePrimaryCtxRetain(&again, device_));
  EXPECT_EQ(context_, again);
  CU_OK(cuDevicePrimaryCtxRelease(device_));
  CU_OK(cuDevicePrimaryCtxGetState(device_, &flags, &active));
  EXPECT_EQ(1, active);
  CU_OK(cuDevicePrimaryCtxRelease(device_));
  CU_OK(cuDevicePrimaryCtxGetState(device_, &flags, &active));
  EXPECT_EQ(0, active);
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(device_));
  CU_OK(cuDevicePrimaryCtxRetain(&again, device_));  // for TearDown
}

}  // namespace
}  // namespace tube::sim::test
