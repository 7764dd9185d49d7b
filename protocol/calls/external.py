"""Memory and semaphores of other APIs, and what a device may or may not have: RDMA flushes,
decompression, multicast."""

chapter("external objects")
call("cuImportExternalMemory", lane="local", uses="tubeImportExternalMemory")
call("cuExternalMemoryGetMappedBuffer", lane="local", uses="tubeExternalBuffer")
call("cuExternalMemoryGetMappedMipmappedArray", lane="local", uses="tubeExternalArray")
call("cuDestroyExternalMemory", lane="local", uses="tubeDestroyExternal")
call("cuImportExternalSemaphore", lane="local", uses="tubeImportExternalSemaphore")
call("cuSignalExternalSemaphoresAsync", "cuWaitExternalSemaphoresAsync", lane="local",
     uses="tubeExternalSemaphores")
call("cuDestroyExternalSemaphore", lane="local", uses="tubeDestroyExternal")
# the descriptor travels as FdMessage `token`; the driver has it when the answer is SUCCESS
message("tubeImportExternalMemory", "reply", behind="tried", memory="id", type="u32", flags="u32", size="u64",
        token="u64")
message("tubeImportExternalSemaphore", "reply", behind="tried", semaphore="id", type="u32", flags="u32",
        token="u64")
# a buffer's address is the driver's choice, outside the windows
message("tubeExternalBuffer", "reply", behind="tried", memory="id", offset="u64", size="u64",
        reply=dict(dptr="u64"))
message("tubeExternalFree", "reply", dptr="u64", behind="all")
message("tubeExternalArray", "reply", behind="tried", memory="id", array="id", offset="u64", extent="u64[3]",
        format="u32", channels="u32", flags="u32", levels="u32")
message("tubeDestroyExternal", "reply", object="id", semaphore="u32", behind="all")
# wait 0: signals. params: as many of the driver's structs for that
message("tubeExternalSemaphores", "reply", stream="stream", wait="u32", semaphores="id[]",
        params="blob")

chapter("device features")
call("cuFlushGPUDirectRDMAWrites", lane="reply", behind="all")
call("cuDeviceGetHostAtomicCapabilities", "cuDeviceGetP2PAtomicCapabilities", lane="local",
     needs="init", uses="tubeAtomicCapabilities")
message("tubeAtomicCapabilities", "reply", device="i32", peer="i32", operations="blob",
        reply=dict(capabilities="blob"))
# the attributes say 0: there are no multicast objects and no decompression engine
call("cuMulticastCreate", "cuMulticastAddDevice", "cuMulticastBindMem", "cuMulticastBindAddr",
     "cuMulticastUnbind", "cuMulticastGetGranularity", lane="local", needs="init")
call("cuMemBatchDecompressAsync", lane="local")

chapter("memory")
# a dma-buf of the client's device memory; the descriptor comes as FdMessage `token`
message("tubeRangeHandle", "reply", dptr="u64", bytes="u64", flags="u64", reply=dict(token="u64"))
call("cuMemGetHandleForAddressRange", lane="local", uses="tubeRangeHandle")
