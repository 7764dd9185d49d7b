// Multicast objects. Where the device has none (attribute 0), every call answers so; with several
// devices behind a switch they could be made, which needs hardware that few machines have.
#include "tests/conformance/case.h"

namespace {

CUmulticastObjectProp object_prop() {
  CUmulticastObjectProp prop{};
  prop.numDevices = 1;
  prop.size = 2 << 20;
  prop.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

void want_none(const Gpu& gpu) {
  int supported = 0;
  CU(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, gpu.device));
  if (supported != 0) SKIP("this device has multicast");
}

}  // namespace

CASE(granularity) {
  Gpu gpu;
  want_none(gpu);
  CUmulticastObjectProp prop = object_prop();
  size_t bytes = 0;
  SHOW(cuMulticastGetGranularity(&bytes, &prop, CU_MULTICAST_GRANULARITY_MINIMUM));
  SHOW(cuMulticastGetGranularity(&bytes, &prop, CU_MULTICAST_GRANULARITY_RECOMMENDED));
}

CASE(create) {
  Gpu gpu;
  want_none(gpu);
  CUmulticastObjectProp prop = object_prop();
  CUmemGenericAllocationHandle handle = 0;
  SHOW(cuMulticastCreate(&handle, &prop));
}

CASE(objects_that_are_none) {
  Gpu gpu;
  want_none(gpu);
  SHOW(cuMulticastAddDevice(0, gpu.device));
  SHOW(cuMulticastBindMem(0, 0, 0, 0, 2 << 20, 0));
  SHOW(cuMulticastBindAddr(0, 0, 0x1000, 2 << 20, 0));
  SHOW(cuMulticastUnbind(0, gpu.device, 0, 2 << 20));
}

CASE(bad_arguments) {
  Gpu gpu;
  want_none(gpu);
  CUmulticastObjectProp prop = object_prop();
  CUmemGenericAllocationHandle handle = 0;
  size_t bytes = 0;
  SHOW(cuMulticastGetGranularity(nullptr, &prop, CU_MULTICAST_GRANULARITY_MINIMUM));
  SHOW(cuMulticastGetGranularity(&bytes, nullptr, CU_MULTICAST_GRANULARITY_MINIMUM));
  SHOW(cuMulticastCreate(nullptr, &prop));
  SHOW(cuMulticastCreate(&handle, nullptr));
}

