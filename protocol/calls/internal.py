"""Tube's own messages: what the hook and the proxy say to each other that is not a driver call word
for word.

message(NAME, LANE, fields..., reply=[...]): fields in wire order. Types: u32 i32 u64 f32, u32[N]
..., id (a client-made or proxy-made object id, u64), dptr (a device-visible address, checked by the
handler), blob (BlobRef, bytes follow in the payload), name (a blob that is text without NUL, at
most 4 KiB). LANE: post (no answer) or reply. The proxy's handler is always written by hand:
proxy/handle_<chapter>.cc.
"""

chapter("stream")
# progress: the GPU writes `value` to word `word` behind everything posted to `stream` so far
message("tubeSignal", "post", stream="id", word="u32", value="u64")
message("tubeStreamCreate", "post", stream="id", flags="u32", priority="i32")
message("tubeStreamDestroy", "post", stream="id")
# a host function of the client: the GPU writes word `reached`, then waits until the client wrote
# `value` to word `done`
message("tubeHostFunc", "post", stream="id", reached="u32", done="u32", value="u64")
# asked by a waiter that has slept long: the stream's state as the driver sees it (finds
# asynchronous faults)
message("tubeStreamProbe", "reply", stream="id")

chapter("event")
message("tubeEventCreate", "post", event="id", flags="u32")
message("tubeEventDestroy", "post", event="id")
# word == 0xffffffff: no progress word (a capturing stream)
message("tubeEventRecord", "post", event="id", stream="id", flags="u32", word="u32", value="u64")
message("tubeStreamWaitEvent", "post", stream="id", event="id", flags="u32")
message("tubeEventElapsed", "reply", start="id", end="id", reply=dict(milliseconds="f32"))

chapter("module")
# image bytes: in `image` when small, else in the fd announced by FdMessage token `token`, [offset,
# offset+size). kind 0 = cuLibraryLoadData, 1 = cuModuleLoadData. options/values: parallel JIT (and
# library) option arrays, u32 / u64. log_bytes: sizes of the client's info and error log buffers, 0
# = none. The reply's logs are NUL-terminated.
message("tubeLoadImage", "reply", library="id", kind="u32", flags="u32", token="u64", offset="u64",
        size="u64", info_log_bytes="u32", error_log_bytes="u32", jit_options="blob",
        jit_values="blob", library_options="blob", library_values="blob", image="blob",
        reply=dict(jit_values="blob", info_log="blob", error_log="blob", kernels="blob"))
message("tubeUnload", "post", library="id", kind="u32")
# The kernel gets client-made id `kernel`; layout entries are {u32 offset, u32 size} per parameter;
# attributes are {i32 result, i32 value} for CUfunction_attribute 0..kFunctionAttributeCount-1.
# writes: whether its image can print (1) or assert (2) (wire::kKernelPrints, wire::kKernelAsserts).
message(
    "tubeGetKernel", "reply", library="id", kernel="id", kind="u32", name="name",
    reply=dict(parameter_count="u32", parameter_bytes="u32", writes="u32", layout="blob",
               attributes="blob"))
# managed: the address is in the client's pinned slot (proxy/calls/managed_variables.h)
message("tubeGetGlobal", "reply", library="id", kind="u32", name="name",
        reply=dict(dptr="u64", bytes="u64", managed="u32"))
# the managed variable of that name; dptr 0: there is one, but its storage could not be placed where
# the client has it
message("tubeGetManaged", "reply", library="id", name="name", reply=dict(dptr="u64", bytes="u64"))
# answers a NUL-separated list of all kernel names
message("tubeListKernels", "reply", library="id", kind="u32", first="u32",
        reply=dict(total="u32", names="blob"))
message("tubeKernelSetAttribute", "post", kernel="id", attribute="i32", value="i32")
message("tubeKernelGetAttribute", "reply", kernel="id", attribute="i32", reply=dict(value="i32"))
message("tubeKernelSetCacheConfig", "post", kernel="id", config="i32")

