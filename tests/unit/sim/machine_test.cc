// What the environment decides. Each meson test runs this binary with other settings and a filter
// for its group.
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace {

int attribute(int device, CUdevice_attribute id) {
  int value = -1;
  EXPECT_EQ(CUDA_SUCCESS, cuDeviceGetAttribute(&value, id, device));
  return value;
}

CUcontext primary(int device) {
  CUcontext context = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&context, device));
  EXPECT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context));
  return context;
}

TEST(BeforeInit, EverythingAnswersNotInitialized) {
  int n = 0;
  CUdeviceptr p;
  EXPECT_EQ(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
  EXPECT_EQ(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&p, 4));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuInit(1));
  EXPECT_EQ(CUDA_SUCCESS, cuDriverGetVersion(&n));
  EXPECT_EQ(13000, n);
}

TEST(NoDevice, CuInitSaysSo) { EXPECT_EQ(CUDA_ERROR_NO_DEVICE, cuInit(0)); }

// CUDA_VISIBLE_DEVICES=3,1,6
TEST(DgxV100, VisibleDevicesReorderAndPeersFollowTheMesh) {
  ASSERT_EQ(CUDA_SUCCESS, cuInit(0));
  int n = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuDeviceGetCount(&n));
  ASSERT_EQ(3, n);
  EXPECT_EQ(7, attribute(0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  EXPECT_EQ(0x10 + 8 * 3, attribute(0, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
  EXPECT_EQ(0x10 + 8 * 1, attribute(1, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
  int rank = -1;
  EXPECT_EQ(CUDA_SUCCESS,
            cuDeviceGetP2PAttribute(&rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, 1));
  EXPECT_EQ(0, rank);  // 3 and 1 share an NVLink
  EXPECT_EQ(CUDA_SUCCESS,
            cuDeviceGetP2PAttribute(&rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, 2));
  EXPECT_EQ(1, rank);  // 3 and 6 do not
}

TEST(DgxV100, PeerCopiesCrossDevices) {
  ASSERT_EQ(CUDA_SUCCESS, cuInit(0));
  CUcontext a = primary(0);
  CUdeviceptr p, q;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&p, 4096));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32(p, 77, 1024));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
  CUcontext b = primary(1);
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&q, 4096));
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyPeer(q, b, p, a, 4096));
  unsigned out = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(&out, q + 4092, 4));
  EXPECT_EQ(77u, out);
  EXPECT_EQ(CUDA_SUCCESS, cuCtxEnablePeerAccess(a, 0));
  EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(a, 0));
  EXPECT_EQ(CUDA_SUCCESS, cuCtxDisablePeerAccess(a));
}

// TUBE_SIM_MEMORY=256M TUBE_SIM_SM=80 TUBE_SIM_COUNT=2
TEST(Settings, OverrideTheTopology) {
  ASSERT_EQ(CUDA_SUCCESS, cuInit(0));
  int n = 0;
  size_t bytes = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuDeviceGetCount(&n));
  EXPECT_EQ(2, n);
  ASSERT_EQ(CUDA_SUCCESS, cuDeviceTotalMem(&bytes, 1));
  EXPECT_EQ(256u << 20, bytes);
  EXPECT_EQ(8, attribute(1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  EXPECT_EQ(0, attribute(1, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH));
}

// TUBE_SIM_TOPOLOGY=two_switches.topology, with TUBE_SIM_TIME=real
TEST(File, DescribesDevicesAndLinks) {
  ASSERT_EQ(CUDA_SUCCESS, cuInit(0));
  int n = 0, can = -1;
  char name[64];
  ASSERT_EQ(CUDA_SUCCESS, cuDeviceGetCount(&n));
  ASSERT_EQ(4, n);
  EXPECT_EQ(CUDA_SUCCESS, cuDeviceGetName(name, sizeof name, 3));
  EXPECT_STREQ("Small GPU", name);
  EXPECT_EQ(40, attribute(2, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  EXPECT_EQ(1, attribute(2, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID));
  EXPECT_EQ(CUDA_SUCCESS, cuDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(1, can);
  EXPECT_EQ(CUDA_SUCCESS, cuDeviceCanAccessPeer(&can, 0, 2));
  EXPECT_EQ(0, can);
}

// TUBE_SIM_FAULT=call=cuMemAlloc_v2:error=2:after=2:count=1;call=cuMemsetD8_v2:fault=700:after=1
TEST(Faults, HitTheNamedCallAfterItsCount) {
  ASSERT_EQ(CUDA_SUCCESS, cuInit(0));
  primary(0);
  CUdeviceptr p = 0;
  EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&p, 64));
  EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&p, 64));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, 64));
  EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&p, 64));
  EXPECT_EQ(CUDA_SUCCESS, cuMemsetD8(p, 0, 64));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemsetD8(p, 0, 64));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());  // sticky
}

}  // namespace
