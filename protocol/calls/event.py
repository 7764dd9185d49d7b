"""Events: recorded into streams by message, queried and waited for by progress words."""

chapter("event")
call("cuEventCreate", lane="local", uses="tubeEventCreate")
call("cuEventDestroy_v2", lane="local", uses="tubeEventDestroy")
call("cuEventDestroy", alias_of="cuEventDestroy_v2")
call("cuEventRecord", "cuEventRecordWithFlags", lane="local", uses="tubeEventRecord")
call("cuEventQuery", lane="local", needs="nothing",
     uses="tubeEventQuery")  # NULL is refused before all else
call("cuEventSynchronize", lane="local", uses="tubeEventQuery")
call("cuEventElapsedTime_v2", lane="local", uses="tubeEventElapsed")
call("cuEventElapsedTime", alias_of="cuEventElapsedTime_v2")
