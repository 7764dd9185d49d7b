"""Memory and semaphores of other APIs, and what a device may or may not have: RDMA flushes, decompression, multicast."""

chapter("external objects")
# checked here; no descriptor is forwarded (docs/limits.md)
call("cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer", "cuExternalMemoryGetMappedMipmappedArray", "cuDestroyExternalMemory",
     "cuImportExternalSemaphore", "cuSignalExternalSemaphoresAsync", "cuWaitExternalSemaphoresAsync", "cuDestroyExternalSemaphore", lane="local")

chapter("device features")
call("cuFlushGPUDirectRDMAWrites", lane="reply")
call("cuDeviceGetHostAtomicCapabilities", "cuDeviceGetP2PAtomicCapabilities", lane="local", needs="init", uses="tubeAtomicCapabilities")
message("tubeAtomicCapabilities", "reply", device="i32", peer="i32", operations="blob", reply=dict(capabilities="blob"))
# the attributes say 0: there are no multicast objects and no decompression engine
call("cuMulticastCreate", "cuMulticastAddDevice", "cuMulticastBindMem", "cuMulticastBindAddr", "cuMulticastUnbind",
     "cuMulticastGetGranularity", lane="local", needs="init")
call("cuMemBatchDecompressAsync", lane="local")

chapter("memory")
# a dma-buf of the client's device memory; the descriptor comes as FdMessage `token`
message("tubeRangeHandle", "reply", dptr="u64", bytes="u64", flags="u64", reply=dict(token="u64"))
call("cuMemGetHandleForAddressRange", lane="local", uses="tubeRangeHandle")
