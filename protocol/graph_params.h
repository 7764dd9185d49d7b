// How work of the client's own becomes part of a graph. What tubeGraphNode and its kin carry about
// it, as about every other node, is described in protocol/calls/graph_params.py.
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
//   host function                     the batch memory operation node; clients see
//                                     CU_GRAPH_NODE_TYPE_HOST
//   copy from or to pageable memory   a child graph of two nodes, {step, copy from staging} or
//                                     {copy to staging, step}; clients see
//                                     CU_GRAPH_NODE_TYPE_MEMCPY
//   copy between pageable places      the batch memory operation node; clients see
//                                     CU_GRAPH_NODE_TYPE_MEMCPY
#pragma once

#include <cstdint>

#include "protocol/wire.gen.h"

namespace tube::wire {

inline constexpr uint64_t kStepCopyBit = 1ull << 60;  // in a tag: the client sees a memcpy node
inline constexpr uint64_t kStepDone = 1ull << 61;     // above every tag, below abi::kWordReleased
constexpr bool valid_step_tag(uint64_t tag) { return tag != 0 && tag < kStepDone; }
constexpr bool is_copy_step(uint64_t tag) { return (tag & kStepCopyBit) != 0; }

// Flags of tubeGraphSteps' answer.
inline constexpr uint32_t kGraphHasMemoryNodes = 1;

}  // namespace tube::wire
