// The ABI from before CUDA 3.2 of arrays, copies and memsets: 32-bit sizes and device addresses.
// With an ordinary context the driver turns all of them down.
#include "tests/conformance/case.h"

namespace {

CUarray plain_array() {
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR d{16, 4, CU_AD_FORMAT_FLOAT, 1};
  CU(cuArrayCreate(&a, &d));
  return a;
}

}  // namespace

CASE(array_create) {
  Gpu gpu;
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR_v1 d{16, 4, CU_AD_FORMAT_FLOAT, 1};
  SHOW(cuArrayCreate_v1(&a, &d));
  printf("array: %d\n", a != nullptr);
}

CASE(array_create_null_arguments) {
  Gpu gpu;
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR_v1 d{16, 4, CU_AD_FORMAT_FLOAT, 1};
  SHOW(cuArrayCreate_v1(nullptr, &d));
  SHOW(cuArrayCreate_v1(&a, nullptr));
}

CASE(array_3d_create) {
  Gpu gpu;
  CUarray a = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR_v1 d{16, 4, 2, CU_AD_FORMAT_FLOAT, 1, 0};
  SHOW(cuArray3DCreate_v1(&a, &d));
  SHOW(cuArray3DCreate_v1(&a, nullptr));
}

CASE(array_create_without_context) {
  CU(cuInit(0));
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR_v1 d{16, 4, CU_AD_FORMAT_FLOAT, 1};
  SHOW(cuArrayCreate_v1(&a, &d));
}

CASE(array_create_before_init) {
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR_v1 d{16, 4, CU_AD_FORMAT_FLOAT, 1};
  SHOW(cuArrayCreate_v1(&a, &d));
}

CASE(descriptor_of_array) {
  Gpu gpu;
  CUarray a = plain_array();
  CUDA_ARRAY_DESCRIPTOR_v1 d{};
  CUresult r = cuArrayGetDescriptor_v1(&d, a);
  printf("%s: %u x %u, format %#x, %u channels\n", code_name(r), d.Width, d.Height, static_cast<unsigned>(d.Format), d.NumChannels);
  CU(cuArrayDestroy(a));
}

CASE(descriptor_of_array_3d) {
  Gpu gpu;
  CUarray a = plain_array();
  CUDA_ARRAY3D_DESCRIPTOR_v1 d{};
  CUresult r = cuArray3DGetDescriptor_v1(&d, a);
  printf("%s: %u x %u x %u, format %#x, %u channels\n", code_name(r), d.Width, d.Height, d.Depth, static_cast<unsigned>(d.Format), d.NumChannels);
  CU(cuArrayDestroy(a));
}

CASE(descriptor_of_null) {
  Gpu gpu;
  CUDA_ARRAY_DESCRIPTOR_v1 d{};
  CUDA_ARRAY3D_DESCRIPTOR_v1 e{};
  SHOW(cuArrayGetDescriptor_v1(&d, nullptr));
  SHOW(cuArray3DGetDescriptor_v1(&e, nullptr));
}

CASE(descriptor_into_null) {
  Gpu gpu;
  CUarray a = plain_array();
  SHOW(cuArrayGetDescriptor_v1(nullptr, a));
  SHOW(cuArray3DGetDescriptor_v1(nullptr, a));
  CU(cuArrayDestroy(a));
}

CASE(copy_host_and_device) {
  Gpu gpu;
  uint32_t host = 5;
  SHOW(cuMemcpyHtoD_v1(0x10000, &host, 4));
  SHOW(cuMemcpyDtoH_v1(&host, 0x10000, 4));
  SHOW(cuMemcpyDtoD_v1(0x10000, 0x20000, 4));
  printf("host %u\n", host);
}

CASE(copy_host_and_device_async) {
  Gpu gpu;
  uint32_t host = 5;
  SHOW(cuMemcpyHtoDAsync_v1(0x10000, &host, 4, nullptr));
  SHOW(cuMemcpyDtoHAsync_v1(&host, 0x10000, 4, nullptr));
  SHOW(cuMemcpyDtoDAsync_v1(0x10000, 0x20000, 4, nullptr));
}

CASE(copy_zero_bytes) {
  Gpu gpu;
  uint32_t host = 5;
  SHOW(cuMemcpyHtoD_v1(0x10000, &host, 0));
  SHOW(cuMemcpyDtoH_v1(&host, 0, 0));
}

CASE(copy_null_host) {
  Gpu gpu;
  SHOW(cuMemcpyHtoD_v1(0x10000, nullptr, 4));
}

CASE(copy_arrays) {
  Gpu gpu;
  CUarray a = plain_array();
  std::vector<float> host(16, 1.0f);
  SHOW(cuMemcpyHtoA_v1(a, 0, host.data(), 64));
  SHOW(cuMemcpyAtoH_v1(host.data(), a, 0, 64));
  SHOW(cuMemcpyAtoA_v1(a, 0, a, 0, 16));
  SHOW(cuMemcpyDtoA_v1(a, 0, 0x10000, 64));
  SHOW(cuMemcpyAtoD_v1(0x10000, a, 0, 64));
  CU(cuArrayDestroy(a));
}

