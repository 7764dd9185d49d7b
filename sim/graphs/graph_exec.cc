// Executable graphs: instantiation, launch, update.
//
// A launch turns every node into operations on a lane. A chain of single-successor nodes shares one
// lane, so a straight graph costs what a stream costs; branches run at the same time. The launching
// stream gets one operation in front (what the roots wait for) and one behind (which waits for the
// leaves).
#include <algorithm>
#include <cstring>

#include "sim/graphs/capture.h"
#include "sim/graphs/conditional.h"
#include "sim/graphs/graph.h"
#include "sim/machine/hold.h"
#include "sim/machine/pool_memory.h"

namespace tube::sim {
namespace {

struct Launch {
  Lock& lock;
  Context* context;
  int priority;
  uint64_t stream;  // that it was launched into
};

struct Done {
  LanePtr lane;
  FencePtr fence;
};

void start_graph(Launch& launch, const Graph& graph, const FencePtr& start,
                 std::vector<FencePtr>* leaves);

Op first_op(const Node& node, const FencePtr& start,
            const std::unordered_map<const Node*, Done>& done, LanePtr* lane) {
  Op op;
  for (const Edge& e : node.in) {
    const Done& d = done.at(e.node);
    if (node.in.size() == 1 && e.node->out.size() == 1) *lane = d.lane;
    else if (!d.fence->done) op.waits.push_back(d.fence);
  }
  if (node.in.empty() && start && !start->done) op.waits.push_back(start);
  return op;
}

// On a worker: runs the chosen body to its end, again and again for a loop. A body's nodes start
// like those of any graph.
CUresult run_conditional(Context* context, int priority, uint64_t stream,
                         const ConditionalWork& work) {
  Lock lock(state().mutex);
  Launch launch{lock, context, priority, stream};
  while (const Graph* body = chosen_body(work)) {
    std::vector<FencePtr> leaves;
    start_graph(launch, *body, nullptr, &leaves);
    for (const FencePtr& leaf : leaves) wait(lock, leaf);
    if (work.type != CU_GRAPH_COND_TYPE_WHILE || context->error.load() != CUDA_SUCCESS ||
        context->cancel->load())
      break;
  }
  return CUDA_SUCCESS;
}

Done start_node(Launch& launch, const Node& node, const FencePtr& start,
                const std::unordered_map<const Node*, Done>& done) {
  LanePtr lane;
  Op head = first_op(node, start, done, &lane);
  if (!lane) {
    lane = std::make_shared<Lane>();
    lane->context = node.context != nullptr ? node.context : launch.context;
    lane->priority = launch.priority;
    lane->stream = launch.stream;
  }
  if (auto* wait_for = std::get_if<EventWaitWork>(&node.work);
      wait_for != nullptr && node.enabled) {
    bool alive = live<Event>(state(), wait_for->event, Kind::kEvent) != nullptr;
    if (alive && wait_for->event->fence && !wait_for->event->fence->done)
      head.waits.push_back(wait_for->event->fence);
  }
  FencePtr last;
  if (auto* child = std::get_if<ChildWork>(&node.work)) {
    FencePtr entry = submit(launch.lock, lane, std::move(head));
    Op tail;
    start_graph(launch, *child->graph, entry, &tail.waits);
    last = submit(launch.lock, lane, std::move(tail));
  } else if (auto* conditional = std::get_if<ConditionalWork>(&node.work)) {
    head.body = [context = lane->context, priority = lane->priority, stream = lane->stream,
                 conditional] { return run_conditional(context, priority, stream, *conditional); };
    last = submit(launch.lock, lane, std::move(head));
  } else if (!node.enabled || std::holds_alternative<EventWaitWork>(node.work) ||
             std::holds_alternative<EventRecordWork>(node.work)) {
    last = submit(launch.lock, lane, std::move(head));
  } else {
    bool first = true;
    for (Op& op : make_ops(lane->context, node.work)) {
      if (first) op.waits = std::move(head.waits);
      first = false;
      last = submit(launch.lock, lane, std::move(op));
    }
  }
  auto* record = std::get_if<EventRecordWork>(&node.work);
  if (record != nullptr && node.enabled &&
      live<Event>(state(), record->event, Kind::kEvent) != nullptr)
    record->event->fence = last;
  return {lane, last};
}

void start_graph(Launch& launch, const Graph& graph, const FencePtr& start,
                 std::vector<FencePtr>* leaves) {
  std::unordered_map<const Node*, Done> done;
  for (Node* node : topological(graph)) {
    Done d = start_node(launch, *node, start, done);
    if (node->out.empty()) leaves->push_back(d.fence);
    done.emplace(node, std::move(d));
  }
}

// A memset of mapped memory that may not be written: a capture takes it.
bool fills_closed_memory(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    const auto* fill = std::get_if<MemsetWork>(&node->work);
    if (fill == nullptr) return false;
    const auto range = state().map.find(fill->params.dst);
    return range && range->kind == RangeKind::kMapped &&
           check_memset(node->context, fill->params) != CUDA_SUCCESS;
  });
}

