"""Copies and memsets: all forms are made of tubeCopy*, tubeMemset and the staging chunks."""

chapter("copy")
_MESSAGES = "tubeCopy tubeCopyInline tubeCopyChunk"
call("cuMemcpy", "cuMemcpyAsync", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2", "cuMemcpyHtoDAsync_v2",
     "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyPeer", "cuMemcpyPeerAsync", lane="local", uses=_MESSAGES)
call("cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DAsync_v2", "cuMemcpy3D_v2", "cuMemcpy3DAsync_v2", lane="local",
     uses="tubeCopy3D")
call("cuMemcpy3DPeer", "cuMemcpy3DPeerAsync", lane="local", uses="tubeCopy3D")
call("cuMemsetD8_v2", "cuMemsetD16_v2", "cuMemsetD32_v2", "cuMemsetD2D8_v2", "cuMemsetD2D16_v2", "cuMemsetD2D32_v2",
     "cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async", "cuMemsetD2D8Async", "cuMemsetD2D16Async",
     "cuMemsetD2D32Async", lane="local", uses="tubeMemset")
