"""Tube's own messages: what the hook and the proxy say to each other that is not a driver call word
for word.

message(NAME, LANE, fields..., reply={...}): fields in wire order. Types: u32 i32 u64 f32, u32[N]
..., id (a client-made or proxy-made object id, u64), stream (an id of a stream; so event, kernel, exec), dptr (a
device-visible address, checked by the handler), blob (BlobRef, bytes follow in the payload), T[] (a
blob of whole elements: numbers, ids or a struct), name (a blob that is text without NUL, at most 4
KiB), the name of an enum. LANE: post (no answer) or reply. orders=, completes= and needs_gpu=:
gen/describe.py. The proxy's handler is always written by hand: proxy/calls/.
"""

chapter("stream")
# progress: the GPU writes `value` to word `word` behind everything posted to `stream` so far
message("tubeSignal", "post", stream="stream", word="u32", value="u64", orders="stream",
        completes=word("word", "value"), marks=True)
# Making and ending are changes: the first is no work on the stream yet, and the legacy stream waits
# for what an ended one has left to do.
message("tubeStreamCreate", "post", stream="stream", flags="u32", priority="i32",
        changes=("stream",))
message("tubeStreamDestroy", "post", stream="stream", changes=("stream",))
# a host function of the client: the GPU writes word `reached`, then waits until the client wrote
# `value` to word `done`
message("tubeHostFunc", "post", stream="stream", reached="u32", done="u32", value="u64",
        orders="stream", completes=word("reached", "value"))
# asked by a waiter that has slept long: the stream's state as the driver sees it (finds
# asynchronous faults)
message("tubeStreamProbe", "reply", stream="stream", marks=True)

chapter("event")
# No launch that is held names an event, and what an event was recorded behind went to the driver
# before its record. (A call that the client waits for is no use without order: held launches would
# be given up while the ring is empty.)
message("tubeEventCreate", "post", event="event", flags="u32", orders="none", changes=("event",))
message("tubeEventDestroy", "post", event="event", orders="none", changes=("event",))
# word == 0xffffffff: no progress word (a capturing stream)
message("tubeEventRecord", "post", event="event", stream="stream", flags="u32", word="u32",
        value="u64", orders="stream", completes=word("word", "value"), changes=("event",))
message("tubeStreamWaitEvent", "post", stream="stream", event="event", flags="u32",
        orders="stream")
message("tubeEventElapsed", "reply", start="event", end="event", reply=dict(milliseconds="f32"))

chapter("module")
enum("LoadedAs", "u32", kLibrary=0, kModule=1)  # cuLibraryLoad*, cuModuleLoad*
# image bytes: in `image` when small, else in the fd announced by FdMessage token `token`, [offset,
# offset+size). options/values: parallel JIT (and library) option arrays. log_bytes: sizes of the
# client's info and error log buffers, 0 = none. The reply's logs are NUL-terminated.
message("tubeLoadImage", "reply", behind="tried", library="id", kind="LoadedAs", flags="u32", token="u64",
        offset="u64", size="u64", info_log_bytes="u32", error_log_bytes="u32", jit_options="u32[]",
        jit_values="u64[]", library_options="u32[]", library_values="u64[]", image="blob",
        reply=dict(jit_values="u64[]", info_log="blob", error_log="blob", kernels="blob"))
message("tubeUnload", "post", library="id", kind="LoadedAs", behind="all")
# A parameter's place among the packed ones (also in protocol/known_kernel.h), and one of
# CUfunction_attribute 0..kFunctionAttributeCount-1.
struct("KernelParameter", offset="u32", size_bytes="u32")
struct("KernelAttribute", result="i32", value="i32")
# The kernel gets client-made id `kernel`. writes: whether its image can print (1) or assert (2)
# (wire::kKernelPrints, wire::kKernelAsserts).
message(
    "tubeGetKernel", "reply", behind="tried", library="id", kernel="kernel", kind="LoadedAs", name="name",
    changes=("kernel",),
    reply=dict(parameter_count="u32", parameter_bytes="u32", writes="u32",
               layout="KernelParameter[]", attributes="KernelAttribute[]"))
