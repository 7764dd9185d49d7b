"""Start, errors, versions, entry points."""

chapter("init")
call("cuInit", "cuDriverGetVersion", "cuGetProcAddress", "cuGetProcAddress_v2", "cuGetErrorName",
     "cuGetErrorString", "cuGetExportTable", lane="local", needs="nothing")
call("cuModuleGetLoadingMode", lane="local", needs="init")
call("cuProfilerStart", "cuProfilerStop", lane="local",
     needs="context")  # the profiler sees the function process, not the GPU