chapter("launch")
# attributes: array of {u32 id, u32 reserved, u8[64] value}, CUlaunchAttribute as it is but events
# replaced by ids
message("tubeLaunch", "post", stream="id", kernel="id", grid="u32[3]", block="u32[3]",
        shared_bytes="u32", cooperative="u32", attributes="blob", parameters="blob")
# what: 0 max active blocks (a = block, b = dynamic shared, c = flags), 1 potential block size (a =
# dynamic shared, b = limit, c = flags), 2 available dynamic shared (a = blocks, b = block size),
# 3/4 cluster calls (config blob)
message("tubeOccupancy", "reply", kernel="id", what="u32", flags="u32", a="u64", b="u64", c="u64",
        config="blob", reply=dict(x="u64", y="u64"))

chapter("memory")
message("tubeMemAlloc", "reply", bytes="u64", reply=dict(dptr="u64"))
message("tubeMemFree", "post", dptr="u64")           # the client has waited for its streams
message("tubePinnedAlloc", "reply", bytes="u64", flags="u32", reply=dict(address="u64"))
message("tubePinnedFree", "post", address="u64")
# the client's own memory at its own address: segments are wire::HostSegment
# (protocol/host_segment.h), for the pages that no earlier registration of the client covers.
# Answered when the driver has (un)registered it.
message("tubeHostRegister", "reply", base="u64", bytes="u64", flags="u32", segments="blob")
message("tubeHostUnregister", "reply", base="u64")
message("tubeMemGetInfo", "reply", reply=dict(free="u64", total="u64"))

chapter("copy")
# both sides are visible to the GPU: device memory or this client's pinned memory
message("tubeCopy", "post", stream="id", dst="dptr", src="dptr", bytes="u64")
# left 1: of a synchronous call that returns before the GPU has the bytes; what comes later on any
# stream of the client waits for them
message("tubeCopyInline", "post", stream="id", dst="dptr", data="blob", left="u32")
# direction 0: chunk -> device, then the GPU writes kChunkFree to the chunk's state; 1: device ->
# chunk, then kChunkFilled
message("tubeCopyChunk", "post", stream="id", direction="u32", chunk="u32", chunk_offset="u32",
        bytes="u32", dptr="dptr", left="u32")
# pages for the chunks behind the first ones, once (abi.h kFirstChunks)
message("tubeMoreChunks", "reply")
# 1D..3D with pitches. Sides: kind 0 device or pinned address, 1 chunk (address = chunk index << 20
# | offset), 2 array id. release_chunk: 0xffffffff or a chunk whose state the GPU sets to
# release_value behind the copy
message("tubeCopy3D", "post", stream="id", src_kind="u32", dst_kind="u32", src="u64", dst="u64",
        src_pitch="u64", dst_pitch="u64", src_height="u64", dst_height="u64", src_origin="u64[3]",
        dst_origin="u64[3]", extent="u64[3]", release_chunk="u32", release_value="u32")
message("tubeMemset", "post", stream="id", dst="dptr", pitch="u64", value="u32",
        element_bytes="u32", width="u64", height="u64")

chapter("context")
# explicit contexts (cuCtxCreate) are names for a share of the shared context: number -> device
message("tubeContextCreate", "post", number="u32", device="u32", flags="u32")
message("tubeContextDestroy", "post", number="u32")
message("tubePrimaryReset", "reply", device="u32")   # frees what the client made there
message("tubeContextLimit", "reply", set="u32", limit="i32", value="u64", reply=dict(value="u64"))

chapter("green context")
# Resources stay in the proxy: the client holds their ids. source 0: device `number`, 1: context
# `number`. sms: count, smallest partition, alignment.
message("tubeGetResource", "reply", source="u32", number="u32", type="u32",
        reply=dict(resource="u64", sms="u32[3]"))
# groups 0: only how many there would be. parts: {u64 resource, u32 sms[3], u32 zero}, the remaining
# one last.
message("tubeSplitResource", "reply", resource="u64", groups="u32", flags="u32", minimum="u32",
        reply=dict(groups="u32", parts="blob"))
