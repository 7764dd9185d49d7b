"""Modules, libraries, kernels, the linker."""

chapter("module")
call("cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary",
     lane="local", uses="tubeLoadImage")
call("cuLibraryLoadData", "cuLibraryLoadFromFile", lane="local", needs="init", uses="tubeLoadImage")
call("cuModuleUnload", lane="local", uses="tubeUnload")
call("cuLibraryUnload", lane="local", needs="init", uses="tubeUnload")
call("cuModuleGetFunction", lane="local", uses="tubeGetKernel")
call("cuLibraryGetKernel", lane="local", needs="init", uses="tubeGetKernel")
call("cuModuleGetFunctionCount", "cuModuleEnumerateFunctions", lane="local", uses="tubeListKernels")
call("cuLibraryGetKernelCount", "cuLibraryEnumerateKernels", lane="local", needs="init",
     uses="tubeListKernels")
call("cuModuleGetGlobal_v2", lane="local", zeroes="dptr bytes", uses="tubeGetGlobal")
call("cuLibraryGetGlobal", lane="local", needs="context",
     uses="tubeGetGlobal")  # of the current context's copy
call("cuLibraryGetModule", lane="local", needs="context")
call("cuLibraryGetUnifiedFunction", lane="local", needs="init")
call("cuLibraryGetManaged", lane="local", needs="init", uses="tubeGetManaged")

chapter("kernel")
call("cuKernelGetFunction", lane="local", needs="context")
call("cuFuncGetModule", "cuFuncLoad", "cuFuncIsLoaded", "cuFuncGetName", "cuFuncGetParamInfo",
     lane="local")
call("cuKernelGetLibrary", "cuKernelGetName", "cuKernelGetParamInfo", lane="local", needs="init")
call("cuFuncGetAttribute", lane="local", uses="tubeKernelGetAttribute")
call("cuKernelGetAttribute", lane="local", needs="init", uses="tubeKernelGetAttribute")
call("cuFuncSetAttribute", lane="local", uses="tubeKernelSetAttribute")
call("cuKernelSetAttribute", lane="local", needs="init", uses="tubeKernelSetAttribute")
call("cuFuncSetCacheConfig", lane="local", uses="tubeKernelSetCacheConfig")
call("cuKernelSetCacheConfig", lane="local", needs="init", uses="tubeKernelSetCacheConfig")
call("cuOccupancyMaxActiveBlocksPerMultiprocessor",
     "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "cuOccupancyMaxPotentialBlockSize",
     "cuOccupancyMaxPotentialBlockSizeWithFlags", "cuOccupancyAvailableDynamicSMemPerBlock",
     "cuOccupancyMaxActiveClusters", "cuOccupancyMaxPotentialClusterSize", lane="local",
     needs="context", uses="tubeOccupancy")

chapter("link")
# the hook gathers the inputs; cuLinkComplete is one message
call("cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkAddFile_v2", "cuLinkDestroy", lane="local")
call("cuLinkComplete", lane="local", uses="tubeLink")
call("cuLinkCreate", alias_of="cuLinkCreate_v2")
call("cuLinkAddData", alias_of="cuLinkAddData_v2")
call("cuLinkAddFile", alias_of="cuLinkAddFile_v2")

chapter("launch")
call("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", lane="local",
     uses="tubeLaunch")
# the launch interface of CUDA 3: settings in the hook, then an ordinary launch
call("cuFuncSetBlockShape", "cuFuncSetSharedSize", "cuParamSetSize", "cuParamSeti", "cuParamSetf",
     "cuParamSetv", "cuParamSetTexRef", lane="local")
call("cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync", "cuLaunchCooperativeKernelMultiDevice",
     lane="local", uses="tubeLaunch")
