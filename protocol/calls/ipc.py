"""IPC: memory and events of another process. Between functions of one proxy opening is an alias
(proxy/memory/memory_shares.h, proxy/memory/imports.h)."""

chapter("ipc")
call("cuIpcGetMemHandle", lane="local", uses="tubeIpcGetMem")
call("cuIpcOpenMemHandle_v2", lane="local", uses="tubeIpcOpenMem")
call("cuIpcCloseMemHandle", lane="local", uses="tubeIpcCloseMem")
call("cuIpcGetEventHandle", lane="local", needs="nothing", uses="tubeIpcGetEvent")
call("cuIpcOpenEventHandle", lane="local", uses="tubeIpcOpenEvent")
call("cuIpcOpenMemHandle", alias_of="cuIpcOpenMemHandle_v2")
