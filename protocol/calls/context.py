"""Contexts: names for a share of the proxy's one context per GPU; the current one is a stack per thread in the hook."""

chapter("context")
call("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxSetFlags_v2",
     "cuDevicePrimaryCtxGetState", lane="local", needs="init")
call("cuDevicePrimaryCtxReset_v2", lane="local", needs="init", uses="tubePrimaryReset")
call("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset", lane="local", needs="init", uses="tubePrimaryReset")
call("cuDevicePrimaryCtxSetFlags", lane="local", needs="init")

call("cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4", lane="local", needs="init", uses="tubeContextCreate")
call("cuCtxDestroy_v2", lane="local", needs="init", uses="tubeContextDestroy")
call("cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuCtxSetCurrent", "cuCtxGetCurrent", lane="local", needs="init")
call("cuCtxDestroy", alias_of="cuCtxDestroy_v2")
call("cuCtxPushCurrent", alias_of="cuCtxPushCurrent_v2")
call("cuCtxPopCurrent", alias_of="cuCtxPopCurrent_v2")
call("cuCtxGetDevice", "cuCtxGetFlags", lane="local", needs="init")  # a dead or faulted context answers them too
call("cuCtxSetFlags", "cuCtxGetCacheConfig", "cuCtxSetCacheConfig",
     "cuCtxGetStreamPriorityRange", "cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess", lane="local")
call("cuCtxGetDevice_v2", "cuCtxGetId", "cuCtxGetApiVersion", lane="local", needs="init")
call("cuCtxSynchronize", lane="local", uses="tubeSignal")
call("cuCtxSynchronize_v2", lane="local", needs="init", uses="tubeSignal")
call("cuCtxGetLimit", "cuCtxSetLimit", lane="local", uses="tubeContextLimit")

absent("cuCtxAttach", "cuCtxDetach", why="deprecated since CUDA 4")
absent("cuCtxGetSharedMemConfig", "cuCtxSetSharedMemConfig", "cuFuncSetSharedMemConfig",
       why="shared memory banks are not configurable on any supported GPU")