message("tubeResourceDescription", "reply", resources="blob", reply=dict(description="u64"))
# a context like those of tubeContextCreate, whose work runs on the description's SMs
message("tubeGreenContextCreate", "reply", number="u32", device="u32", description="u64",
        flags="u32")

chapter("output")
# What the client's kernels have printed, and what an assertion of theirs said, as far as the GPU
# has got; `more` when not all fitted. outstanding: kernels that may print are still running.
message("tubeCollectOutput", "reply", reply=dict(outstanding="u32", more="u32", out="blob",
                                                 err="blob"))

chapter("tables")
# export table 1734DC26 slot 4 (docs/facts.md): the two per-TPC buffers, from the
# proxy's context. table: the 16 bytes by which the program's library asked for it
message("tubeGpcTable", "reply", table="u64[2]", reply=dict(first="blob", second="blob"))

chapter("capture")
# the driver's view of a capture: the graph under construction and the nodes that the next one will
# depend on. dependencies: array of node ids; edges: CUgraphEdgeData, as many, or none
message("tubeCaptureInfo", "reply", stream="id", reply=dict(status="i32", capture="u64", graph="id",
                                                            dependencies="blob", edges="blob"))
# begins a capture that adds to `graph` behind `dependencies` (array of node ids; edges:
# CUgraphEdgeData, as many, or none). It is ended by cuStreamEndCapture with phGraph = graph: the
# graph is the client's already.
message("tubeBeginCaptureToGraph", "reply", stream="id", graph="id", dependencies="blob",
        edges="blob")

chapter("graph")
# op: 0 adds to `graph` behind `dependencies` (array of node ids), 1 changes `node`, 2 changes
# `node` in `exec`. Only op 0 answers a node. `parameters` are packed by the kernel's layout. edges:
# CUgraphEdgeData, one per dependency, or none.
message("tubeGraphKernelNode", "reply", op="u32", graph="id", exec="id", node="id", kernel="id",
        grid="u32[3]", block="u32[3]", shared_bytes="u32", dependencies="blob", parameters="blob",
        edges="blob", reply=dict(node="id"))
# op as above; both sides are visible to the GPU. kind: 0 address, 2 array id; type: the
# CUmemorytype that the program gave. Fields as in tubeCopy3D, but pitch and height as the program
# gave them (0: packed).
message("tubeGraphCopyNode", "reply", op="u32", graph="id", exec="id", node="id", src_kind="u32",
        dst_kind="u32", src_type="u32", dst_type="u32", src="u64", dst="u64", src_pitch="u64",
        dst_pitch="u64", src_height="u64", dst_height="u64", src_origin="u64[3]",
        dst_origin="u64[3]", extent="u64[3]", dependencies="blob", edges="blob",
        reply=dict(node="id"))
message("tubeGraphMemsetNode", "reply", op="u32", graph="id", exec="id", node="id", dst="dptr",
        pitch="u64", value="u32", element_bytes="u32", width="u64", height="u64",
        dependencies="blob", edges="blob", reply=dict(node="id"))
# Nodes of every other type, and copies with a pageable side. params: protocol/graph_params.h, by
# `type` (CUgraphNodeType). Answers: the address of an allocation, the graphs (ids) of a conditional
# node. A step in an instance (op 2) answers its word in `node`, and in `dptr` how many bytes of
# staging the copy needs when it has less.
message("tubeGraphNode", "reply", op="u32", type="u32", graph="id", exec="id", node="id",
        dependencies="blob", edges="blob", params="blob", reply=dict(node="id", dptr="u64",
                                                                     graphs="blob"))
# type: as the client sees it. params as above, for kernels GraphKernelParams, for copies and
# memsets the driver's struct with ids of arrays in it. A step answers its tag and no params. data:
# what follows them (parameters, operations, access).
message("tubeGraphNodeGet", "reply", node="id", reply=dict(type="u32", tag="u64", params="blob",
                                                           data="blob"))
