"""What cannot be had, and why. The rest of the header that is named nowhere is for a later issue."""

chapter("graphics")
absent("cuGraphicsMapResources", "cuGraphicsUnmapResources", "cuGraphicsResourceGetMappedMipmappedArray",
       "cuGraphicsResourceGetMappedPointer", "cuGraphicsResourceGetMappedPointer_v2", "cuGraphicsResourceSetMapFlags",
       "cuGraphicsResourceSetMapFlags_v2", "cuGraphicsSubResourceGetMappedArray", "cuGraphicsUnregisterResource",
       why="graphics resources cannot cross a process boundary")

chapter("32-bit addresses")
absent("cuCtxCreate", "cuDeviceTotalMem", "cuMemAlloc", "cuMemAllocHost", "cuMemAllocPitch", "cuMemFree", "cuMemGetAddressRange",
       "cuMemGetInfo", "cuMemHostGetDevicePointer", "cuModuleGetGlobal",
       why="the ABI from before CUDA 3.2 has 32-bit device addresses and sizes; current headers call the _v2 form")

chapter("checkpoint")
absent("cuCheckpointProcessCheckpoint", "cuCheckpointProcessGetRestoreThreadId", "cuCheckpointProcessGetState",
       "cuCheckpointProcessLock", "cuCheckpointProcessRestore", "cuCheckpointProcessUnlock",
       why="a function process holds no GPU state of its own to checkpoint")