// Kernels in the body of a conditional node, and these alone, in another part of the GPU than it
// (H200, 13.0).
bool bodies_apart(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    const auto* conditional = std::get_if<ConditionalWork>(&node->work);
    if (conditional == nullptr) return false;
    const auto apart = [&](const auto& inner) {
      return inner->type() == CU_GRAPH_NODE_TYPE_KERNEL && inner->context != node->context &&
             base_context(inner->context) == base_context(node->context);
    };
    return std::any_of(conditional->bodies.begin(), conditional->bodies.end(),
                       [&](const Graph* body) {
                         return std::any_of(body->nodes.begin(), body->nodes.end(), apart);
                       });
  });
}

CUresult check_instantiable(const Graph& graph, Node** bad, CUgraphInstantiateResult* why) {
  *why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  if (!graph.nodes.empty() && topological(graph).empty()) {
    *why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    *bad = graph.nodes.front().get();
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (has_unused_handle(graph) || fills_closed_memory(graph) || bodies_apart(graph))
    return CUDA_ERROR_INVALID_VALUE;
  return check_bodies(graph);
}

// Memory that a graph allocates has one address: one instance at a time.
bool has_instance(State& s, const Graph& graph) {
  for (const auto& [object, kind] : s.live)
    if (kind == Kind::kGraphExec &&
        static_cast<const GraphExec*>(object)->graph->origin == graph.id)
      return true;
  return false;
}

using NeedsByContext = std::map<Context*, KernelNeeds>;

// Kernels whose module is gone need nothing.
void collect_needs(State& s, const Graph& graph, NeedsByContext* needs) {
  for (auto& node : graph.nodes) {
    if (auto* child = std::get_if<ChildWork>(&node->work)) collect_needs(s, *child->graph, needs);
    if (auto* conditional = std::get_if<ConditionalWork>(&node->work))
      for (const Graph* body : conditional->bodies) collect_needs(s, *body, needs);
    const auto* work = std::get_if<KernelWork>(&node->work);
    if (work == nullptr || live<Function>(s, work->function, Kind::kFunction) == nullptr) continue;
    KernelNeeds& most = (*needs)[node->context];
    most.prints |= work->function->kernel->prints;
    most.local_bytes = std::max(most.local_bytes, work->function->kernel->local_bytes);
  }
}

constexpr unsigned long long kFlags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                      CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                      CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

CUresult instantiate(CUgraphExec* out, CUgraph handle, unsigned long long flags, Context* context,
                     CUgraphNode* bad_out, CUgraphInstantiateResult* why) {
  CUgraphInstantiateResult ignored;
  if (why != nullptr) *why = CUDA_GRAPH_INSTANTIATE_ERROR;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  // Only the call with parameters says on which stream to upload.
  if ((flags & ~(why == nullptr ? kFlags & ~CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD : kFlags)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (why == nullptr) why = &ignored;
  *why = CUDA_GRAPH_INSTANTIATE_ERROR;
  State& s = state();
  Lock lock(s.mutex);
  Graph* graph = live_graph(s, handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check_capture_unsafe(s)) return r;
  Node* bad = nullptr;
  CUresult r = check_instantiable(*graph, &bad, why);
  if (bad_out != nullptr) *bad_out = reinterpret_cast<CUgraphNode>(bad);
  if (r == CUDA_SUCCESS && has_memory_nodes(*graph) && has_instance(s, *graph))
    r = CUDA_ERROR_NOT_SUPPORTED;
  if (r != CUDA_SUCCESS) return r;
  GraphExec* exec = make_exec(s, *graph, flags, context);
  NeedsByContext needs;
  collect_needs(s, *graph, &needs);
  for (auto& [owner, most] : needs) {
    provide_local(lock, owner, most.local_bytes);
    hold_for_kernel(lock, owner, most.prints);
  }
  *out = reinterpret_cast<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}

bool same_attributes(const Node& a, const Node& b) {
  return a.in.size() == b.in.size() && a.out.size() == b.out.size();
}

// Parts of one GPU differ for kernels and copies only (H100, H200, 13.0).
CUgraphExecUpdateResult compare_contexts(const Node& a, const Node& b) {
  if (a.context == b.context) return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  const bool beside = a.context != nullptr && b.context != nullptr &&
                      base_context(a.context) == base_context(b.context);
  if (!beside) return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  switch (a.type()) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    case CU_GRAPH_NODE_TYPE_MEMCPY: return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    default: return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  }
}

// Position by position: same node types, same edges, same functions' context.
CUgraphExecUpdateResult compare(const Graph& have, const Graph& want, Node** bad, Node** bad_from) {
  if (have.nodes.size() != want.nodes.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  std::unordered_map<const Node*, size_t> index;
  for (size_t i = 0; i < have.nodes.size(); ++i)
    index[have.nodes[i].get()] = index[want.nodes[i].get()] = i;
  for (size_t i = 0; i < have.nodes.size(); ++i) {
    const Node &a = *have.nodes[i], &b = *want.nodes[i];
    *bad = want.nodes[i].get();
    *bad_from = nullptr;
    if (a.type() != b.type()) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (!same_attributes(a, b)) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t e = 0; e < a.in.size(); ++e) {
      if (index[a.in[e].node] == index[b.in[e].node]) continue;
      *bad_from = b.in[e].node;
      return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    if (auto result = compare_contexts(a, b); result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
    auto *child_a = std::get_if<ChildWork>(&a.work), *child_b = std::get_if<ChildWork>(&b.work);
    if (child_a != nullptr) {
      auto result = compare(*child_a->graph, *child_b->graph, bad, bad_from);
      if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
    }
    auto *choice_a = std::get_if<ConditionalWork>(&a.work),
         *choice_b = std::get_if<ConditionalWork>(&b.work);
    if (choice_a == nullptr) continue;
    if (choice_a->type != choice_b->type || choice_a->bodies.size() != choice_b->bodies.size())
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    for (size_t body = 0; body < choice_a->bodies.size(); ++body) {
      auto result = compare(*choice_a->bodies[body], *choice_b->bodies[body], bad, bad_from);
      if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
    }
  }
  *bad = *bad_from = nullptr;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

void take_works(Graph& have, const Graph& want);

void take_bodies(ConditionalWork& have, const ConditionalWork& want) {
  have.handle = want.handle;
  for (size_t i = 0; i < have.bodies.size(); ++i) take_works(*have.bodies[i], *want.bodies[i]);
}

void take_works(Graph& have, const Graph& want) {
  for (size_t i = 0; i < have.nodes.size(); ++i) {
    Node& a = *have.nodes[i];  // known by the node that it was made from, still (H200)
    if (auto* child = std::get_if<ChildWork>(&a.work))
      take_works(*child->graph, *std::get<ChildWork>(want.nodes[i]->work).graph);
    else if (auto* conditional = std::get_if<ConditionalWork>(&a.work))
      take_bodies(*conditional, std::get<ConditionalWork>(want.nodes[i]->work));
    else a.work = want.nodes[i]->work;
  }
}

CUresult update(CUgraphExec hExec, CUgraph hGraph, CUgraphExecUpdateResultInfo* info) {
  State& s = state();
  Lock lock(s.mutex);
  GraphExec* exec = live_exec(s, hExec);
  Graph* graph = live_graph(s, hGraph);
  if (exec == nullptr || graph == nullptr || info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Node *bad = nullptr, *bad_from = nullptr;
  info->result = compare(*exec->graph, *graph, &bad, &bad_from);
  info->errorNode = reinterpret_cast<CUgraphNode>(bad);
  info->errorFromNode = reinterpret_cast<CUgraphNode>(bad_from);
  if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  take_works(*exec->graph, *graph);
  NeedsByContext needs;
  collect_needs(s, *exec->graph, &needs);
  for (auto& [owner, most] : needs) provide_local(lock, owner, most.local_bytes);
  return CUDA_SUCCESS;
}

}  // namespace

GraphExec* make_exec(State& s, const Graph& graph, unsigned long long flags, Context* context) {
  auto* exec = new GraphExec;
  exec->graph = copy_graph(s, graph);
  exec->flags = flags;
  exec->context = context;
  s.live.emplace(exec, Kind::kGraphExec);
  return exec;
}

static Node* find_copy(const Graph& graph, uint64_t origin) {
  for (auto& n : graph.nodes) {
    if (n->origin == origin) return n.get();
    if (auto* child = std::get_if<ChildWork>(&n->work))
      if (Node* inner = find_copy(*child->graph, origin)) return inner;
  }
  return nullptr;
}

Node* find_in_exec(GraphExec* exec, const Node& original) {
  return find_copy(*exec->graph, original.id);
}

namespace {

// A launch may not allocate what an earlier one allocated and nobody freed, unless it frees that
// itself.
CUresult check_memory(const Graph& graph, bool frees_itself) {
  for (auto& node : graph.nodes) {
    if (auto* child = std::get_if<ChildWork>(&node->work))
      if (CUresult r = check_memory(*child->graph, frees_itself)) return r;
    auto* alloc = std::get_if<AllocWork>(&node->work);
    if (alloc != nullptr && alloc->memory->allocated && !frees_itself)
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// Memory operations in a part of a GPU: an instance with one is not launched (H200, 13.0).
bool has_operation_in_part(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    if (const auto* child = std::get_if<ChildWork>(&node->work))
      return has_operation_in_part(*child->graph);
    return std::holds_alternative<MemOpWork>(node->work) && node->context != nullptr &&
           node->context->green != nullptr;
  });
}

void account_memory(const Graph& graph) {
  for (Node* node : topological(graph)) {
    if (auto* child = std::get_if<ChildWork>(&node->work)) account_memory(*child->graph);
    if (auto* alloc = std::get_if<AllocWork>(&node->work)) alloc->memory->allocated = true;
    if (auto* gone = std::get_if<FreeWork>(&node->work))
      if (GraphAllocation* memory = graph_allocation(gone->address)) memory->allocated = false;
  }
}

}  // namespace

CUresult launch_graph(Lock& lock, GraphExec* exec, Stream* stream) {
  State& s = state();
  if (CUresult r = check_not_capturing(stream)) return r;
  if (has_operation_in_part(*exec->graph)) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check_memory(
          *exec->graph, (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0))
    return r;
  account_memory(*exec->graph);
  Op entry;
  if (auto handles = defaulted_handles(*exec->graph); !handles.empty()) {
    entry.body = [handles = std::move(handles)] {
      assign_defaults(handles);
      return CUDA_SUCCESS;
    };
    entry.in_place = true;
  }
  if (exec->last && !exec->last->done) entry.waits.push_back(exec->last);
  FencePtr start = append(lock, stream, std::move(entry));
  Launch launch{lock, stream->context, stream->priority, stream->id};
  Op tail;
  start_graph(launch, *exec->graph, start, &tail.waits);
  std::erase_if(tail.waits, [](const FencePtr& f) { return f->done; });
  exec->last = submit(lock, stream->lane, std::move(tail));
  if (!s.launch_blocking) return CUDA_SUCCESS;
  wait(lock, exec->last);
  return stream->context->error.load();
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph,
                                    CUgraphNode* phErrorNode, char* logBuffer, size_t bufferSize) {
  SIM_ENTER_CONTEXT(context);
  if (logBuffer != nullptr && bufferSize > 0) logBuffer[0] = '\0';
  return instantiate(phGraphExec, hGraph, 0, context, phErrorNode, nullptr);
}
SIM_API CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph,
                                       CUgraphNode* phErrorNode, char* logBuffer,
                                       size_t bufferSize) {
  SIM_ENTER_CONTEXT(context);
  if (logBuffer != nullptr && bufferSize > 0) logBuffer[0] = '\0';
  return instantiate(phGraphExec, hGraph, 0, context, phErrorNode, nullptr);
}
SIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                             unsigned long long flags) {
  SIM_ENTER_CONTEXT(context);
  return instantiate(phGraphExec, hGraph, flags, context, nullptr, nullptr);
}
SIM_API CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  SIM_ENTER_CONTEXT(context);
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  params->hErrNode_out = nullptr;
  return instantiate(phGraphExec, hGraph, params->flags, context, &params->hErrNode_out,
                     &params->result_out);
}

SIM_API CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  GraphExec* exec = live_exec(s, hGraphExec);
  if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags &
           CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;  // the others are not told (H200, 13.0)
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  State& s = state();
  Lock lock(s.mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, hStream, &stream)) return r;
  return live_exec(s, hGraphExec) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                             : check_not_capturing(stream);
}

