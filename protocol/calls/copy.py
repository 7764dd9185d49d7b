"""Copies and memsets: all forms are made of tubeCopy*, tubeMemset and the staging chunks."""

chapter("copy")
_MESSAGES = "tubeCopy tubeCopyInline tubeCopyChunk"
call("cuMemcpy", "cuMemcpyAsync", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2",
     "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyPeer",
     "cuMemcpyPeerAsync", lane="local", uses=_MESSAGES)
call("cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DAsync_v2", "cuMemcpy3D_v2",
     "cuMemcpy3DAsync_v2", lane="local", uses="tubeCopy3D")
call("cuMemcpyAtoA_v2", "cuMemcpyAtoD_v2", "cuMemcpyAtoH_v2", "cuMemcpyDtoA_v2", "cuMemcpyHtoA_v2",
     "cuMemcpyAtoHAsync_v2", "cuMemcpyHtoAAsync_v2", lane="local", uses="tubeCopy3D")
call("cuMemcpy3DPeer", "cuMemcpy3DPeerAsync", lane="local", uses="tubeCopy3D")
call("cuMemsetD8_v2", "cuMemsetD16_v2", "cuMemsetD32_v2", "cuMemsetD2D8_v2", "cuMemsetD2D16_v2",
     "cuMemsetD2D32_v2", "cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async",
     "cuMemsetD2D8Async", "cuMemsetD2D16Async", "cuMemsetD2D32Async", lane="local",
     uses="tubeMemset")

chapter("32-bit sizes")
# The ABI from before CUDA 3.2 (32-bit device addresses and sizes): the driver answers without
# looking at more than the context.
call("cuArrayCreate", "cuArray3DCreate", "cuArrayGetDescriptor", "cuArray3DGetDescriptor",
     lane="local")
call("cuMemcpyAtoA", "cuMemcpyAtoD", "cuMemcpyAtoH", "cuMemcpyAtoHAsync", "cuMemcpyDtoA",
     "cuMemcpyHtoA", "cuMemcpyHtoAAsync", "cuMemcpy2D", "cuMemcpy2DAsync", "cuMemcpy2DUnaligned",
     "cuMemcpy3D", "cuMemcpy3DAsync", lane="local")
call("cuMemcpyDtoD", "cuMemcpyDtoDAsync", "cuMemcpyDtoH", "cuMemcpyDtoHAsync", "cuMemcpyHtoD",
     "cuMemcpyHtoDAsync", lane="local")
call("cuMemsetD8", "cuMemsetD16", "cuMemsetD32", "cuMemsetD2D8", "cuMemsetD2D16", "cuMemsetD2D32",
     lane="local")

# one copy after the other, by the paths of the calls above
call("cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2", lane="local",
     uses="tubeCopy tubeCopyInline tubeCopyChunk")
call("cuMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync_v2", lane="local", uses="tubeCopy3D")
# The second versions refuse stream 0 in this form too (H200, 13.0): it is not the thread's own
# stream.
call("cuMemcpyBatchAsync_v2_ptsz", alias_of="cuMemcpyBatchAsync_v2")
call("cuMemcpy3DBatchAsync_v2_ptsz", alias_of="cuMemcpy3DBatchAsync_v2")
