"""The ABI from before CUDA 3.2, without arrays and copies: 32-bit sizes and addresses
(hook/calls/old/memory.cc)."""

chapter("32-bit addresses")
call("cuDeviceTotalMem", lane="local", needs="init")
call("cuCtxCreate", lane="local", needs="init", uses="tubeContextCreate")
# answered as the driver does: no context of today has such addresses
call("cuMemGetInfo", "cuMemAlloc", "cuMemAllocPitch", "cuMemFree", "cuMemAllocHost",
     "cuMemGetAddressRange", "cuMemHostGetDevicePointer", "cuModuleGetGlobal", lane="local",
     needs="context")
