"""Devices: answered from the info file that came with the connection (protocol/device_info.h)."""

chapter("device")
call("cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceGetUuid_v2", "cuDeviceGetLuid",
     "cuDeviceGetAttribute", "cuDeviceGetProperties", "cuDeviceComputeCapability",
     "cuDeviceGetByPCIBusId", "cuDeviceGetPCIBusId", "cuDeviceCanAccessPeer",
     "cuDeviceGetP2PAttribute", "cuDeviceGetTexture1DLinearMaxWidth",
     "cuDeviceGetExecAffinitySupport", lane="local", needs="init")
call("cuDeviceTotalMem_v2", lane="local", needs="init", zeroes="bytes")
call("cuDeviceGetUuid", alias_of="cuDeviceGetUuid_v2")
