// Graphs: nodes are Work with edges; an executable graph is a private copy that can be launched.
//
// Nodes are made by the cuGraphAdd* calls and by stream capture. Instantiation copies the graph;
// the copy remembers, by node id, which original node each of its nodes came from, for the
// cuGraphExec*SetParams calls.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/machine/work.h"

namespace tube::sim {

struct Node;

struct Node {
  uint64_t id = 0;
  Graph* graph = nullptr;
  Context* context = nullptr;
  Work work;
  std::vector<Edge> in, out;
  uint64_t origin = 0;  // id of the node it was copied from
  bool enabled = true;
  bool to_be_joined = false;  // captured, and nothing was captured behind it
  std::map<int, CUlaunchAttributeValue> attributes;
  std::vector<void*> param_pointers;  // storage behind cuGraphKernelNodeGetParams
  CUgraphNodeType type() const;
};

struct UserObject {
  void* ptr = nullptr;
  CUhostFn destroy = nullptr;
  uint64_t count = 0;
};

struct Graph {
  uint64_t id = 0;
  uint64_t origin = 0;                       // id of the graph it was cloned from
  std::vector<std::unique_ptr<Node>> nodes;  // in order of creation
  std::map<UserObject*, unsigned> objects;
  bool child = false;  // owned by a node
};

struct GraphExec {
  Graph* graph = nullptr;  // private copy
  unsigned long long flags = 0;
  Context* context = nullptr;
  FencePtr last;  // launches of one exec follow each other
};

Graph* make_graph(State& s);
// Deep copy, including child graphs.
Graph* copy_graph(State& s, const Graph& from);
void destroy_graph(State& s, Graph* graph);

// Whether such a node is in the graph, or in a child graph or body of it: the driver neither copies
// these nor takes them apart.
bool has_memory_nodes(const Graph& graph);
bool has_conditional_nodes(const Graph& graph);

// Adds a node behind `dependencies`; null edge data means plain edges.
CUresult add_node(State& s, Graph* graph, Context* context, Work work,
                  const CUgraphNode* dependencies, const CUgraphEdgeData* data, size_t count,
                  Node** node);
Node* append_node(State& s, Graph* graph, Context* context, Work work,
                  const std::vector<Edge>& dependencies);
bool connect(Node* from, Node* to, const CUgraphEdgeData& data);  // false: already connected
bool disconnect(Node* from, Node* to);

// Nodes so that each comes after everything it depends on; empty when there is a cycle.
std::vector<Node*> topological(const Graph& graph);

// Starts the graph on a stream. With the lock held.
CUresult launch_graph(Lock& lock, GraphExec* exec, Stream* stream);
GraphExec* make_exec(State& s, const Graph& graph, unsigned long long flags, Context* context);
Node* find_in_exec(GraphExec* exec, const Node& original);

// User objects. Without the lock: a destructor may run.
void release_user_object(UserObject* object, uint64_t count);

// Work from the typed node parameters, checked as the driver does at the call. With the lock held.
CUresult kernel_work(Lock& lock, Context* context, const CUDA_KERNEL_NODE_PARAMS_v2& p, Work* work,
                     Context** owner);
CUresult copy_work(Context* context, const CUDA_MEMCPY3D& p, Work* work);
CUresult memset_work(Context* context, const CUDA_MEMSET_NODE_PARAMS& p, Work* work);
CUresult mem_op_work(Context* context, const CUDA_BATCH_MEM_OP_NODE_PARAMS& p, Work* work);
CUresult generic_work(Lock& lock, Context* context, CUgraphNodeParams* p, Work* work,
                      Context** owner);

inline Graph* live_graph(State& s, CUgraph handle) { return live<Graph>(s, handle, Kind::kGraph); }
inline Node* live_node(State& s, CUgraphNode handle) { return live<Node>(s, handle, Kind::kNode); }
inline GraphExec* live_exec(State& s, CUgraphExec handle) {
  return live<GraphExec>(s, handle, Kind::kGraphExec);
}

}  // namespace tube::sim
