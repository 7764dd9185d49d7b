#include "sim/graphs/conditional.h"

#include <map>
#include <mutex>

namespace tube::sim {
namespace {

struct Handle {
  uint32_t value = 0;
  uint32_t initial = 0;
  bool assigned = false;  // `initial` at each launch
  bool used = false;      // by a node
  uint64_t graph = 0;     // that it was made for
};
struct Handles {
  std::mutex mutex;  // leaf: kernels set values without State::mutex
  std::map<uint64_t, Handle> by_number;
  uint64_t next = 1;
};
Handles& handles() {
  static auto* h = new Handles;
  return *h;
}

bool allowed_in_body(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_EMPTY ||
         type == CU_GRAPH_NODE_TYPE_GRAPH || type == CU_GRAPH_NODE_TYPE_MEMSET ||
         type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

CUresult check_body(const Graph& graph) {
  for (auto& node : graph.nodes) {
    if (!allowed_in_body(node->type())) return CUDA_ERROR_INVALID_VALUE;
    if (auto* child = std::get_if<ChildWork>(&node->work))
      if (CUresult r = check_body(*child->graph)) return r;
  }
  return check_bodies(graph);
}

bool valid_size(CUgraphConditionalNodeType type, unsigned size) {
  switch (type) {
    case CU_GRAPH_COND_TYPE_IF: return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE: return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH: return size > 0;
  }
  return false;
}

void collect(const Graph& graph, std::vector<uint64_t>* out) {
  for (auto& node : graph.nodes) {
    if (auto* child = std::get_if<ChildWork>(&node->work)) collect(*child->graph, out);
    auto* work = std::get_if<ConditionalWork>(&node->work);
    if (work == nullptr) continue;
    out->push_back(work->handle);
    for (const Graph* body : work->bodies) collect(*body, out);
  }
}

}  // namespace

void set_conditional(uint64_t handle, uint32_t value) {
  std::lock_guard locked(handles().mutex);
  if (auto found = handles().by_number.find(handle); found != handles().by_number.end())
    found->second.value = value;
}

CUresult conditional_work(CUDA_CONDITIONAL_NODE_PARAMS* p, Work* work) {
  if (!valid_size(p->type, p->size)) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard locked(handles().mutex);
    auto found = handles().by_number.find(p->handle);
    if (found == handles().by_number.end() || found->second.used) return CUDA_ERROR_INVALID_VALUE;
    found->second.used = true;
  }
  ConditionalWork made;
  made.handle = p->handle;
  made.type = p->type;
  made.listed = std::make_shared<std::vector<CUgraph>>();
  for (unsigned i = 0; i < p->size; ++i) {
    Graph* body = make_graph(state());
    body->child = true;
    made.bodies.push_back(body);
    made.listed->push_back(reinterpret_cast<CUgraph>(body));
  }
  p->phGraph_out = made.listed->data();
  *work = std::move(made);
  return CUDA_SUCCESS;
}

const Graph* chosen_body(const ConditionalWork& work) {
  std::lock_guard locked(handles().mutex);
  const uint32_t value = handles().by_number[work.handle].value;
  if (work.type == CU_GRAPH_COND_TYPE_SWITCH)
    return value < work.bodies.size() ? work.bodies[value] : nullptr;
  if (value != 0) return work.bodies[0];
  return work.type == CU_GRAPH_COND_TYPE_IF && work.bodies.size() == 2 ? work.bodies[1] : nullptr;
}

std::vector<uint64_t> defaulted_handles(const Graph& graph) {
  std::vector<uint64_t> all;
  collect(graph, &all);
  std::lock_guard locked(handles().mutex);
  std::erase_if(all, [](uint64_t handle) { return !handles().by_number[handle].assigned; });
  return all;
}

void assign_defaults(const std::vector<uint64_t>& numbers) {
  std::lock_guard locked(handles().mutex);
  for (uint64_t number : numbers) {
    Handle& handle = handles().by_number[number];
    handle.value = handle.initial;
  }
}

bool has_unused_handle(const Graph& graph) {
  std::lock_guard locked(handles().mutex);
  for (const auto& [number, handle] : handles().by_number)
    if (handle.graph == graph.id && !handle.used) return true;
  return false;
}

CUresult check_bodies(const Graph& graph) {
  for (auto& node : graph.nodes)
    if (auto* work = std::get_if<ConditionalWork>(&node->work))
      for (const Graph* body : work->bodies)
        if (CUresult r = check_body(*body)) return r;
  return CUDA_SUCCESS;
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out,
                                                CUgraph hGraph, CUcontext ctx,
                                                unsigned int defaultLaunchValue,
                                                unsigned int flags) {
  SIM_ENTER(kInit);
  if (pHandle_out == nullptr || flags > CU_GRAPH_COND_ASSIGN_DEFAULT)
    return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  const Graph* graph = live_graph(s, hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (live<Context>(s, ctx, Kind::kContext) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard locked(handles().mutex);
  *pHandle_out = handles().next++;
  handles().by_number[*pHandle_out] = {defaultLaunchValue, defaultLaunchValue,
                                       flags == CU_GRAPH_COND_ASSIGN_DEFAULT, false, graph->id};
  return CUDA_SUCCESS;
}
