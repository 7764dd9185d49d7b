"""Device and pinned memory, pointer queries, virtual memory management."""

chapter("memory")
call("cuMemAlloc_v2", lane="local", zeroes="dptr", uses="tubeMemAlloc")
call("cuMemAllocPitch_v2", lane="local", zeroes="dptr pPitch", uses="tubeMemAlloc")
call("cuMemFree_v2", lane="local", needs="init", uses="tubeMemFree")
call("cuMemAllocHost_v2", "cuMemHostAlloc", lane="local", zeroes="pp", uses="tubePinnedAlloc")
call("cuMemFreeHost", lane="local", needs="init", uses="tubePinnedFree")
call("cuMemHostGetDevicePointer_v2", lane="local", zeroes="pdptr")
call("cuMemHostGetFlags", lane="local")
call("cuMemGetInfo_v2", lane="local", zeroes="free total", uses="tubeMemGetInfo")
call("cuMemGetAddressRange_v2", lane="local", needs="nothing", zeroes="pbase psize")
call("cuPointerGetAttribute", "cuPointerGetAttributes", "cuPointerSetAttribute", lane="local",
     needs="init")
call("cuMemHostRegister_v2", lane="local", uses="tubeHostRegister")
call("cuMemHostUnregister", lane="local", needs="handle", uses="tubeHostUnregister")
call("cuMemHostRegister", alias_of="cuMemHostRegister_v2")

chapter("managed memory")
# pinned memory by another name: it never moves, so advice and prefetches are remembered and
# answered here
call("cuMemAllocManaged", lane="local", zeroes="dptr", uses="tubePinnedAlloc")
call("cuMemAdvise", "cuMemAdvise_v2", "cuMemPrefetchAsync", "cuMemPrefetchAsync_v2",
     "cuMemPrefetchBatchAsync", "cuMemDiscardBatchAsync", "cuMemDiscardAndPrefetchBatchAsync",
     "cuMemRangeGetAttribute", "cuMemRangeGetAttributes", "cuStreamAttachMemAsync", lane="local")

chapter("memory pool")
# emulated by the hook over tubeMemAlloc: the driver's pool hands out addresses outside the windows
call("cuMemAllocAsync", "cuMemAllocFromPoolAsync", lane="local", zeroes="dptr",
     uses="tubeMemAlloc")
call("cuMemFreeAsync", lane="local", uses="tubeMemFreeAsync")
call("cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool", "cuDeviceSetMemPool", lane="local",
     needs="init")
call("cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolTrimTo", "cuMemPoolSetAttribute",
     "cuMemPoolGetAttribute", "cuMemPoolSetAccess", "cuMemPoolGetAccess", lane="local",
     needs="init")
call("cuMemGetDefaultMemPool", "cuMemGetMemPool", "cuMemSetMemPool", lane="local", needs="init")
# a pool travels as a sealed memory file of the hook's, an allocation of it as the handle of its
# memory
call("cuMemPoolExportToShareableHandle", "cuMemPoolImportFromShareableHandle", lane="local",
     needs="init")
call("cuMemPoolExportPointer", lane="local", uses="tubeIpcGetMem")
call("cuMemPoolImportPointer", lane="local", zeroes="ptr_out",
     uses="tubeIpcOpenMem tubeIpcCloseMem")

chapter("virtual memory")
# No context needed. Locations name devices: the hook turns its ordinals into the proxy's in the
# bytes it sends.
opaque("CUmemAllocationProp", 32)
opaque("CUmemAccessDesc", 12)
opaque("CUmemLocation", 8)
call("cuMemGetAllocationGranularity", lane="local", needs="init")
call("cuMemAddressReserve", lane="hand", needs="init", ptr=out(), behind="tried")
# nothing that is kept back can rely on an address that nothing is mapped at
call("cuMemAddressFree", lane="hand", needs="init")
call("cuMemCreate", lane="hand", needs="init", handle=creates("memhandle"), prop=struct_in(),
     behind="tried")
call("cuMemRelease", lane="hand", needs="init", behind="all")
call("cuMemMap", lane="hand", needs="init")
call("cuMemUnmap", lane="hand", needs="init", behind="all")
call("cuMemSetAccess", lane="hand", needs="init", desc=array_in("count", max=64), behind="tried")
call("cuMemGetAccess", lane="hand", needs="init", flags=out(), location=struct_in())
call("cuMemGetAllocationPropertiesFromHandle", lane="hand", needs="init", prop=out())
# the fd itself goes over the socket (handshake.h FdMessage): tubeExportHandle, tubeImportHandle
call("cuMemExportToShareableHandle", lane="local", needs="init", uses="tubeExportHandle")
call("cuMemImportFromShareableHandle", lane="local", needs="init", uses="tubeImportHandle")
call("cuMemRetainAllocationHandle", lane="local", needs="init")
