#include "proxy/calls/graph_walk.h"

#include <algorithm>
#include <map>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "proxy/calls/graph_steps.h"
#include "proxy/common/client_limits.h"
#include "proxy/session/graph_objects.h"
#include "proxy/session/session.h"

namespace tube::proxy {

namespace {

constexpr size_t kMaxNesting = 64;  // of graphs in graphs; the driver's own limit is lower

CUresult list_nodes(const Driver& driver, CUgraph graph, std::vector<CUgraphNode>* nodes) {
  size_t count = 0;
  if (CUresult error = driver.cuGraphGetNodes(graph, nullptr, &count); error != CUDA_SUCCESS)
    return error;
  nodes->resize(count);
  return count == 0 ? CUDA_SUCCESS : driver.cuGraphGetNodes(graph, nodes->data(), &count);
}

CUgraph child_of(const Driver& driver, CUgraphNode node) {
  CUgraphNodeType type{};
  CUgraph child = nullptr;
  if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_GRAPH ||
      driver.cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS)
    return nullptr;
  return child;
}

// Counts nodes, up to a bound.
class Count {
 public:
  Count(Session& session, uint64_t most) : session_(session), most_(most) {}

  CUresult add(CUgraph graph, size_t depth = 0) {
    const Driver& driver = session_.driver();
    size_t count = 0;
    if (depth > kMaxNesting) return CUDA_ERROR_NOT_SUPPORTED;
    if (CUresult error = driver.cuGraphGetNodes(graph, nullptr, &count); error != CUDA_SUCCESS)
      return error;
    nodes_ += count;
    if (nodes_ > most_) return CUDA_ERROR_OUT_OF_MEMORY;
    if (is_flat()) return CUDA_SUCCESS;
    std::vector<CUgraphNode> nodes;
    if (CUresult error = list_nodes(driver, graph, &nodes); error != CUDA_SUCCESS) return error;
    for (CUgraphNode node : nodes) {
      if (CUresult error = add_inside(node, depth); error != CUDA_SUCCESS) return error;
    }
    return CUDA_SUCCESS;
  }
  uint64_t nodes() const { return nodes_; }

 private:
  // No graph of the client has others inside, but for those of copies with a step, of two nodes.
  bool is_flat() const {
    const Objects& objects = session_.objects();
    return objects.weight(wire::Kind::kGraphNode) + objects.weight(wire::Kind::kGraph) == 0;
  }
  CUresult add_inside(CUgraphNode node, size_t depth) {
    const Driver& driver = session_.driver();
    CUgraphNodeType type{};
    if (CUresult error = driver.cuGraphNodeGetType(node, &type); error != CUDA_SUCCESS)
      return error;
    if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return add_bodies(node, depth);
    if (type != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_SUCCESS;
    CUgraph child = nullptr;
    if (CUresult error = driver.cuGraphChildGraphNodeGetGraph(node, &child); error != CUDA_SUCCESS)
      return error;
    return add(child, depth + 1);
  }
  // The driver does not list them; it makes no copies of their nodes but in instances.
  CUresult add_bodies(CUgraphNode node, size_t depth) {
    const uint64_t id =
        session_.objects().adopted(wire::Kind::kGraphNode, reinterpret_cast<uint64_t>(node));
    if (id == 0) return CUDA_SUCCESS;
    if (bodies_.empty()) {
      for (uint64_t inner : session_.objects().ids(wire::Kind::kGraph)) {
        const Object* graph = session_.objects().find(wire::Kind::kGraph, inner);
        if (graph->state == nullptr) continue;
        bodies_.emplace(static_cast<const InnerGraph&>(*graph->state).node,
                        graph->handle<CUgraph>());
      }
    }
    const auto [first, last] = bodies_.equal_range(id);
    for (auto body = first; body != last; ++body) {
      if (CUresult error = add(body->second, depth + 1); error != CUDA_SUCCESS) return error;
    }
    return CUDA_SUCCESS;
  }

  Session& session_;
  const uint64_t most_;
  uint64_t nodes_ = 0;
  std::multimap<uint64_t, CUgraph> bodies_;  // by the id of their node
};

// Whether the node is in the graph, or in a child graph: then the nodes that lead to it, from
// outside.
bool path_to(const Driver& driver, CUgraph graph, CUgraphNode node,
             std::vector<CUgraphNode>* path) {
  std::vector<CUgraphNode> nodes;
  if (list_nodes(driver, graph, &nodes) != CUDA_SUCCESS) return false;
  if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) return true;
  if (path->size() >= kMaxNesting) return false;
  for (CUgraphNode outer : nodes) {
    const CUgraph child = child_of(driver, outer);
    if (child == nullptr) continue;
    path->push_back(outer);
    if (path_to(driver, child, node, path)) return true;
    path->pop_back();
  }
  return false;
}

uint64_t adopt_node(Session& session, CUgraphNode node, uint64_t graph) {
  return session.objects().adopt(wire::Kind::kGraphNode, node, session.record().context, graph);
}

// Where the node lies as seen from the graph `id`, which has an id for each graph on the way from
// then on.
uint64_t name_from(Session& session, uint64_t id, CUgraphNode node) {
  const Object* graph = session.objects().find(wire::Kind::kGraph, id);
  std::vector<CUgraphNode> path;
  if (graph == nullptr || !path_to(session.driver(), graph->handle<CUgraph>(), node, &path))
    return 0;
  for (CUgraphNode outer : path) {
    const uint64_t outer_id = adopt_node(session, outer, id);
    Step step;
    if (outer_id == 0 || step_of(session, outer, &step)) return outer_id;
    id = adopt_inner(session, child_of(session.driver(), outer), id, outer_id);
    if (id == 0) return 0;
  }
  return adopt_node(session, node, id);
}

}  // namespace

CUresult admit_copy(Session& session, CUgraph graph, uint64_t* nodes) {
  const Objects& objects = session.objects();
  const uint64_t held = objects.weight(wire::Kind::kGraphNode) +
                        objects.weight(wire::Kind::kGraph) + objects.weight(wire::Kind::kGraphExec);
  if (held >= limits::kCopiedNodes) return CUDA_ERROR_OUT_OF_MEMORY;
  Count count(session, limits::kCopiedNodes - held);
  const CUresult error = count.add(graph);
  *nodes = std::max<uint64_t>(count.nodes(), 1);
  return error;
}

bool is_around(Session& session, uint64_t id, uint64_t parent) {
  while (parent != 0 && parent != id) {
    const Object* graph = session.objects().find(wire::Kind::kGraph, parent);
    parent = graph != nullptr ? graph->owner : 0;
  }
  return parent == id;
}

uint64_t name_node_inside(Session& session, uint64_t id, CUgraphNode node) {
  if (node == nullptr) return 0;
  Objects& objects = session.objects();
  const uint64_t known = objects.adopted(wire::Kind::kGraphNode, reinterpret_cast<uint64_t>(node));
  if (known != 0) return known;
  if (const uint64_t named = name_from(session, id, node); named != 0) return named;
  // In the body of a conditional node, which is a graph that the client knows.
  for (uint64_t inner : objects.ids(wire::Kind::kGraph)) {
    if (inner == id || !is_around(session, id, inner)) continue;
    if (const uint64_t named = name_from(session, inner, node); named != 0) return named;
  }
  return 0;
}

}  // namespace tube::proxy
