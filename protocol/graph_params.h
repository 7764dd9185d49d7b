// What tubeGraphNode and its kin carry as `params`, by type of node, and how work of the client's
// own becomes part of a graph.
//
// A *step* is something that only the client's process can do while a graph runs: a host function,
// or moving the bytes of pageable memory between the program and pinned staging. In the driver's
// graph a step is one batch memory operation node on one progress word of the client's segment:
//
//   write64  word = tag                 "step `tag` is due"
//   wait64   word >= kStepDone          the client has stored kStepDone
//
// The tag says what to do and is the client's own number, so it travels with the node into clones,
// child graphs and instances without anybody's help. Words do not: two instances of a graph must
// not share one, so every instance gets words (and staging) of its own, written into the graph's
// nodes right before the driver copies them (tubeGraphSteps asks which there are,
// tubeGraphInstantiate and tubeGraphExecUpdate bring the words in the same order).
//
//   host function                       the batch memory operation node; clients see
//   CU_GRAPH_NODE_TYPE_HOST copy from or to pageable memory     a child graph of two nodes, {step,
//   copy from staging} or {copy to staging, step}; between two pageable places         the batch
//   memory operation node; clients see CU_GRAPH_NODE_TYPE_MEMCPY for both
#pragma once

#include <cstdint>

namespace tube::wire {

inline constexpr uint64_t kStepCopyBit = 1ull << 60;  // in a tag: the client sees a memcpy node
inline constexpr uint64_t kStepDone = 1ull << 61;     // above every tag, below abi::kWordReleased
constexpr bool valid_step_tag(uint64_t tag) { return tag != 0 && tag < kStepDone; }
constexpr bool is_copy_step(uint64_t tag) { return (tag & kStepCopyBit) != 0; }

enum StepDirection : uint32_t { kStepAlone = 0, kStepToGpu = 1, kStepFromGpu = 2 };

// CU_GRAPH_NODE_TYPE_HOST, and _MEMCPY with a pageable side. The GPU's side as in
// tubeGraphCopyNode; staging is packed.
struct GraphStepParams {
  uint64_t tag;
  uint32_t direction;  // StepDirection
  uint32_t kind;       // of the GPU's side: 0 address, 2 array id
  uint64_t address;
  uint64_t pitch;
  uint64_t height;
  uint64_t origin[3];
  uint64_t extent[3];
  uint64_t staging;  // changing an instance: larger staging than the node has; else 0
};
static_assert(sizeof(GraphStepParams) == 96);

struct GraphChildParams {
  uint64_t graph;
  uint32_t ownership;
  uint32_t reserved;
};
struct GraphEventParams {  // _WAIT_EVENT, _EVENT_RECORD
  uint64_t event;
};
struct GraphMemOpParams {  // then CUstreamBatchMemOpParams[count]
  uint32_t flags;
  uint32_t count;
};
struct GraphAllocParams {  // then CUmemAccessDesc[access_count]; devices are the proxy's ordinals
  uint64_t bytes;
  uint64_t max_size;
  uint64_t dptr;  // in answers
  uint32_t alloc_type;
  uint32_t handle_types;
  int32_t location_type;
  int32_t location_id;
  uint32_t usage;
  uint32_t access_count;
};
static_assert(sizeof(GraphAllocParams) == 48);
struct GraphFreeParams {
  uint64_t dptr;
};
struct GraphConditionalParams {  // answers the ids of `size` graphs
  uint64_t handle;
  uint32_t type;
  uint32_t size;
};
struct GraphKernelParams {  // answers only
  uint64_t kernel;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  uint32_t as_kernel;  // the driver names it as a CUkernel
};
static_assert(sizeof(GraphKernelParams) == 40);

// One step of a graph, in the order of tubeGraphSteps' walk, and the place that an instance has for
// it.
struct GraphStep {
  uint64_t tag;
  uint64_t staging_bytes;
};
struct GraphStepPlace {
  uint32_t word;
  uint32_t reserved;
  uint64_t staging;
};
static_assert(sizeof(GraphStep) == 16 && sizeof(GraphStepPlace) == 16);

// Flags of tubeGraphSteps' answer.
inline constexpr uint32_t kGraphHasMemoryNodes = 1;

}  // namespace tube::wire