CASE(copy_arrays_async) {
  Gpu gpu;
  CUarray a = plain_array();
  std::vector<float> host(16, 1.0f);
  SHOW(cuMemcpyHtoAAsync_v1(a, 0, host.data(), 64, nullptr));
  SHOW(cuMemcpyAtoHAsync_v1(host.data(), a, 0, 64, nullptr));
  CU(cuArrayDestroy(a));
}

CASE(copy_null_array) {
  Gpu gpu;
  float value = 0;
  SHOW(cuMemcpyHtoA_v1(nullptr, 0, &value, 4));
  SHOW(cuMemcpyAtoH_v1(&value, nullptr, 0, 4));
}

CASE(copy_2d) {
  Gpu gpu;
  CUarray a = plain_array();
  std::vector<float> host(64, 1.0f);
  CUDA_MEMCPY2D_v1 c{};
  c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = host.data(), c.srcPitch = 64;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = a;
  c.WidthInBytes = 64, c.Height = 4;
  SHOW(cuMemcpy2D_v1(&c));
  SHOW(cuMemcpy2DUnaligned_v1(&c));
  SHOW(cuMemcpy2DAsync_v1(&c, nullptr));
  CU(cuArrayDestroy(a));
}

CASE(copy_2d_host_to_host) {
  Gpu gpu;
  std::vector<uint32_t> from(16, 7), to(16, 0);
  CUDA_MEMCPY2D_v1 c{};
  c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = from.data(), c.srcPitch = 16;
  c.dstMemoryType = CU_MEMORYTYPE_HOST, c.dstHost = to.data(), c.dstPitch = 16;
  c.WidthInBytes = 16, c.Height = 4;
  SHOW(cuMemcpy2D_v1(&c));
  printf("copied: %u\n", to[0]);
}

CASE(copy_3d) {
  Gpu gpu;
  CUarray a = plain_array();
  std::vector<float> host(64, 1.0f);
  CUDA_MEMCPY3D_v1 c{};
  c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = host.data(), c.srcPitch = 64, c.srcHeight = 4;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = a;
  c.WidthInBytes = 64, c.Height = 4, c.Depth = 1;
  SHOW(cuMemcpy3D_v1(&c));
  SHOW(cuMemcpy3DAsync_v1(&c, nullptr));
  CU(cuArrayDestroy(a));
}

CASE(copy_null_description) {
  Gpu gpu;
  SHOW(cuMemcpy2D_v1(nullptr));
  SHOW(cuMemcpy2DUnaligned_v1(nullptr));
  SHOW(cuMemcpy2DAsync_v1(nullptr, nullptr));
  SHOW(cuMemcpy3D_v1(nullptr));
  SHOW(cuMemcpy3DAsync_v1(nullptr, nullptr));
}

CASE(copy_without_context) {
  CU(cuInit(0));
  uint32_t host = 5;
  SHOW(cuMemcpyHtoD_v1(0x10000, &host, 4));
}

CASE(memset_flat) {
  Gpu gpu;
  SHOW(cuMemsetD8_v1(0x10000, 1, 4));
  SHOW(cuMemsetD16_v1(0x10000, 1, 4));
  SHOW(cuMemsetD32_v1(0x10000, 1, 4));
}

CASE(memset_2d) {
  Gpu gpu;
  SHOW(cuMemsetD2D8_v1(0x10000, 64, 1, 16, 4));
  SHOW(cuMemsetD2D16_v1(0x10000, 64, 1, 16, 4));
  SHOW(cuMemsetD2D32_v1(0x10000, 64, 1, 16, 4));
}

CASE(memset_zero_and_null) {
  Gpu gpu;
  SHOW(cuMemsetD8_v1(0x10000, 1, 0));
  SHOW(cuMemsetD8_v1(0, 1, 4));
}

CASE(memset_without_context) {
  CU(cuInit(0));
  SHOW(cuMemsetD8_v1(0x10000, 1, 4));
}

CASE(low_half_of_an_address) {
  Gpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(16, 3));
  SHOW(cuMemsetD8_v1(static_cast<CUdeviceptr_v1>(data.pointer), 1, 4));
  printf("first %u\n", data.read()[0]);
}

CASE(created_context) {
  Gpu gpu;
  CUcontext c = nullptr;
  CU(cuCtxCreate_v2(&c, 0, gpu.device));
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR_v1 d{16, 4, CU_AD_FORMAT_FLOAT, 1};
  SHOW(cuArrayCreate_v1(&a, &d));
  SHOW(cuMemsetD8_v1(0x10000, 1, 4));
  CU(cuCtxDestroy(c));
}

CASE(by_proc_address) {
  Gpu gpu;
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  SHOW(cuGetProcAddress("cuArrayCreate", &found, 2000, 0, &status));
  printf("old form: %d, status %d\n", found == conformance::exported("cuArrayCreate"), static_cast<int>(status));
  SHOW(cuGetProcAddress("cuArrayCreate", &found, 3020, 0, &status));
  printf("new form: %d, status %d\n", found == conformance::exported("cuArrayCreate_v2"), static_cast<int>(status));
}
