"""Graphs. Nodes get proxy-made ids (the driver makes them, also by capture), so asking twice gives the same handle."""

chapter("graph")
opaque("CUgraphEdgeData", 8)
_NODES = dict(lane="reply", phGraphNode=out(), dependencies=array_in("numDependencies"))
call("cuGraphCreate", lane="reply", phGraph=creates("graph"))
call("cuGraphDestroy", lane="post", hGraph=frees("graph"))
call("cuGraphClone", lane="reply", phGraphClone=creates("graph"))
# Not yet: event record nodes (the hook answers event queries by progress words, which a graph's record does not write) and
# cuGraphChildGraphNodeGetGraph (a graph that belongs to another one).
call("cuGraphAddEmptyNode", "cuGraphAddEventWaitNode", "cuGraphAddChildGraphNode", **_NODES)
call("cuGraphDestroyNode", lane="reply", hNode=frees("node", part=True))
call("cuGraphNodeGetType", lane="reply", type=out())
call("cuGraphNodeFindInClone", lane="reply", phNode=out())

_EDGES = {"from": array_in("numDependencies"), "to": array_in("numDependencies")}
call("cuGraphAddDependencies", "cuGraphRemoveDependencies", lane="reply", **_EDGES)
call("cuGraphAddDependencies_v2", "cuGraphRemoveDependencies_v2", lane="reply",
     edgeData=nullable(array_in("numDependencies")), **_EDGES)
call("cuGraphGetNodes", lane="reply", nodes=nullable(array_out("numNodes")), numNodes=inout())
call("cuGraphGetRootNodes", lane="reply", rootNodes=nullable(array_out("numRootNodes")), numRootNodes=inout())
_ENDS = {"from": nullable(array_out("numEdges", max=512)), "to": nullable(array_out("numEdges", max=512))}
call("cuGraphGetEdges", lane="reply", numEdges=inout(), **_ENDS)
call("cuGraphGetEdges_v2", lane="reply", numEdges=inout(), edgeData=nullable(array_out("numEdges", max=512)), **_ENDS)
call("cuGraphNodeGetDependencies", lane="reply", dependencies=nullable(array_out("numDependencies")), numDependencies=inout())
call("cuGraphNodeGetDependencies_v2", lane="reply", dependencies=nullable(array_out("numDependencies", max=512)),
     edgeData=nullable(array_out("numDependencies", max=512)), numDependencies=inout())
call("cuGraphNodeGetDependentNodes", lane="reply", dependentNodes=nullable(array_out("numDependentNodes")),
     numDependentNodes=inout())
call("cuGraphNodeGetDependentNodes_v2", lane="reply", dependentNodes=nullable(array_out("numDependentNodes", max=512)),
     edgeData=nullable(array_out("numDependentNodes", max=512)), numDependentNodes=inout())

call("cuGraphEventWaitNodeSetEvent", lane="reply")
opaque("CUkernelNodeAttrValue", 64)
call("cuGraphKernelNodeSetAttribute", lane="reply", value=struct_in(check="check_node_attribute"))
call("cuGraphKernelNodeGetAttribute", lane="reply", value_out=out(check="check_node_attribute"))
call("cuGraphKernelNodeCopyAttributes", lane="reply")

# Parameters hold pointers to kernel arguments or host memory: packed by hand into messages.
call("cuGraphAddKernelNode", "cuGraphAddKernelNode_v2", "cuGraphKernelNodeSetParams", "cuGraphKernelNodeSetParams_v2",
     "cuGraphExecKernelNodeSetParams", "cuGraphExecKernelNodeSetParams_v2", lane="local", uses="tubeGraphKernelNode")
call("cuGraphAddMemcpyNode", "cuGraphMemcpyNodeSetParams", "cuGraphExecMemcpyNodeSetParams", lane="local", uses="tubeGraphCopyNode")
call("cuGraphAddMemsetNode", "cuGraphMemsetNodeSetParams", "cuGraphExecMemsetNodeSetParams", lane="local", uses="tubeGraphMemsetNode")
call("cuGraphAddNode", "cuGraphAddNode_v2", "cuGraphNodeSetParams", "cuGraphExecNodeSetParams", lane="local",
     uses="tubeGraphKernelNode")

chapter("graph execution")
call("cuGraphInstantiateWithFlags", lane="reply", phGraphExec=creates("exec"))
call("cuGraphInstantiate", "cuGraphInstantiate_v2", lane="reply", phGraphExec=creates("exec"), phErrorNode=nullable(out()),
     logBuffer=nullable(text_out("bufferSize")))
call("cuGraphInstantiateWithParams", lane="local", uses="tubeGraphInstantiate")
call("cuGraphExecUpdate", "cuGraphExecUpdate_v2", lane="local", uses="tubeGraphExecUpdate")
call("cuGraphExecDestroy", lane="post", hGraphExec=frees("exec"))
call("cuGraphExecGetFlags", lane="reply", flags=out())
call("cuGraphUpload", "cuGraphLaunch", lane="post")
call("cuGraphNodeSetEnabled", lane="reply")
call("cuGraphNodeGetEnabled", lane="reply", isEnabled=out())
call("cuGraphExecEventWaitNodeSetEvent", "cuGraphExecChildGraphNodeSetParams", lane="reply")
