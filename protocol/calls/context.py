"""Contexts: names for a share of the proxy's one context per GPU; the current one is a stack per
thread in the hook."""

chapter("context")
call("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxSetFlags_v2",
     "cuDevicePrimaryCtxGetState", lane="local", needs="init")
call("cuDevicePrimaryCtxReset_v2", lane="local", needs="init", uses="tubePrimaryReset")
call("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset", lane="local", needs="init",
     uses="tubePrimaryReset")
call("cuDevicePrimaryCtxSetFlags", lane="local", needs="init")

call("cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4", lane="local", needs="init",
     uses="tubeContextCreate")
call("cuCtxDestroy_v2", lane="local", needs="init", uses="tubeContextDestroy")
call("cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuCtxSetCurrent", "cuCtxGetCurrent",
     lane="local", needs="init")
call("cuCtxDestroy", alias_of="cuCtxDestroy_v2")
call("cuCtxPushCurrent", alias_of="cuCtxPushCurrent_v2")
call("cuCtxPopCurrent", alias_of="cuCtxPopCurrent_v2")
call("cuCtxGetDevice", "cuCtxGetFlags", lane="local",
     needs="init")  # a dead or faulted context answers them too
call("cuCtxSetFlags", "cuCtxGetCacheConfig", "cuCtxSetCacheConfig",
     "cuCtxGetStreamPriorityRange", "cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess", lane="local")
call("cuCtxGetDevice_v2", "cuCtxGetId", "cuCtxGetApiVersion", lane="local", needs="init")
call("cuCtxSynchronize", lane="local", uses="tubeSignal")
call("cuCtxSynchronize_v2", lane="local", needs="init", uses="tubeSignal")
call("cuCtxGetLimit", "cuCtxSetLimit", lane="local", uses="tubeContextLimit")

call("cuCtxAttach", "cuCtxDetach", "cuCtxGetSharedMemConfig", "cuCtxSetSharedMemConfig",
     "cuFuncSetSharedMemConfig", "cuCtxGetExecAffinity", lane="local", needs="context")
call("cuCtxResetPersistingL2Cache", lane="post", needs="context", behind="all")
# of all streams of a context: a stream that waits for each of them
call("cuCtxRecordEvent", lane="local", needs="init", uses="tubeEventRecord tubeStreamWaitEvent")
call("cuCtxWaitEvent", lane="local", needs="init", uses="tubeStreamWaitEvent")

chapter("green context")
call("cuDeviceGetDevResource", "cuCtxGetDevResource", "cuGreenCtxGetDevResource", lane="local",
     needs="init", uses="tubeGetResource")
call("cuDevSmResourceSplitByCount", lane="local", needs="init", uses="tubeSplitResource")
call("cuDevResourceGenerateDesc", lane="local", needs="init", uses="tubeResourceDescription")
call("cuGreenCtxCreate", lane="local", needs="init", uses="tubeGreenContextCreate")
call("cuGreenCtxDestroy", lane="local", needs="init", uses="tubeContextDestroy")
call("cuCtxFromGreenCtx", "cuGreenCtxGetId", lane="local", needs="init")
call("cuGreenCtxRecordEvent", lane="local", needs="init",
     uses="tubeEventRecord tubeStreamWaitEvent")
call("cuGreenCtxWaitEvent", lane="local", needs="init", uses="tubeStreamWaitEvent")
call("cuGreenCtxStreamCreate", lane="local", needs="init", uses="tubeStreamCreate")
