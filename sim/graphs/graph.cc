// The graph itself: nodes, edges, copies, order. And the calls that look at or change the
// structure.
#include "sim/graphs/graph.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/graphs/capture.h"

namespace tube::sim {

CUgraphNodeType Node::type() const {
  struct Visitor {
    CUgraphNodeType operator()(const EmptyWork&) { return CU_GRAPH_NODE_TYPE_EMPTY; }
    CUgraphNodeType operator()(const KernelWork&) { return CU_GRAPH_NODE_TYPE_KERNEL; }
    CUgraphNodeType operator()(const CopyWork&) { return CU_GRAPH_NODE_TYPE_MEMCPY; }
    CUgraphNodeType operator()(const MemsetWork&) { return CU_GRAPH_NODE_TYPE_MEMSET; }
    CUgraphNodeType operator()(const HostWork&) { return CU_GRAPH_NODE_TYPE_HOST; }
    CUgraphNodeType operator()(const EventRecordWork&) { return CU_GRAPH_NODE_TYPE_EVENT_RECORD; }
    CUgraphNodeType operator()(const EventWaitWork&) { return CU_GRAPH_NODE_TYPE_WAIT_EVENT; }
    CUgraphNodeType operator()(const MemOpWork&) { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
    CUgraphNodeType operator()(const ChildWork&) { return CU_GRAPH_NODE_TYPE_GRAPH; }
    CUgraphNodeType operator()(const AllocWork&) { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
    CUgraphNodeType operator()(const FreeWork&) { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
    CUgraphNodeType operator()(const ConditionalWork&) { return CU_GRAPH_NODE_TYPE_CONDITIONAL; }
  };
  return std::visit(Visitor{}, work);
}

Graph* make_graph(State& s) {
  auto* graph = new Graph;
  graph->id = s.new_id();
  s.live.emplace(graph, Kind::kGraph);
  return graph;
}

Graph* copy_graph(State& s, const Graph& from) {
  Graph* to = make_graph(s);
  to->origin = from.id;
  std::unordered_map<const Node*, Node*> twin;
  for (auto& node : from.nodes) {
    Work work = node->work;
    if (auto* child = std::get_if<ChildWork>(&work)) {
      child->graph = copy_graph(s, *child->graph);
      child->graph->child = true;
    }
    if (auto* conditional = std::get_if<ConditionalWork>(&work)) {
      for (Graph*& body : conditional->bodies) {
        body = copy_graph(s, *body);
        body->child = true;
      }
    }
    Node* copy = append_node(s, to, node->context, std::move(work), {});
    copy->origin = node->id;
    copy->enabled = node->enabled;
    copy->attributes = node->attributes;
    twin[node.get()] = copy;
  }
  for (auto& node : from.nodes)
    for (const Edge& e : node->in) connect(twin[e.node], twin[node.get()], e.data);
  for (auto& [object, count] : from.objects) {
    object->count += count;
    to->objects[object] = count;
  }
  return to;
}

template <typename Wanted>
static bool any_node(const Graph& graph, Wanted wanted) {
  for (auto& node : graph.nodes) {
    if (wanted(node->type())) return true;
    if (auto* child = std::get_if<ChildWork>(&node->work);
        child != nullptr && any_node(*child->graph, wanted))
      return true;
    if (auto* conditional = std::get_if<ConditionalWork>(&node->work))
      for (const Graph* body : conditional->bodies)
        if (any_node(*body, wanted)) return true;
  }
  return false;
}

bool has_memory_nodes(const Graph& graph) {
  return any_node(graph, [](CUgraphNodeType t) {
    return t == CU_GRAPH_NODE_TYPE_MEM_ALLOC || t == CU_GRAPH_NODE_TYPE_MEM_FREE;
  });
}
bool has_conditional_nodes(const Graph& graph) {
  return any_node(graph, [](CUgraphNodeType t) { return t == CU_GRAPH_NODE_TYPE_CONDITIONAL; });
}

static void destroy_node(State& s, Node* node) {
  if (auto* child = std::get_if<ChildWork>(&node->work)) destroy_graph(s, child->graph);
  if (auto* conditional = std::get_if<ConditionalWork>(&node->work))
    for (Graph* body : conditional->bodies) destroy_graph(s, body);
  s.live.erase(node);
}

void destroy_graph(State& s, Graph* graph) {
  for (auto& node : graph->nodes) destroy_node(s, node.get());
  for (auto& [object, count] : graph->objects) {
    // Destructors run on the calling thread, as with CU_USER_OBJECT_NO_DESTRUCTOR_SYNC; they may
    // not call CUDA.
    release_user_object(object, count);
  }
  s.live.erase(graph);
  delete graph;
}

bool connect(Node* from, Node* to, const CUgraphEdgeData& data) {
  for (const Edge& e : to->in)
    if (e.node == from) return false;
  to->in.push_back({from, data});
  from->out.push_back({to, data});
  return true;
}

bool disconnect(Node* from, Node* to) {
  size_t gone = std::erase_if(to->in, [from](const Edge& e) { return e.node == from; });
  std::erase_if(from->out, [to](const Edge& e) { return e.node == to; });
  return gone != 0;
}

Node* append_node(State& s, Graph* graph, Context* context, Work work,
                  const std::vector<Edge>& dependencies) {
  auto node = std::make_unique<Node>();
  node->id = s.new_id();
  node->graph = graph;
  node->context = context;
  node->work = std::move(work);
  for (const Edge& e : dependencies) connect(e.node, node.get(), e.data);
  s.live.emplace(node.get(), Kind::kNode);
  graph->nodes.push_back(std::move(node));
  return graph->nodes.back().get();
}

CUresult add_node(State& s, Graph* graph, Context* context, Work work,
                  const CUgraphNode* dependencies, const CUgraphEdgeData* data, size_t count,
                  Node** out) {
  if (count > 0 && dependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Node*> before;
  for (size_t i = 0; i < count; ++i) {
    Node* d = live_node(s, dependencies[i]);
    if (d == nullptr || d->graph != graph ||
        std::find(before.begin(), before.end(), d) != before.end())
      return CUDA_ERROR_INVALID_VALUE;
    before.push_back(d);
  }
  Node* node = append_node(s, graph, context, std::move(work), {});
  for (size_t i = 0; i < count; ++i)
    connect(before[i], node, data == nullptr ? CUgraphEdgeData{} : data[i]);
  *out = node;
  return CUDA_SUCCESS;
}

std::vector<Node*> topological(const Graph& graph) {
  std::unordered_map<Node*, size_t> missing;
  std::vector<Node*> order;
  for (auto& n : graph.nodes) {
    missing[n.get()] = n->in.size();
    if (n->in.empty()) order.push_back(n.get());
  }
  for (size_t i = 0; i < order.size(); ++i)
    for (const Edge& e : order[i]->out)
      if (--missing[e.node] == 0) order.push_back(e.node);
  if (order.size() != graph.nodes.size()) order.clear();
  return order;
}

}  // namespace tube::sim

using namespace tube::sim;

#define SIM_GRAPH(variable, handle)        \
  State& s = state();                      \
  Lock lock(s.mutex);                      \
  Graph* variable = live_graph(s, handle); \
  if (variable == nullptr) return CUDA_ERROR_INVALID_VALUE
#define SIM_NODE(variable, handle)       \
  State& s = state();                    \
  Lock lock(s.mutex);                    \
  Node* variable = live_node(s, handle); \
  if (variable == nullptr) return CUDA_ERROR_INVALID_VALUE

// The "count in, count out" convention: a null array asks for the count; a longer array is cleared
// at its end.
template <typename Get>
static CUresult list_nodes(CUgraphNode* out, size_t* count, size_t available, Get get) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out != nullptr) {
    for (size_t i = 0; i < *count; ++i)
      out[i] = i < available ? reinterpret_cast<CUgraphNode>(get(i)) : nullptr;
    if (*count < available) return CUDA_SUCCESS;
  }
  *count = available;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  SIM_ENTER(kInit);
  if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  *phGraph = reinterpret_cast<CUgraph>(make_graph(s));
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphDestroy(CUgraph hGraph) {
  SIM_ENTER(kInit);
  SIM_GRAPH(graph, hGraph);
  if (graph->child) return CUDA_ERROR_INVALID_VALUE;
  for (auto& capture : s.captures)
    if (capture->graph == graph) return CUDA_ERROR_ILLEGAL_STATE;
  destroy_graph(s, graph);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  SIM_ENTER(kInit);
  if (phGraphClone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_GRAPH(graph, originalGraph);
  if (has_memory_nodes(*graph) || has_conditional_nodes(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  *phGraphClone = reinterpret_cast<CUgraph>(copy_graph(s, *graph));
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                        CUgraph hClonedGraph) {
  SIM_ENTER(kInit);
  if (phNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_GRAPH(graph, hClonedGraph);
  Node* original = live_node(s, hOriginalNode);
  *phNode = nullptr;
  if (original == nullptr || graph->origin != original->graph->id) return CUDA_ERROR_INVALID_VALUE;
  for (auto& n : graph->nodes) {
    if (n->origin != original->id) continue;
    *phNode = reinterpret_cast<CUgraphNode>(n.get());
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  SIM_ENTER(kInit);
  SIM_GRAPH(graph, hGraph);
  return list_nodes(nodes, numNodes, graph->nodes.size(),
                    [graph](size_t i) { return graph->nodes[i].get(); });
}

SIM_API CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  SIM_ENTER(kInit);
  SIM_GRAPH(graph, hGraph);
  std::vector<Node*> roots;
  for (auto& n : graph->nodes)
    if (n->in.empty()) roots.push_back(n.get());
  return list_nodes(rootNodes, numRootNodes, roots.size(), [&roots](size_t i) { return roots[i]; });
}

static CUresult get_edges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                          size_t* count, bool lossy) {
  if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  SIM_GRAPH(graph, hGraph);
  size_t n = 0, room = from == nullptr ? 0 : *count;
  for (auto& node : graph->nodes) {
    for (const Edge& e : node->in) {
      if (lossy && !is_plain(e.data)) return CUDA_ERROR_LOSSY_QUERY;
      if (n < room) {
        from[n] = reinterpret_cast<CUgraphNode>(e.node);
        to[n] = reinterpret_cast<CUgraphNode>(node.get());
        if (data != nullptr) data[n] = e.data;
      }
      ++n;
    }
  }
  for (size_t i = n; i < room; ++i) from[i] = to[i] = nullptr;
  if (from == nullptr || n < room) *count = n;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                                 size_t* numEdges) {
  SIM_ENTER(kInit);
  return get_edges(hGraph, from, to, nullptr, numEdges, true);
}
SIM_API CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                                    CUgraphEdgeData* edgeData, size_t* numEdges) {
  SIM_ENTER(kInit);
  return get_edges(hGraph, from, to, edgeData, numEdges, false);
}

static CUresult neighbours(CUgraphNode handle, bool incoming, CUgraphNode* out,
                           CUgraphEdgeData* data, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_NODE(node, handle);
  const auto& edges = incoming ? node->in : node->out;
  if (data != nullptr && out != nullptr)
    for (size_t i = 0; i < std::min(*count, edges.size()); ++i) data[i] = edges[i].data;
  return list_nodes(out, count, edges.size(), [&edges](size_t i) { return edges[i].node; });
}

SIM_API CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                            size_t* numDependencies) {
  SIM_ENTER(kInit);
  return neighbours(hNode, true, dependencies, nullptr, numDependencies);
}
SIM_API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                               CUgraphEdgeData* edgeData, size_t* numDependencies) {
  SIM_ENTER(kInit);
  return neighbours(hNode, true, dependencies, edgeData, numDependencies);
}
SIM_API CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                              size_t* numDependentNodes) {
  SIM_ENTER(kInit);
  return neighbours(hNode, false, dependentNodes, nullptr, numDependentNodes);
}
SIM_API CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                                 CUgraphEdgeData* edgeData,
                                                 size_t* numDependentNodes) {
  SIM_ENTER(kInit);
  return neighbours(hNode, false, dependentNodes, edgeData, numDependentNodes);
}

static CUresult change_edges(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                             const CUgraphEdgeData* data, size_t count, bool add) {
  SIM_GRAPH(graph, hGraph);
  if (count > 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (!add && has_memory_nodes(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  for (size_t i = 0; i < count; ++i) {
    Node *a = live_node(s, from[i]), *b = live_node(s, to[i]);
    if (a == nullptr || b == nullptr || a->graph != graph || b->graph != graph || a == b)
      return CUDA_ERROR_INVALID_VALUE;
    bool changed =
        add ? connect(a, b, data == nullptr ? CUgraphEdgeData{} : data[i]) : disconnect(a, b);
    if (!changed) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from,
                                        const CUgraphNode* to, size_t numDependencies) {
  SIM_ENTER(kInit);
  return change_edges(hGraph, from, to, nullptr, numDependencies, true);
}
SIM_API CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                           const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                           size_t numDependencies) {
  SIM_ENTER(kInit);
  return change_edges(hGraph, from, to, edgeData, numDependencies, true);
}
SIM_API CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from,
                                           const CUgraphNode* to, size_t numDependencies) {
  SIM_ENTER(kInit);
  return change_edges(hGraph, from, to, nullptr, numDependencies, false);
}
SIM_API CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                              const CUgraphNode* to,
                                              const CUgraphEdgeData* edgeData,
                                              size_t numDependencies) {
  SIM_ENTER(kInit);
  return change_edges(hGraph, from, to, edgeData, numDependencies, false);
}

SIM_API CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  SIM_ENTER(kInit);
  SIM_NODE(node, hNode);
  if (has_memory_nodes(*node->graph)) return CUDA_ERROR_NOT_SUPPORTED;
  while (!node->in.empty()) disconnect(node->in.back().node, node);
  while (!node->out.empty()) disconnect(node, node->out.back().node);
  destroy_node(s, node);
  std::erase_if(node->graph->nodes,
                [node](const std::unique_ptr<Node>& n) { return n.get() == node; });
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  SIM_ENTER(kInit);
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_NODE(node, hNode);
  *type = node->type();
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int) {
  SIM_ENTER(kInit);
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_GRAPH(graph, hGraph);
  std::FILE* f = std::fopen(path, "w");
  if (f == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  std::fprintf(f, "digraph graph_%llu {\n", static_cast<unsigned long long>(graph->id));
  for (auto& n : graph->nodes) {
    std::fprintf(f, "  n%llu [label=\"type %d\"];\n", static_cast<unsigned long long>(n->id),
                 n->type());
    for (const Edge& e : n->out)
      std::fprintf(f, "  n%llu -> n%llu;\n", static_cast<unsigned long long>(n->id),
                   static_cast<unsigned long long>(e.node->id));
  }
  std::fprintf(f, "}\n");
  std::fclose(f);
  return CUDA_SUCCESS;
}
