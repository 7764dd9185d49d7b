"""Graphs. Nodes get proxy-made ids (the driver makes them, also by capture), so asking twice gives
the same handle."""

chapter("graph")
opaque("CUgraphEdgeData", 8)
call("cuGraphCreate", lane="reply", needs="handle", phGraph=creates("graph"))
call("cuGraphDestroy", lane="hand", needs="init", hGraph=frees("graph"))
call("cuGraphClone", lane="reply", phGraphClone=creates("graph"), handler="hand")
call("cuGraphDestroyNode", lane="hand", hNode=frees("node", part=True))
call("cuGraphNodeGetType", lane="reply", type=out(), handler="hand")
call("cuGraphNodeFindInClone", lane="hand", phNode=out(), handler="generated")
call("cuGraphDebugDotPrint", lane="local", uses="tubeGraphDot")
call("cuGraphConditionalHandleCreate", lane="local", uses="tubeGraphConditional")

_EDGES = {"from": array_in("numDependencies"), "to": array_in("numDependencies")}
call("cuGraphAddDependencies", "cuGraphRemoveDependencies", lane="reply", **_EDGES)
call("cuGraphAddDependencies_v2", "cuGraphRemoveDependencies_v2", lane="reply",
     edgeData=nullable(array_in("numDependencies")), **_EDGES)
call("cuGraphGetNodes", lane="reply", nodes=nullable(array_out("numNodes")), numNodes=inout())
call("cuGraphGetRootNodes", lane="reply", rootNodes=nullable(array_out("numRootNodes")),
     numRootNodes=inout())
_ENDS = {
    "from": nullable(array_out("numEdges", max=512)),
    "to": nullable(array_out("numEdges", max=512))
}
call("cuGraphGetEdges", lane="reply", numEdges=inout(), **_ENDS)
call("cuGraphGetEdges_v2", lane="reply", numEdges=inout(),
     edgeData=nullable(array_out("numEdges", max=512)), **_ENDS)
call("cuGraphNodeGetDependencies", lane="reply",
     dependencies=nullable(array_out("numDependencies")), numDependencies=inout())
call("cuGraphNodeGetDependencies_v2", lane="reply",
     dependencies=nullable(array_out("numDependencies", max=512)),
     edgeData=nullable(array_out("numDependencies", max=512)), numDependencies=inout())
call("cuGraphNodeGetDependentNodes", lane="reply",
     dependentNodes=nullable(array_out("numDependentNodes")), numDependentNodes=inout())
call("cuGraphNodeGetDependentNodes_v2", lane="reply",
     dependentNodes=nullable(array_out("numDependentNodes", max=512)),
     edgeData=nullable(array_out("numDependentNodes", max=512)), numDependentNodes=inout())

opaque("CUkernelNodeAttrValue", 64)
call("cuGraphKernelNodeSetAttribute", lane="reply", value=struct_in(check="check_node_attribute"))
call("cuGraphKernelNodeGetAttribute", lane="reply", value_out=out(check="check_node_attribute"))
call("cuGraphKernelNodeCopyAttributes", lane="reply")

# Parameters hold pointers to kernel arguments or host memory: packed by hand into messages.
call("cuGraphAddKernelNode", "cuGraphAddKernelNode_v2", "cuGraphKernelNodeSetParams",
     "cuGraphKernelNodeSetParams_v2", "cuGraphExecKernelNodeSetParams",
     "cuGraphExecKernelNodeSetParams_v2", lane="local", uses="tubeGraphKernelNode")
call("cuGraphAddMemcpyNode", "cuGraphMemcpyNodeSetParams", "cuGraphExecMemcpyNodeSetParams",
     lane="local", uses="tubeGraphCopyNode")
call("cuGraphAddMemsetNode", "cuGraphMemsetNodeSetParams", "cuGraphExecMemsetNodeSetParams",
     lane="local", uses="tubeGraphMemsetNode")
