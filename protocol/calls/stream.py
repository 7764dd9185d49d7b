"""Streams, capture state, stream memory operations."""

chapter("stream")
call("cuStreamCreate", lane="local", needs="nothing", uses="tubeStreamCreate")  # NULL is refused before all else
call("cuStreamCreateWithPriority", lane="local", uses="tubeStreamCreate")
call("cuStreamDestroy_v2", lane="local", uses="tubeStreamDestroy")
call("cuStreamDestroy", alias_of="cuStreamDestroy_v2")
call("cuStreamGetPriority", "cuStreamGetFlags", "cuStreamGetId", "cuStreamGetCtx", "cuStreamGetDevice", lane="local")
call("cuStreamQuery", "cuStreamSynchronize", lane="local", uses="tubeSignal")
call("cuStreamWaitEvent", lane="local", uses="tubeStreamWaitEvent")
call("cuStreamAddCallback", "cuLaunchHostFunc", lane="local", uses="tubeHostFunc")

# The attributes that a stream can have hold no handles.
opaque("CUstreamAttrValue", 64)
call("cuStreamSetAttribute", lane="reply", param=struct_in())
call("cuStreamGetAttribute", lane="reply", value=out())
call("cuStreamCopyAttributes", lane="reply")

call("cuStreamWriteValue32_v2", lane="post", addr=address(4, write=True))
call("cuStreamWriteValue64_v2", lane="post", addr=address(8, write=True))
call("cuStreamWaitValue32_v2", lane="post", addr=address(4), handler="hand")
call("cuStreamWaitValue64_v2", lane="post", addr=address(8), handler="hand")
opaque("CUstreamBatchMemOpParams", 48)
call("cuStreamBatchMemOp_v2", lane="post", paramArray=array_in("count", max=256, check="check_mem_ops"))
call("cuStreamWriteValue32", alias_of="cuStreamWriteValue32_v2")
call("cuStreamWriteValue64", alias_of="cuStreamWriteValue64_v2")
call("cuStreamWaitValue32", alias_of="cuStreamWaitValue32_v2")
call("cuStreamWaitValue64", alias_of="cuStreamWaitValue64_v2")
call("cuStreamBatchMemOp", alias_of="cuStreamBatchMemOp_v2")

chapter("capture")
call("cuStreamIsCapturing", lane="local")
call("cuThreadExchangeStreamCaptureMode", lane="local", needs="init")
call("cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2", "cuStreamGetCaptureInfo_v3", lane="local", uses="tubeCaptureInfo")
# the proxy captures in relaxed mode whatever `mode` says; the hook enforces the stricter modes
call("cuStreamBeginCapture_v2", lane="hand")
call("cuStreamBeginCapture", lane="local", uses="cuStreamBeginCapture_v2")
call("cuStreamEndCapture", lane="hand", phGraph=creates("graph"))
call("cuStreamBeginCaptureToGraph", lane="local", uses="tubeBeginCaptureToGraph")
_DEPENDENCIES = array_in("numDependencies")
call("cuStreamUpdateCaptureDependencies", lane="reply", dependencies=_DEPENDENCIES)
call("cuStreamUpdateCaptureDependencies_v2", lane="reply", dependencies=_DEPENDENCIES,
     dependencyData=nullable(array_in("numDependencies")))
