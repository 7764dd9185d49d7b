"""One call per lane and one parameter per annotation."""

chapter("golden")
message("tubeHello", "post", stream="id", what="u8", numbers="u32[3]", text="name", data="blob")
message("tubeAsk", "reply", reply=dict(answer="f32", bytes="blob"))
opaque("CUshape", 8)
call("cuMemset", lane="local", uses="tubeHello")
call("cuMemFree_v2", lane="post", dptr=address(1, write=True))
call("cuGraphCreate", lane="reply", needs="init", phGraph=creates("graph"))
call("cuGraphDestroy", lane="post", hGraph=frees("graph"))
call("cuGraphAddNode", lane="reply", phNode=out(), dependencies=array_in("numDependencies", max=16),
     shape=struct_in())
call("cuGraphGetNodes", lane="reply", nodes=nullable(array_out("numNodes", max=16)),
     numNodes=inout())
call("cuGraphLaunch", lane="post")
call("cuModuleFind", lane="hand", needs="nothing", name=text_in(), dptr=out(),
     bytes=nullable(out()))
absent("cuMemFree", why="32-bit addresses")