# managed: the address is in the client's pinned slot (proxy/calls/managed_variables.h)
message("tubeGetGlobal", "reply", library="id", kind="LoadedAs", name="name",
        reply=dict(dptr="u64", bytes="u64", managed="u32"))
# the managed variable of that name; dptr 0: there is one, but its storage could not be placed where
# the client has it
message("tubeGetManaged", "reply", library="id", name="name", reply=dict(dptr="u64", bytes="u64"))
# answers all kernel names from `first` on, of that without its first `skip` bytes: each with its
# NUL, as many as the reply holds; the last may be cut off
message("tubeListKernels", "reply", library="id", kind="LoadedAs", first="u32", skip="u32",
        reply=dict(total="u32", names="blob"))
# One that may harm a launch which is kept back stays behind it (Session::change_named).
message("tubeKernelSetAttribute", "post", kernel="kernel", attribute="i32", value="i32")
# all of them on the context's GPU, as the kernel was described there first
message("tubeKernelGetAttribute", "reply", kernel="kernel",
        reply=dict(attributes="KernelAttribute[]"))
message("tubeKernelSetCacheConfig", "post", kernel="kernel", config="i32", changes=("kernel",))

chapter("launch")
opaque("CUlaunchAttributeValue", 64)
# CUlaunchAttribute as it is, but events replaced by ids
struct("LaunchAttribute", id="u32", value="CUlaunchAttributeValue")
message("tubeLaunch", "post", stream="stream", kernel="kernel", grid="u32[3]", block="u32[3]",
        shared_bytes="u32", cooperative="u32", attributes="LaunchAttribute[]", parameters="blob",
        orders="stream")
# kActiveBlocks: a = block, b = dynamic shared memory, c = flags. kPotentialBlockSize: a = dynamic
# shared memory, b = limit, c = flags. kAvailableShared: a = blocks, b = block size. The two about
# clusters: grid, block, shared_bytes and attributes of the launch that they ask about.
enum("OccupancyQuestion", "u32", kActiveBlocks=0, kPotentialBlockSize=1, kAvailableShared=2,
     kPotentialClusterSize=3, kActiveClusters=4)
message("tubeOccupancy", "reply", kernel="kernel", what="OccupancyQuestion", a="u64", b="u64", c="u64",
        grid="u32[3]", block="u32[3]", shared_bytes="u32", attributes="LaunchAttribute[]",
        reply=dict(x="u64", y="u64"))

chapter("memory")
# offer: the block's number among the offers, from 1; 0: it has none (abi.h)
# leases: the client may be leased a slab for it; leased: the slab that it lies in has been
message("tubeMemAlloc", "reply", behind="tried", bytes="u64", leases="u32",
        reply=dict(dptr="u64", offer="u32", leased="u32"))
# The client has taken a block that was offered. It never waits behind records that are kept back:
# what uses the memory does not either.
message("tubeMemTake", "post", offer="u32", dptr="u64", bytes="u64", orders="none")
# A piece of a slab that is leased to the client, and the end of the lease. They do not wait either.
message("tubeMemCut", "post", dptr="u64", bytes="u64", orders="none")
message("tubeMemLeaseEnd", "post", slab="u64", orders="none")
# The client has waited for its streams. offer: the client makes this offer ready itself, behind
# the record (abi::kCutAgain: it may cut the place again); 0: the proxy does what is to be done.
message("tubeMemFree", "post", dptr="u64", offer="u32", behind="all")
message("tubePinnedAlloc", "reply", behind="tried", bytes="u64", flags="u32", reply=dict(address="u64"))
message("tubePinnedFree", "post", address="u64", behind="all")
# Which file the pages of a piece of a registered range are, and where in it. address: page-aligned;
# segments are in ascending order and leave no gap. bytes: whole pages. offset: page-aligned. token:
# FdMessage of the file; segments of one file name the same. Limits: protocol/host_segment.h.
struct("HostSegment", address="u64", bytes="u64", offset="u64", token="u64")
# the client's own memory at its own address: segments for the pages that no earlier registration of
# the client covers. Answered when the driver has (un)registered it.
message("tubeHostRegister", "reply", base="u64", bytes="u64", flags="u32", segments="HostSegment[]",
        behind="tried")