call("cuGraphAddNode", "cuGraphAddNode_v2", "cuGraphNodeSetParams", "cuGraphExecNodeSetParams",
     lane="local", uses="tubeGraphKernelNode tubeGraphCopyNode tubeGraphMemsetNode tubeGraphNode")
call("cuGraphAddEmptyNode", "cuGraphAddChildGraphNode", "cuGraphAddHostNode",
     "cuGraphHostNodeSetParams", "cuGraphExecHostNodeSetParams", "cuGraphAddEventWaitNode",
     "cuGraphEventWaitNodeSetEvent", "cuGraphExecEventWaitNodeSetEvent",
     "cuGraphAddEventRecordNode", "cuGraphEventRecordNodeSetEvent",
     "cuGraphExecEventRecordNodeSetEvent", "cuGraphAddBatchMemOpNode",
     "cuGraphBatchMemOpNodeSetParams", "cuGraphExecBatchMemOpNodeSetParams",
     "cuGraphAddMemAllocNode", "cuGraphAddMemFreeNode", "cuGraphExecChildGraphNodeSetParams",
     lane="local", uses="tubeGraphNode")
call("cuGraphKernelNodeGetParams", "cuGraphKernelNodeGetParams_v2", "cuGraphMemcpyNodeGetParams",
     "cuGraphMemsetNodeGetParams", "cuGraphHostNodeGetParams", "cuGraphChildGraphNodeGetGraph",
     "cuGraphEventRecordNodeGetEvent", "cuGraphEventWaitNodeGetEvent",
     "cuGraphBatchMemOpNodeGetParams", "cuGraphMemAllocNodeGetParams",
     "cuGraphMemFreeNodeGetParams", lane="local", uses="tubeGraphNodeGet")

absent("cuGraphAddExternalSemaphoresSignalNode", "cuGraphAddExternalSemaphoresWaitNode",
       "cuGraphExternalSemaphoresSignalNodeGetParams",
       "cuGraphExternalSemaphoresSignalNodeSetParams", "cuGraphExternalSemaphoresWaitNodeGetParams",
       "cuGraphExternalSemaphoresWaitNodeSetParams",
       "cuGraphExecExternalSemaphoresSignalNodeSetParams",
       "cuGraphExecExternalSemaphoresWaitNodeSetParams",
       why="semaphores of graphics libraries cannot cross a process boundary")

chapter("user object")
call("cuUserObjectCreate", lane="local", needs="init", uses="tubeUserObjectCreate")
call("cuUserObjectRetain", "cuUserObjectRelease", lane="local", needs="init",
     uses="tubeUserObjectCount")
call("cuGraphRetainUserObject", "cuGraphReleaseUserObject", lane="local", needs="init",
     uses="tubeUserObjectCount")

chapter("graph memory")
call("cuDeviceGetGraphMemAttribute", "cuDeviceSetGraphMemAttribute", "cuDeviceGraphMemTrim",
     lane="local", needs="init", uses="tubeGraphMemory")

chapter("graph execution")
call("cuGraphInstantiateWithFlags", "cuGraphInstantiate", "cuGraphInstantiate_v2",
     "cuGraphInstantiateWithParams", lane="local", uses="tubeGraphInstantiate tubeGraphSteps")
call("cuGraphExecUpdate", lane="local", uses="tubeGraphExecUpdate tubeGraphSteps")
call("cuGraphExecUpdate_v2", lane="local", zeroes="resultInfo",
     uses="tubeGraphExecUpdate tubeGraphSteps")
call("cuGraphExecDestroy", lane="hand", needs="init", hGraphExec=frees("exec"), handler="generated",
     changes=("hGraphExec",))
call("cuGraphExecGetFlags", lane="reply", flags=out())
call("cuGraphUpload", lane="hand", handler="generated")
# Launches of one instance are in order, on whatever streams.
call("cuGraphLaunch", lane="hand", changes=("hGraph",))
call("cuGraphNodeSetEnabled", lane="reply", handler="hand", changes=("hGraphExec",))
call("cuGraphNodeGetEnabled", lane="reply", handler="hand", isEnabled=out())
