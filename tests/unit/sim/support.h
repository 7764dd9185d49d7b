// What every sim test needs: a fixture with the primary context current, and a few kernels as PTX.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#define CU_OK(call) ASSERT_EQ(CUDA_SUCCESS, (call)) << #call
#define CU_IS(code, call) EXPECT_EQ(code, (call)) << #call

namespace tube::sim::test {

// add(p, n, k): p[i] += k.   store(p): *p = 1.   spin(flag): until *flag != 0.
inline constexpr char kKernels[] = R"(
.version 8.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 counter = 7;
.visible .entry add(.param .u64 p, .param .u32 n, .param .u32 k) {
  .reg .pred %q; .reg .b32 %r<8>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [k];
  mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %q, %r6, %r1;
  @%q bra done;
  mul.wide.u32 %d2, %r6, 4; add.s64 %d3, %d1, %d2;
  ld.global.u32 %r7, [%d3]; add.u32 %r7, %r7, %r2; st.global.u32 [%d3], %r7;
done:
  ret;
}
.visible .entry store(.param .u64 p) {
  .reg .b32 %r<2>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [p]; mov.u32 %r1, 1; st.global.u32 [%d1], %r1; ret;
}
.visible .entry spin(.param .u64 flag) {
  .reg .pred %q; .reg .b32 %r<2>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [flag];
again:
  ld.volatile.global.u32 %r1, [%d1];
  setp.eq.u32 %q, %r1, 0;
  @%q bra again;
  ret;
}
)";

class SimTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CU_OK(cuInit(0));
    CU_OK(cuDeviceGet(&device_, 0));
    CU_OK(cuDevicePrimaryCtxRetain(&context_, device_));
    CU_OK(cuCtxSetCurrent(context_));
  }
  // Every test leaves a clean device behind: what it forgot, a reset frees.
  void TearDown() override {
    EXPECT_EQ(CUDA_SUCCESS, cuDevicePrimaryCtxReset(device_));
    EXPECT_EQ(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(device_));
    EXPECT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(nullptr));
  }

  void load() {
    CU_OK(cuModuleLoadData(&module_, kKernels));
    CU_OK(cuModuleGetFunction(&add_, module_, "add"));
    CU_OK(cuModuleGetFunction(&store_, module_, "store"));
    CU_OK(cuModuleGetFunction(&spin_, module_, "spin"));
  }
  CUresult launch_add(CUdeviceptr p, unsigned n, unsigned k, CUstream stream = nullptr) {
    void* params[] = {&p, &n, &k};
    return cuLaunchKernel(add_, (n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, params, nullptr);
  }
  CUresult launch_one(CUfunction f, CUdeviceptr p, CUstream stream = nullptr) {
    void* params[] = {&p};
    return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
  }
  unsigned read(CUdeviceptr p) {
    unsigned value = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(&value, p, sizeof value));
    return value;
  }

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction add_ = nullptr, store_ = nullptr, spin_ = nullptr;
};

}  // namespace tube::sim::test
