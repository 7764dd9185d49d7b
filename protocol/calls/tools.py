"""Debuggers and monitors: bookkeeping in the function process (hook/calls/tools.cc)."""

chapter("tools")
call("cuCoredumpGetAttribute", "cuCoredumpSetAttribute", lane="local", needs="context")
call("cuCoredumpGetAttributeGlobal", "cuCoredumpSetAttributeGlobal", lane="local", needs="nothing")
call("cuLogsRegisterCallback", "cuLogsUnregisterCallback", "cuLogsCurrent", "cuLogsDumpToFile",
     "cuLogsDumpToMemory", lane="local", needs="nothing")
call("cuDeviceGetNvSciSyncAttributes", lane="local", needs="init")
call("cuDeviceRegisterAsyncNotification", "cuDeviceUnregisterAsyncNotification", lane="local",
     needs="init")
call("cuProfilerInitialize", lane="local", needs="context")
call("cuCheckpointProcessCheckpoint", "cuCheckpointProcessGetRestoreThreadId",
     "cuCheckpointProcessGetState", "cuCheckpointProcessLock", "cuCheckpointProcessRestore",
     "cuCheckpointProcessUnlock", lane="local", needs="init")
