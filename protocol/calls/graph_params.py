"""What tubeGraphNode and its kin carry as `params`, by type of node, and what is said of a graph's
steps (protocol/graph_params.h)."""

chapter("graph")
enum("StepDirection", "u32", kAlone=0, kToGpu=1, kFromGpu=2)
# CU_GRAPH_NODE_TYPE_HOST, and _MEMCPY with a pageable side. kind, address, pitch, height, origin:
# of the GPU's side, as in tubeGraphCopyNode; staging is packed. staging: when an instance is
# changed, larger staging than the node has; else 0.
struct("GraphStepParams", tag="u64", direction="StepDirection", kind="SideKind", address="u64",
       pitch="u64", height="u64", origin="u64[3]", extent="u64[3]", staging="u64", word="u32")
struct("GraphChildParams", graph="u64", ownership="u32")
struct("GraphEventParams", event="u64")  # _WAIT_EVENT, _EVENT_RECORD
# then CUstreamBatchMemOpParams[count]. gpu: in answers, where the node is
struct("GraphMemOpParams", flags="u32", count="u32", gpu="u32")
# then CUmemAccessDesc[access_count]; devices are the proxy's ordinals. dptr: in answers
struct("GraphAllocParams", bytes="u64", max_size="u64", dptr="u64", alloc_type="u32",
       handle_types="u32", location_type="i32", location_id="i32", usage="u32", access_count="u32")
struct("GraphFreeParams", dptr="u64")
# answers the ids of `size` graphs
struct("GraphConditionalParams", handle="u64", type="u32", size="u32")
# answers only. as_kernel: the driver names it as a CUkernel. gpu: where the node is
struct("GraphKernelParams", kernel="u64", grid="u32[3]", block="u32[3]", shared_bytes="u32",
       as_kernel="u32", gpu="u32")

# One step of a graph, in the order of tubeGraphSteps' walk, and the place that an instance has for
# it.
struct("GraphStep", tag="u64", staging_bytes="u64")
struct("GraphStepPlace", word="u32", staging="u64")