message("tubeHostUnregister", "reply", base="u64", behind="all")
# kept: what the function holds and gives back when it needs to, which counts as free
message("tubeMemGetInfo", "reply", kept="u64", behind="tried", reply=dict(free="u64", total="u64"))

chapter("copy")
# both sides are visible to the GPU: device memory or this client's pinned memory
message("tubeCopy", "post", stream="stream", dst="dptr", src="dptr", bytes="u64", orders="stream")
# left 1: of a synchronous call that returns before the GPU has the bytes; what comes later on any
# stream of the client waits for them
message("tubeCopyInline", "post", stream="stream", dst="dptr", data="blob", left="u32",
        orders="stream")
# What the GPU writes to a chunk's state behind a copy (abi.h kChunkFree, kChunkFilled).
enum("ChunkBecomes", "u32", kFree=0, kFilled=2)
# becomes kFree: chunk -> device; kFilled: device -> chunk
message("tubeCopyChunk", "post", stream="stream", becomes="ChunkBecomes", chunk="u32",
        chunk_offset="u32", bytes="u32", dptr="dptr", left="u32", orders="stream",
        completes=chunk("chunk", "becomes"))
# pages for the chunks behind the first ones, once (abi.h kFirstChunks); CUDA_ERROR_NOT_READY as long
# as they are being made
message("tubeMoreChunks", "reply", orders="none")
# may all of this be read, or with write 1 written, by a copy? Asked before the first of its pieces,
# of memory that the hook is not sure of
message("tubeMayCopy", "reply", dptr="dptr", bytes="u64", write="u32", orders="none")
# kAddress: a device or pinned address. kChunk: chunk index << 20 | offset. kArray: an array's id.
enum("SideKind", "u32", kAddress=0, kChunk=1, kArray=2)
# 1D..3D with pitches. release_chunk: 0xffffffff, or a chunk whose state the GPU writes behind the
# copy
message("tubeCopy3D", "post", stream="stream", src_kind="SideKind", dst_kind="SideKind", src="u64",
        dst="u64", src_pitch="u64", dst_pitch="u64", src_height="u64", dst_height="u64",
        src_origin="u64[3]", dst_origin="u64[3]", extent="u64[3]", release_chunk="u32",
        becomes="ChunkBecomes", completes=chunk("release_chunk", "becomes"))
message("tubeMemset", "post", stream="stream", dst="dptr", pitch="u64", value="u32",
        element_bytes="u32", width="u64", height="u64", orders="stream")

chapter("context")
# explicit contexts (cuCtxCreate) are names for a share of the shared context: number -> device
message("tubeContextCreate", "post", number="u32", device="u32", flags="u32")
message("tubeContextDestroy", "post", number="u32", behind="all")
# frees what the client made there
message("tubePrimaryReset", "reply", device="u32", behind="all")
message("tubeContextLimit", "reply", behind="tried", set="u32", limit="i32", value="u64",
        reply=dict(value="u64"))

chapter("green context")
# Resources stay in the proxy: the client holds their ids. number: of a device or of a context. sms:
# count, smallest partition, alignment.
enum("ResourceOf", "u32", kDevice=0, kContext=1)
message("tubeGetResource", "reply", source="ResourceOf", number="u32", type="u32",
        reply=dict(resource="u64", sms="u32[3]"))
# groups 0: only how many there would be. parts: the remaining one last.
struct("SmPart", resource="u64", sms="u32[3]")
message("tubeSplitResource", "reply", resource="u64", groups="u32", flags="u32", minimum="u32",
        reply=dict(groups="u32", parts="SmPart[]"))
message("tubeResourceDescription", "reply", resources="u64[]", reply=dict(description="u64"))
# a context like those of tubeContextCreate, whose work runs on the description's SMs
message("tubeGreenContextCreate", "reply", behind="tried", number="u32", device="u32", description="u64",
        flags="u32")

