"""One call per lane and one parameter per annotation."""

chapter("golden")
opaque("CUshape", 8)
enum("Color", "u32", kRed=0, kBlue=4)
enum("Mark", "u8", kNone=0, kOne=1)
struct("Corner", mark="Mark", where="u32[2]", shape="CUshape", far="f64")
struct("Plain", a="u32", b="u32")
message("tubeHello", "post", stream="stream", what="Mark", numbers="u32[3]", text="name",
        data="blob", word="u32", value="u64", orders="stream", completes=word("word", "value"))
message("tubeAsk", "reply", reply=dict(answer="f32", bytes="blob"))
message("tubeTell", "reply", color="Color", corners="Corner[]", ids="id[]", block="u32",
        state="Color", needs_gpu=False, completes=chunk("block", "state"))
call("cuMemset", lane="local", uses="tubeHello")
call("cuMemFree_v2", lane="post", dptr=address(1))
call("cuGraphCreate", lane="reply", needs="init", phGraph=creates("graph"))
call("cuGraphDestroy", lane="post", hGraph=frees("graph"))
call("cuGraphAddNode", lane="reply", phNode=out(), dependencies=array_in("numDependencies", max=16),
     shape=struct_in())
call("cuGraphGetNodes", lane="reply", nodes=nullable(array_out("numNodes", max=16)),
     numNodes=inout())
call("cuGraphLaunch", lane="post", orders="none", hStream=gets_attributes())
call("cuModuleFind", lane="hand", needs="nothing", name=text_in(), dptr=out(),
     bytes=nullable(out()))
absent("cuMemFree", why="32-bit addresses")
