// What a message about a graph node names, resolved: a graph to add to, a node to change, or a node
// in an instance to change. For graph_node.cc and graph_kinds.cc. Session thread
// only.
#pragma once

#include <vector>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/calls/graph_place.h"
#include "proxy/calls/graph_steps.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"

namespace tube::proxy {

using wire::GraphEdit;

struct NodeTarget {
  GraphEdit op = GraphEdit::kAdd;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ExecState* exec_state = nullptr;
  CUgraphNode node = nullptr;
  std::vector<CUgraphNode> dependencies;
  std::vector<CUgraphEdgeData> edges;  // as many as dependencies, or none
  CUcontext context = nullptr;         // of copies and memsets: where the instance's are
  CUcontext shared = nullptr;          // the GPU's, of everything else

  NodeSpot spot() const { return {graph, context, dependencies, edges}; }
};

template <class X>
CUresult resolve_target(Session& session, const Decoded<X>& call, NodeTarget& target) {
  target.context = target.shared = session.shared().gpus[session.context()->gpu].context;
  target.op = call->op;
  if (call->op == GraphEdit::kAdd) {
    auto graph = session.resolve<CUgraph>(wire::Kind::kGraph, call->graph);
    if (graph.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    target.graph = graph.handle;
    for (uint64_t id : call.template array<uint64_t>(call->dependencies)) {
      auto node = session.resolve<CUgraphNode>(wire::Kind::kGraphNode, id);
      if (node.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
      target.dependencies.push_back(node.handle);
    }
    const auto edges = call.template array<CUgraphEdgeData>(call->edges);
    if (!edges.empty() && edges.size() != target.dependencies.size())
      return CUDA_ERROR_INVALID_VALUE;
    target.edges.assign(edges.begin(), edges.end());
    return CUDA_SUCCESS;
  }
  auto node = session.resolve<CUgraphNode>(wire::Kind::kGraphNode, call->node);
  if (node.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  target.node = node.handle;
  if (call->op == GraphEdit::kSet) return CUDA_SUCCESS;
  Object* exec = session.objects().find(wire::Kind::kGraphExec, call->exec);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  target.exec = exec->handle<CUgraphExec>();
  target.exec_state = static_cast<ExecState*>(exec->state.get());
  if (CUcontext context = instance_context(target.exec_state); context != nullptr)
    target.context = context;
  return CUDA_SUCCESS;
}

// Adds with the call that takes edge data and every type.
inline CUresult add_typed(Session& session, const NodeTarget& target, CUgraphNodeParams* params,
                          CUgraphNode* node) {
  return session.driver().cuGraphAddNode_v2(node, target.graph, target.dependencies.data(),
                                            target.edges.empty() ? nullptr : target.edges.data(),
                                            target.dependencies.size(), params);
}

template <class X>
CUresult name_node(Session& session, const Decoded<X>& call, CUgraphNode node, Reply<X>& reply) {
  reply->node =
      session.objects().adopt(wire::Kind::kGraphNode, node, session.record().context, call->graph);
  if (reply->node != 0) return CUDA_SUCCESS;
  (void)session.driver().cuGraphDestroyNode(node);  // nobody could name it
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// A node that the driver cannot change into what is asked (a copy whose pageable side becomes
// pinned, or the reverse): a new one with the same edges takes its place under its id. `make` adds
// the new one to the spot it is given.
template <class Make>
CUresult replace_node(Session& session, uint64_t id, NodeTarget& target, Make make) {
  const Driver& driver = session.driver();
  const Object* object = session.objects().find(wire::Kind::kGraphNode, id);
  auto graph = session.resolve<CUgraph>(wire::Kind::kGraph, object->owner);
  if (graph.error != CUDA_SUCCESS) return CUDA_ERROR_NOT_SUPPORTED;
  target.graph = graph.handle;
  size_t before = 0, after = 0;
  if (CUresult error = driver.cuGraphNodeGetDependencies_v2(target.node, nullptr, nullptr, &before);
      error != CUDA_SUCCESS)
    return error;
  if (CUresult error =
          driver.cuGraphNodeGetDependentNodes_v2(target.node, nullptr, nullptr, &after);
      error != CUDA_SUCCESS)
    return error;
  target.dependencies.resize(before);
  target.edges.resize(before);
  std::vector<CUgraphNode> followers(after), self;
  std::vector<CUgraphEdgeData> follower_edges(after);
  CUresult error = CUDA_SUCCESS;
  if (before != 0)
    error = driver.cuGraphNodeGetDependencies_v2(target.node, target.dependencies.data(),
                                                 target.edges.data(), &before);
  if (error == CUDA_SUCCESS && after != 0) {
    error = driver.cuGraphNodeGetDependentNodes_v2(target.node, followers.data(),
                                                   follower_edges.data(), &after);
  }
  CUgraphNode node = nullptr;
  if (error == CUDA_SUCCESS) error = make(target, &node);
  if (error != CUDA_SUCCESS) return error;
  self.assign(after, node);
  if (after != 0)
    error = driver.cuGraphAddDependencies_v2(target.graph, self.data(), followers.data(),
                                             follower_edges.data(), after);
  if (error == CUDA_SUCCESS) error = driver.cuGraphDestroyNode(target.node);
  if (error != CUDA_SUCCESS) {
    (void)driver.cuGraphDestroyNode(node);
    return error;
  }
  session.objects().rebind(wire::Kind::kGraphNode, id, reinterpret_cast<uint64_t>(node));
  return CUDA_SUCCESS;
}

}  // namespace tube::proxy