chapter("output")
# What the client's kernels have printed, and what an assertion of theirs said, as far as the GPU
# has got; `more` when not all fitted. outstanding: kernels that may print are still running.
# A client may ask although the context has died: what its kernels wrote before is still to be had.
message("tubeCollectOutput", "reply", needs_gpu=False,
        reply=dict(outstanding="u32", more="u32", out="blob", err="blob"))

chapter("tables")
# export table 1734DC26 slot 4 (docs/facts.md): the two per-TPC buffers, from the
# proxy's context. table: the 16 bytes by which the program's library asked for it
message("tubeGpcTable", "reply", table="u64[2]", reply=dict(first="blob", second="blob"))

chapter("capture")
# the driver's view of a capture: the graph under construction and the nodes that the next one will
# depend on. dependencies: nodes; edges: as many, or none
message(
    "tubeCaptureInfo", "reply", stream="stream",
    reply=dict(status="i32", capture="u64", graph="id", dependencies="id[]",
               edges="CUgraphEdgeData[]"))
# begins a capture that adds to `graph` behind `dependencies` (nodes; edges: as many, or none).
# cuStreamEndCapture with phGraph = graph ends it: the graph is the client's already.
message("tubeBeginCaptureToGraph", "reply", stream="stream", graph="id", dependencies="id[]",
        edges="CUgraphEdgeData[]")

chapter("graph")
# kAdd: to `graph` behind `dependencies` (nodes); only this one answers a node. kSet: changes
# `node`. kSetInExec: changes `node` in `exec`.
enum("GraphEdit", "u32", kAdd=0, kSet=1, kSetInExec=2)
# `parameters` are packed by the kernel's layout. edges: one per dependency, or none.
message("tubeGraphKernelNode", "reply", op="GraphEdit", graph="id", exec="exec", node="id",
        kernel="kernel", grid="u32[3]", block="u32[3]", shared_bytes="u32", dependencies="id[]",
        parameters="blob", edges="CUgraphEdgeData[]", changes=("exec",),
        reply=dict(node="id"))
# Both sides are visible to the GPU and no chunks; type: the CUmemorytype that the program gave.
# Fields as in tubeCopy3D, but pitch and height as the program gave them (0: packed).
message("tubeGraphCopyNode", "reply", op="GraphEdit", graph="id", exec="exec", node="id",
        src_kind="SideKind", dst_kind="SideKind", src_type="u32", dst_type="u32", src="u64",
        dst="u64", src_pitch="u64", dst_pitch="u64", src_height="u64", dst_height="u64",
        src_origin="u64[3]", dst_origin="u64[3]", extent="u64[3]", dependencies="id[]",
        edges="CUgraphEdgeData[]", changes=("exec",),
        reply=dict(node="id"))
message("tubeGraphMemsetNode", "reply", op="GraphEdit", graph="id", exec="exec", node="id",
        dst="dptr", pitch="u64", value="u32", element_bytes="u32", width="u64", height="u64",
        dependencies="id[]", edges="CUgraphEdgeData[]", changes=("exec",),
        reply=dict(node="id"))
# Nodes of every other type, and copies with a pageable side. params: graph_params.py, by `type`
# (CUgraphNodeType). Answers: the address of an allocation, the graphs of a conditional node. A step
# in an instance (kSetInExec) answers its word in `node`, and in `dptr` how many bytes of staging
# the copy needs when it has less.
message("tubeGraphNode", "reply", op="GraphEdit", type="u32", graph="id", exec="exec", node="id",
        dependencies="id[]", edges="CUgraphEdgeData[]", params="blob",
        changes=("exec",),
        reply=dict(node="id", dptr="u64", graphs="id[]"))
# type: as the client sees it. params as above, for kernels GraphKernelParams, for copies and
# memsets the driver's struct with ids of arrays in it. A step answers its tag and no params. data:
# what follows them (parameters, operations, access).
message("tubeGraphNodeGet", "reply", node="id", reply=dict(type="u32", tag="u64", params="blob",
                                                           data="blob"))
