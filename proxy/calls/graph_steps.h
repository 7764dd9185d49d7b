// Steps: what only the client's process can do while a graph runs (protocol/graph_params.h says how
// they look).
//
// Everything about a step is read back from the driver's own nodes, so clones, child graphs and
// captured graphs need no bookkeeping here. A client cannot make such a node by itself: its batch
// memory operations may not name the segment.
//
// Session thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/cuda_api.h"
#include "protocol/graph_params.h"
#include "proxy/session/objects.h"

namespace tube::proxy {

class LiftedCopies;
class Session;

// A node that is a step, taken apart.
struct Step {
  uint64_t tag = 0;
  CUgraphNode node = nullptr;  // as the client knows it
  CUgraphNode operation =
      nullptr;  // the batch memory operation: `node` itself, or a node of its child graph
  CUgraphNode copy = nullptr;  // nullptr: a step alone
  wire::StepDirection direction = wire::StepDirection::kAlone;
  uint64_t staging_bytes = 0;
};
// False when `node` is something else.
bool step_of(Session& session, CUgraphNode node, Step* step);
// The type that the client sees.
CUresult visible_type(Session& session, CUgraphNode node, CUgraphNodeType* type);

// All steps of the graph and of its child graphs, always in the same order. `flags`:
// wire::kGraphHas...
CUresult list_steps(Session& session, CUgraph graph, std::vector<Step>* steps, uint32_t* flags);
// Gives the steps their words and staging, one place per step: done right before the driver copies
// the graph.
CUresult place_steps(Session& session, std::span<const Step> steps,
                     std::span<const wire::GraphStepPlace> untrusted_places);

// Where a new node goes: behind `dependencies`; `edges` has one entry for each of them or none.
struct NodeSpot {
  CUgraph graph = nullptr;
  CUcontext context = nullptr;
  std::span<const CUgraphNode> dependencies;
  std::span<const CUgraphEdgeData> edges;
};
CUresult add_step(Session& session, const NodeSpot& spot, const wire::GraphStepParams& untrusted,
                  CUgraphNode* node);
// Changes a node that is a step of the same form; CUDA_ERROR_NOT_FOUND when it is not (then the
// node is unchanged).
CUresult set_step(Session& session, CUgraphNode node, CUcontext context,
                  const wire::GraphStepParams& untrusted);

// What an instance remembers: the place of each step, by the nodes of the graph that it was made
// from, which name them after an update too, and the copies that are not done by it (graph_lift.h).
struct ExecState final : ObjectState {
  ExecState();
  ~ExecState() override;
  std::vector<CUgraphNode> steps;  // the keys of the next two, in the steps' order
  std::unordered_map<CUgraphNode, wire::GraphStepPlace> places;
  std::unordered_map<CUgraphNode, uint64_t> staging_bytes;
  std::unique_ptr<LiftedCopies> lifted;  // nullptr: none
  CUcontext context = nullptr;           // of its nodes (graph_place.h)
};
void remember_places(ExecState& state, std::span<const Step> steps,
                     std::span<const wire::GraphStepPlace> places);
// The instance was updated, and its steps have the places of these now. As many, or nothing is
// known of them any more.
void adopt_places(ExecState& state, ExecState&& updated);
// `*needed`: bytes of staging, when those that the instance has are too few and the client sent
// none.
CUresult set_exec_step(Session& session, CUgraphExec exec, ExecState& state, CUgraphNode node,
                       CUcontext context, const wire::GraphStepParams& untrusted, uint32_t* word,
                       uint64_t* needed);
// A child graph that replaces the one of `node` in the instance: its steps take the places of the
// old ones.
CUresult place_child(Session& session, const ExecState& state, CUgraphNode node, CUgraph child);

}  // namespace tube::proxy
