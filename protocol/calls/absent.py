"""What cannot be had, and why. The rest of the header that is named nowhere is for a later issue."""

chapter("graphics")
absent("cuGraphicsMapResources", "cuGraphicsUnmapResources", "cuGraphicsResourceGetMappedMipmappedArray",
       "cuGraphicsResourceGetMappedPointer", "cuGraphicsResourceGetMappedPointer_v2", "cuGraphicsResourceSetMapFlags",
       "cuGraphicsResourceSetMapFlags_v2", "cuGraphicsSubResourceGetMappedArray", "cuGraphicsUnregisterResource",
       why="graphics resources cannot cross a process boundary")

chapter("references")
absent("cuModuleGetTexRef", "cuModuleGetSurfRef", "cuTexRefCreate", "cuTexRefDestroy", "cuTexRefGetAddress",
       "cuTexRefGetAddress_v2", "cuTexRefGetAddressMode", "cuTexRefGetArray", "cuTexRefGetBorderColor",
       "cuTexRefGetFilterMode", "cuTexRefGetFlags", "cuTexRefGetFormat", "cuTexRefGetMaxAnisotropy",
       "cuTexRefGetMipmapFilterMode", "cuTexRefGetMipmapLevelBias", "cuTexRefGetMipmapLevelClamp",
       "cuTexRefGetMipmappedArray", "cuTexRefSetAddress", "cuTexRefSetAddress_v2", "cuTexRefSetAddress2D",
       "cuTexRefSetAddress2D_v2", "cuTexRefSetAddress2D_v3", "cuTexRefSetAddressMode", "cuTexRefSetArray",
       "cuTexRefSetBorderColor", "cuTexRefSetFilterMode", "cuTexRefSetFlags", "cuTexRefSetFormat",
       "cuTexRefSetMaxAnisotropy", "cuTexRefSetMipmapFilterMode", "cuTexRefSetMipmapLevelBias",
       "cuTexRefSetMipmapLevelClamp", "cuTexRefSetMipmappedArray", "cuSurfRefGetArray", "cuSurfRefSetArray",
       why="texture and surface references are deprecated since CUDA 11.3 and no compiler makes them any more")

chapter("32-bit addresses")
absent("cuArray3DCreate", "cuArray3DGetDescriptor", "cuArrayCreate", "cuArrayGetDescriptor", "cuCtxCreate", "cuDeviceTotalMem",
       "cuMemAlloc", "cuMemAllocHost", "cuMemAllocPitch", "cuMemFree", "cuMemGetAddressRange", "cuMemGetInfo",
       "cuMemHostGetDevicePointer", "cuMemcpy2D", "cuMemcpy2DAsync", "cuMemcpy2DUnaligned", "cuMemcpy3D", "cuMemcpy3DAsync",
       "cuMemcpyAtoA", "cuMemcpyAtoD", "cuMemcpyAtoH", "cuMemcpyAtoHAsync", "cuMemcpyDtoA", "cuMemcpyDtoD",
       "cuMemcpyDtoDAsync", "cuMemcpyDtoH", "cuMemcpyDtoHAsync", "cuMemcpyHtoA", "cuMemcpyHtoAAsync", "cuMemcpyHtoD",
       "cuMemcpyHtoDAsync", "cuMemsetD16", "cuMemsetD2D16", "cuMemsetD2D32", "cuMemsetD2D8", "cuMemsetD32", "cuMemsetD8",
       "cuModuleGetGlobal",
       why="the ABI from before CUDA 3.2 has 32-bit device addresses and sizes; current headers call the _v2 form")

chapter("checkpoint")
absent("cuCheckpointProcessCheckpoint", "cuCheckpointProcessGetRestoreThreadId", "cuCheckpointProcessGetState",
       "cuCheckpointProcessLock", "cuCheckpointProcessRestore", "cuCheckpointProcessUnlock",
       why="a function process holds no GPU state of its own to checkpoint")