SIM_API CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  State& s = state();
  Lock lock(s.mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, hStream, &stream)) return r;
  GraphExec* exec = live_exec(s, hGraphExec);
  return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : launch_graph(lock, exec, stream);
}

SIM_API CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  GraphExec* exec = live_exec(s, hGraphExec);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check_capture_unsafe(s)) return r;
  // A running launch has copied what it needs; memory of allocation nodes waits for it.
  FencePtr last = exec->last;
  s.live.erase(exec);
  wait(lock, last);
  destroy_graph(s, exec->graph);
  delete exec;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph,
                                   CUgraphNode* hErrorNode_out,
                                   CUgraphExecUpdateResult* updateResult_out) {
  SIM_ENTER_HANDLE(context);
  (void)context;
  CUgraphExecUpdateResultInfo info{};
  info.result = CU_GRAPH_EXEC_UPDATE_ERROR;
  CUresult r = update(hGraphExec, hGraph, &info);
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  if (updateResult_out != nullptr) *updateResult_out = info.result;
  return r;
}
SIM_API CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                      CUgraphExecUpdateResultInfo* resultInfo) {
  zero(resultInfo);
  SIM_ENTER_HANDLE(context);
  (void)context;
  return update(hGraphExec, hGraph, resultInfo);
}

static CUresult enabled_node(CUgraphExec hGraphExec, CUgraphNode hNode, Node** node) {
  State& s = state();
  GraphExec* exec = live_exec(s, hGraphExec);
  Node* original = live_node(s, hNode);
  if (exec == nullptr || original == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *node = find_in_exec(exec, *original);
  if (*node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeType t = (*node)->type();
  bool can = t == CU_GRAPH_NODE_TYPE_KERNEL || t == CU_GRAPH_NODE_TYPE_MEMSET ||
             t == CU_GRAPH_NODE_TYPE_MEMCPY;
  return can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                       unsigned int isEnabled) {
  SIM_ENTER(kInit);
  Lock lock(state().mutex);
  Node* node = nullptr;
  if (CUresult r = enabled_node(hGraphExec, hNode, &node)) return r;
  node->enabled = isEnabled != 0;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                       unsigned int* isEnabled) {
  SIM_ENTER(kInit);
  if (isEnabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(state().mutex);
  Node* node = nullptr;
  if (CUresult r = enabled_node(hGraphExec, hNode, &node)) return r;
  *isEnabled = node->enabled ? 1 : 0;
  return CUDA_SUCCESS;
}
