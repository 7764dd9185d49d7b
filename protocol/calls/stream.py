"""Streams, capture state, stream memory operations."""

chapter("stream")
call("cuStreamCreate", lane="local", needs="nothing",
     uses="tubeStreamCreate")  # NULL is refused before all else
call("cuStreamCreateWithPriority", lane="local", uses="tubeStreamCreate")
call("cuStreamDestroy_v2", lane="local", uses="tubeStreamDestroy")
call("cuStreamDestroy", alias_of="cuStreamDestroy_v2")
call("cuStreamGetPriority", "cuStreamGetFlags", "cuStreamGetId", "cuStreamGetCtx",
     "cuStreamGetCtx_v2", "cuStreamGetGreenCtx", "cuStreamGetDevice", lane="local")
call("cuStreamQuery", "cuStreamSynchronize", lane="local", uses="tubeSignal")
call("cuStreamWaitEvent", lane="local", uses="tubeStreamWaitEvent")
call("cuStreamAddCallback", "cuLaunchHostFunc", lane="local", uses="tubeHostFunc")

# The attributes that a stream can have hold no handles.
opaque("CUstreamAttrValue", 64)
call("cuStreamSetAttribute", lane="hand", handler="generated", hStream=gets_attributes(),
     param=struct_in())
call("cuStreamGetAttribute", lane="reply", value=out())
call("cuStreamCopyAttributes", lane="hand", dstStream=gets_attributes())

call("cuStreamWriteValue32_v2", lane="hand", addr=address(4, written=True), handler="generated")
call("cuStreamWriteValue64_v2", lane="hand", addr=address(8, written=True), handler="generated")
call("cuStreamWaitValue32_v2", lane="hand", addr=address(4))
call("cuStreamWaitValue64_v2", lane="hand", addr=address(8))
opaque("CUstreamBatchMemOpParams", 48)
call("cuStreamBatchMemOp_v2", lane="hand", handler="generated",
     paramArray=array_in("count", max=256, check="check_mem_ops"))
# As from every driver that reports attribute 92 as 0: CUDA_ERROR_NOT_SUPPORTED.
call("cuStreamWriteValue32", "cuStreamWriteValue64", "cuStreamWaitValue32", "cuStreamWaitValue64",
     "cuStreamBatchMemOp", lane="local")

chapter("capture")
call("cuStreamIsCapturing", lane="local")
call("cuThreadExchangeStreamCaptureMode", lane="local", needs="init")
call("cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2", "cuStreamGetCaptureInfo_v3",
     lane="local", uses="tubeCaptureInfo")
# the proxy captures in relaxed mode whatever `mode` says; the hook enforces the stricter modes
call("cuStreamBeginCapture_v2", lane="hand")
call("cuStreamBeginCapture", lane="local", uses="cuStreamBeginCapture_v2")
call("cuStreamEndCapture", lane="hand", zeroes="phGraph", phGraph=creates("graph"))
call("cuStreamBeginCaptureToGraph", lane="local", uses="tubeBeginCaptureToGraph")
_DEPENDENCIES = array_in("numDependencies")
call("cuStreamUpdateCaptureDependencies", lane="reply", dependencies=_DEPENDENCIES)
call("cuStreamUpdateCaptureDependencies_v2", lane="reply", dependencies=_DEPENDENCIES,
     dependencyData=nullable(array_in("numDependencies")))