# the steps of a graph, its child graphs' included
message("tubeGraphSteps", "reply", graph="id", reply=dict(flags="u32", steps="GraphStep[]"))
# the step becomes the next node of a capturing stream
message("tubeCaptureStep", "reply", stream="stream", params="blob")
# the driver's own CUresult is in `result`, since it says more in the other fields when it fails.
# places: for every step of the graph; none: it has no steps.
message("tubeGraphInstantiate", "reply", exec="exec", graph="id", flags="u64", stream="stream",
        places="GraphStepPlace[]", reply=dict(result="i32", status="i32", error_node="id"))
message("tubeGraphExecUpdate", "reply", exec="exec", graph="id", places="GraphStepPlace[]",
        changes=("exec",),
        reply=dict(result="i32", status="i32", error_node="id", error_from_node="id"))
message("tubeGraphConditional", "reply", graph="id", value="u32", flags="u32",
        reply=dict(handle="u64"))
# the driver's text in the file sent as `token`
message("tubeGraphDot", "reply", graph="id", flags="u32", reply=dict(token="u64", size="u64"))
# graph-owned memory: cuMemAllocAsync inside a capture; cuMemFreeAsync inside or outside of one
message("tubeGraphAllocAsync", "reply", stream="stream", bytes="u64", device="u32",
        reply=dict(dptr="u64"))
message("tubeGraphFreeAsync", "reply", stream="stream", dptr="u64")
message("tubeGraphFree", "reply", dptr="u64", behind="all")
# attr: CUgraphMem_attribute, of GPU `device`
enum("GraphMemoryOp", "u32", kRead=0, kSet=1, kTrim=2)
message("tubeGraphMemory", "reply", device="u32", op="GraphMemoryOp", attr="i32", value="u64",
        behind="tried",
        reply=dict(value="u64"))


chapter("user object")
# When the last reference goes, the proxy stores 1 to word `word` and the client runs the
# destructor.
message("tubeUserObjectCreate", "reply", object="id", references="u32", word="u32", bit="u32")
# graph 0: the client's own references
enum("ReferenceOp", "u32", kRetain=0, kRelease=1)
message("tubeUserObjectCount", "reply", object="id", graph="id", op="ReferenceOp", count="u32",
        flags="u32")

chapter("memory")
# freed when the stream gets there; the address may be handed out again from then on
message("tubeMemFreeAsync", "post", stream="stream", dptr="u64")
# POSIX fds only; the fd travels as FdMessage `token`, from the client before the import, to it
# before the export's reply
message("tubeExportHandle", "reply", handle="id", reply=dict(token="u64"))
message("tubeImportHandle", "reply", behind="tried", handle="id", token="u64", reply=dict(size="u64"))

chapter("link")
# type: CUjitInputType; offset: into the fd announced as `token`
struct("LinkInput", type="u32", name_bytes="u32", offset="u64", size_bytes="u64")
# names_at: in the fd, where the names of the inputs are, one behind the other, up to its end. The
# linked image comes back in the fd announced as `token` of the reply.
message("tubeLink", "reply", token="u64", size="u64", names_at="u64", info_log_bytes="u32",
        error_log_bytes="u32", jit_options="u32[]", jit_values="u64[]", inputs="LinkInput[]",
        reply=dict(token="u64", size="u64", jit_values="u64[]", info_log="blob", error_log="blob"))

chapter("ipc")
# A handle is the 64 bytes that the program passes on. Memory: proxy/memory/memory_shares.h makes
# it; opening answers the address that is valid in this client, the allocation's bytes and its
# device; closing answers how many opens are left.
message("tubeIpcGetMem", "reply", dptr="u64", reply=dict(handle="u64[8]"))
message("tubeIpcOpenMem", "reply", behind="tried", flags="u32", handle="u64[8]",
        reply=dict(dptr="u64", bytes="u64", device="u32"))
message("tubeIpcCloseMem", "reply", dptr="u64", behind="all", reply=dict(left="u32"))
message("tubeIpcGetEvent", "reply", event="event", reply=dict(handle="u64[8]"))
message("tubeIpcOpenEvent", "reply", event="event", handle="u64[8]")
# interprocess events have no progress word of this client behind them: another process may record
# them
message("tubeEventQuery", "reply", event="event")