# the steps of a graph, its child graphs' included: GraphStep in the order of the walk
message("tubeGraphSteps", "reply", graph="id", reply=dict(flags="u32", steps="blob"))
# the step becomes the next node of a capturing stream
message("tubeCaptureStep", "reply", stream="id", params="blob")
# the driver's own CUresult is in `result`, since it says more in the other fields when it fails.
# places: GraphStepPlace for every step of the graph; none: it has no steps.
message("tubeGraphInstantiate", "reply", exec="id", graph="id", flags="u64", stream="id",
        places="blob", reply=dict(result="i32", status="i32", error_node="id"))
message("tubeGraphExecUpdate", "reply", exec="id", graph="id", places="blob",
        reply=dict(result="i32", status="i32", error_node="id", error_from_node="id"))
message("tubeGraphConditional", "reply", graph="id", value="u32", flags="u32",
        reply=dict(handle="u64"))
# the driver's text in the file sent as `token`
message("tubeGraphDot", "reply", graph="id", flags="u32", reply=dict(token="u64", size="u64"))
# graph-owned memory: cuMemAllocAsync inside a capture; cuMemFreeAsync inside or outside of one
message("tubeGraphAllocAsync", "reply", stream="id", bytes="u64", device="u32",
        reply=dict(dptr="u64"))
message("tubeGraphFreeAsync", "reply", stream="id", dptr="u64")
message("tubeGraphFree", "reply", dptr="u64")
# op: 0 reads attribute `attr` (CUgraphMem_attribute) of GPU `device`, 1 sets it, 2 trims
message("tubeGraphMemory", "reply", device="u32", op="u32", attr="i32", value="u64",
        reply=dict(value="u64"))


chapter("user object")
# When the last reference goes, the proxy stores 1 to word `word` and the client runs the
# destructor.
message("tubeUserObjectCreate", "reply", object="id", references="u32", word="u32")
# op: 0 retain, 1 release; graph 0: the client's own references
message("tubeUserObjectCount", "reply", object="id", graph="id", op="u32", count="u32", flags="u32")

chapter("memory")
# freed when the stream gets there; the address may be handed out again from then on
message("tubeMemFreeAsync", "post", stream="id", dptr="u64")
# POSIX fds only; the fd travels as FdMessage `token`, from the client before the import, to it
# before the export's reply
message("tubeExportHandle", "reply", handle="id", reply=dict(token="u64"))
message("tubeImportHandle", "reply", handle="id", token="u64", reply=dict(size="u64"))

chapter("link")
# inputs: array of {u32 CUjitInputType, u32 name_bytes, u64 offset, u64 bytes} into the fd announced
# as `token`; names: their names, one behind the other. The linked image comes back in the fd
# announced as `token` of the reply.
message("tubeLink", "reply", token="u64", size="u64", info_log_bytes="u32", error_log_bytes="u32",
        jit_options="blob", jit_values="blob", inputs="blob", names="blob",
        reply=dict(token="u64", size="u64", jit_values="blob", info_log="blob", error_log="blob"))

chapter("ipc")
# A handle is the 64 bytes that the program passes on. Memory: proxy/memory/memory_shares.h makes
# it; opening answers the address that is valid in this client, the allocation's bytes and its
# device; closing answers how many opens are left.
message("tubeIpcGetMem", "reply", dptr="u64", reply=dict(handle="u64[8]"))
message("tubeIpcOpenMem", "reply", flags="u32", handle="u64[8]",
        reply=dict(dptr="u64", bytes="u64", device="u32"))
message("tubeIpcCloseMem", "reply", dptr="u64", reply=dict(left="u32"))
message("tubeIpcGetEvent", "reply", event="id", reply=dict(handle="u64[8]"))
message("tubeIpcOpenEvent", "reply", event="id", handle="u64[8]")
# interprocess events have no progress word of this client behind them: another process may record
# them
message("tubeEventQuery", "reply", event="id")
