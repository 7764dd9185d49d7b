// Wrong use, and the codes it gives. Every call here fails (or succeeds) at once and leaves the
// context usable.
#include "tests/programs/common.h"

int main() {
  int count = -1;
  SHOW(cuDeviceGetCount(&count));
  CUdevice device = 0;
  SHOW(cuDeviceGet(&device, 0));
  CUdeviceptr pointer = 0;
  SHOW(cuMemAlloc(&pointer, 16));
  CUcontext current = reinterpret_cast<CUcontext>(1);
  SHOW(cuCtxGetCurrent(&current));
  SHOW(cuInit(1));
  SHOW(cuInit(0));
  SHOW(cuInit(0));
  SHOW(cuDeviceGet(&device, 4096));
  SHOW(cuDeviceGet(&device, -1));
  SHOW(cuDeviceGetCount(nullptr));
  SHOW(cuMemAlloc(&pointer, 16));
  CUstream stream = nullptr;
  SHOW(cuStreamCreate(&stream, 0));
  SHOW(cuCtxSynchronize());
  SHOW(cuCtxGetCurrent(&current));
  printf("current is %s\n", current == nullptr ? "null" : "set");
  SHOW(cuCtxPopCurrent(&current));

  Gpu gpu;
  SHOW(cuMemAlloc(&pointer, 0));
  SHOW(cuMemAlloc(nullptr, 16));
  SHOW(cuMemAlloc(&pointer, static_cast<size_t>(1) << 50));
  SHOW(cuMemFree(0));
  SHOW(cuMemFree(0x123456));
  SHOW(cuStreamCreate(&stream, 77));
  CUevent event;
  SHOW(cuEventCreate(&event, 0x1000));
  int value = 0;
  SHOW(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(100000), 0));
  SHOW(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99));
  const char* text = nullptr;
  SHOW(cuGetErrorString(static_cast<CUresult>(123456), &text));
  CU(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  printf("text: %s\n", text);
  CU(cuGetErrorName(CUDA_ERROR_NOT_READY, &text));
  printf("name: %s\n", text);

  CU(cuMemAlloc(&pointer, 4096));
  char buffer[64] = {};
  SHOW(cuMemcpyHtoD(pointer + 4096 - 8, buffer, 64));
  SHOW(cuMemcpyDtoH(buffer, pointer + 4096 - 8, 64));
  SHOW(cuMemcpyHtoD(0, buffer, 16));
  SHOW(cuMemsetD8(0, 1, 16));
  SHOW(cuMemFree(pointer + 16));
  SHOW(cuMemFree(pointer));
  CUmemorytype type;
  int on_stack = 0;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                             reinterpret_cast<CUdeviceptr>(&on_stack)));
  SHOW(cuMemFreeHost(&on_stack));
  size_t limit = 0;
  SHOW(cuCtxGetLimit(&limit, static_cast<CUlimit>(1000)));

  // The context still works.
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> data(256);
  LAUNCH(module.function("fill"), {1}, {256}, 0, nullptr, data.pointer, 5u, 256);
  print_hash("still alive", data.read());
  return 0;
}