chapter("store")
# Named objects that all functions of the proxy share (sharedmem/store_abi.h, docs/store.md). An
# object is named by its slot in the index and the generation there.
enum("StorePlace", "u32", kHost=0, kGpu=1)
# What the store says to a request that it understood.
enum("StoreAnswer", "u32", kOk=0, kExists=1, kNotFound=2, kTooMany=3, kNoMemory=4, kInvalid=5,
     kBusy=6)
# The files of index, pins and host memory, which come as FdMessages in this order.
message("tubeStoreOpen", "reply", orders="none",
        reply=dict(index="u64", pins="u64", host="u64"))
# device: the proxy's ordinal. ttl_ms, consumers: 0: none. The client holds the object, which it
# alone may write, until it seals or deletes it.
message("tubeStoreReserve", "reply", orders="none", behind="ends", place="StorePlace", device="u32",
        bytes="u64", dtype="u32", ndim="u32", consumers="u32", ttl_ms="u64", shape="u64[8]",
        strides="u64[8]", name="blob", group="blob",
        reply=dict(answer="u32", slot="u32", generation="u64", address="u64"))
# The object is complete now, or behind what `stream` has; the client holds it no more.
message("tubeStoreSeal", "post", orders="none", slot="u32", generation="u64", behind="all")
message("tubeStoreSealBehind", "post", orders="stream", stream="stream", slot="u32",
        generation="u64")
# The client has pinned the object. Never kept back: what uses the address is not either.
message("tubeStoreClaim", "post", orders="none", slot="u32", generation="u64")
# What comes later on the stream waits for the object's bytes.
message("tubeStoreOrder", "post", orders="stream", stream="stream", slot="u32", generation="u64")
# The same question for a thread that waits by itself: are they there?
message("tubeStoreReady", "reply", orders="none", slot="u32", generation="u64",
        reply=dict(ready="u32"))
# One of the client's gets is over, now or when `stream` gets there. last: the claim goes with it.
message("tubeStoreRelease", "post", orders="none", slot="u32", generation="u64", last="u32",
        behind="all")
message("tubeStoreReleaseBehind", "post", orders="stream", stream="stream", slot="u32",
        generation="u64", last="u32")
# The client gave up a pin while the object was doomed.
message("tubeStoreLook", "post", orders="none", slot="u32")
# An object that the client has claimed, in another place: its bytes there, in the order of
# `stream`; on `device`, ~0: in host memory. ready: they are there by now. kBusy: another client has
# it made just now.
message("tubeStoreFetch", "reply", orders="stream", stream="stream", device="u32", slot="u32",
        generation="u64", reply=dict(answer="u32", ready="u32", address="u64"))
# Names of objects, each with a NUL behind it, in the order in which they will be taken.
message("tubeStoreQueue", "reply", orders="none", names="blob")
# By name (group 0), or all of a group (group 1). count: of objects.
message("tubeStoreDelete", "reply", orders="none", group="u32", name="blob",
        reply=dict(answer="u32", count="u32"))
# The client begins (1) or ends (0) to sleep on the index's futex.
message("tubeStoreWaiting", "reply", orders="none", on="u32")
# The object that another workflow shares under this name ("//WORKFLOW/NAME"), under the same name in
# this one's store. The client holds it when the answer is kOk, until it says tubeStoreImported.
# kBusy: it is there already.
message("tubeStoreImport", "reply", orders="none", name="blob",
        reply=dict(answer="u32", slot="u32", generation="u64"))
# The client has claimed the object like any other, or has no use for it.
message("tubeStoreImported", "post", orders="none", slot="u32", generation="u64")
# The memory behind an object that the client holds, or behind a copy of it, by its address, as a
# descriptor: of a whole block, or of the store's host memory. The object begins at `offset`.
message("tubeStoreExport", "reply", orders="none", slot="u32", generation="u64", address="u64",
        reply=dict(fd="u64", bytes="u64", offset="u64"))
