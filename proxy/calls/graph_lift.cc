#include "proxy/calls/graph_lift.h"

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "policies/copy_way.h"
#include "proxy/calls/graph_steps.h"
#include "proxy/session/session.h"

namespace tube::proxy {

LiftedCopies::~LiftedCopies() {
  if (end_ != nullptr) (void)driver_.cuEventDestroy_v2(end_);
}

LiftedCopy* LiftedCopies::find(CUgraphNode node) {
  LiftedCopy *updated = nullptr, *made = nullptr;
  for_each([&](LiftedCopy& copy) {
    if (copy.updated == node) updated = &copy;
    if (copy.made == node) made = &copy;
  });
  return updated != nullptr ? updated : made;
}

namespace {

// Bytes in a row.
std::optional<LiftedCopy> row_of(const CUDA_MEMCPY3D& p) {
  const bool row = p.Height <= 1 && p.Depth <= 1 && p.srcMemoryType != CU_MEMORYTYPE_ARRAY &&
                   p.dstMemoryType != CU_MEMORYTYPE_ARRAY &&
                   (p.srcY | p.srcZ | p.dstY | p.dstZ) == 0;
  if (!row) return std::nullopt;
  const auto address = [](CUmemorytype type, const void* host, CUdeviceptr device) {
    return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
  };
  return LiftedCopy{.dst = address(p.dstMemoryType, p.dstHost, p.dstDevice) + p.dstXInBytes,
                    .src = address(p.srcMemoryType, p.srcHost, p.srcDevice) + p.srcXInBytes,
                    .bytes = p.WidthInBytes};
}

// Between pinned memory of the client and a GPU, and not small.
bool worth_lifting(Session& session, const LiftedCopy& copy) {
  if (copy.bytes < session.copies().least_lifted()) return false;
  const Range* const dst = session.ranges().covering(copy.dst, copy.bytes);
  const Range* const src = session.ranges().covering(copy.src, copy.bytes);
  if (dst == nullptr || src == nullptr) return false;
  const CopyKind kind = Copies::kind_of(*dst, *src);
  return kind == CopyKind::kUpload || kind == CopyKind::kDownload;
}

bool nodes_of(const Driver& driver, CUgraph graph, std::vector<CUgraphNode>* nodes) {
  size_t count = 0;
  if (driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return false;
  nodes->resize(count);
  return driver.cuGraphGetNodes(graph, nodes->data(), &count) == CUDA_SUCCESS;
}

// The graph's nodes and edges as numbers.
struct Shape {
  std::vector<CUgraphNode> nodes;
  std::vector<std::pair<size_t, size_t>> edges;
  std::vector<std::optional<LiftedCopy>> copies;  // of the nodes that could be lifted
};

// False: nothing of this graph is lifted. Graphs with allocations are launched with a call that
// waits for the driver's answer; edges with types mean more than "after".
bool read_nodes(Session& session, CUgraph graph, Shape* shape) {
  const Driver& driver = session.driver();
  if (!nodes_of(driver, graph, &shape->nodes)) return false;
  bool any = false;
  for (CUgraphNode node : shape->nodes) {
    CUgraphNodeType type{};
    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return false;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE) return false;
    auto& copy = shape->copies.emplace_back();
    CUDA_MEMCPY3D params{};
    if (type == CU_GRAPH_NODE_TYPE_MEMCPY &&
        driver.cuGraphMemcpyNodeGetParams(node, &params) == CUDA_SUCCESS)
      copy = row_of(params);
    if (copy && !worth_lifting(session, *copy)) copy.reset();
    any = any || copy;
  }
  return any;
}

bool read_edges(const Driver& driver, CUgraph graph, Shape* shape) {
  size_t count = 0;
  if (driver.cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count) != CUDA_SUCCESS)
    return false;
  std::vector<CUgraphNode> from(count), to(count);
  std::vector<CUgraphEdgeData> data(count);
  if (count != 0 &&
      driver.cuGraphGetEdges_v2(graph, from.data(), to.data(), data.data(), &count) != CUDA_SUCCESS)
    return false;
  std::unordered_map<CUgraphNode, size_t> number;
  for (size_t i = 0; i < shape->nodes.size(); ++i) number[shape->nodes[i]] = i;
  for (size_t i = 0; i < count; ++i) {
    if (data[i].type != 0 || data[i].from_port != 0) return false;
    shape->edges.emplace_back(number[from[i]], number[to[i]]);
  }
  return true;
}

// The copies that nothing comes before but such copies, in an order that the edges allow.
// `taken`: those that are lifted already; set for these.
std::vector<size_t> outermost(const Shape& shape, std::vector<bool>& taken) {
  std::vector<size_t> waits(shape.nodes.size());
  std::vector<std::vector<size_t>> followers(shape.nodes.size());
  for (const auto& [from, to] : shape.edges) {
    ++waits[to];
    followers[from].push_back(to);
  }
  std::vector<size_t> order;
  const auto take = [&](size_t at) {
    if (waits[at] != 0 || taken[at] || !shape.copies[at]) return;
    taken[at] = true;
    order.push_back(at);
  };
  for (size_t i = 0; i < shape.nodes.size(); ++i) take(i);
  for (size_t done = 0; done < order.size(); ++done) {
    for (size_t follower : followers[order[done]]) {
      --waits[follower];
      take(follower);
    }
  }
  return order;
}

// What the graph begins and ends with. Turns the edges round.
void outer_copies(Shape& shape, std::vector<size_t>* before, std::vector<size_t>* after) {
  std::vector<bool> taken(shape.nodes.size());
  *before = outermost(shape, taken);
  for (auto& [from, to] : shape.edges) std::swap(from, to);
  *after = outermost(shape, taken);
  std::reverse(after->begin(), after->end());
}

}  // namespace

std::unique_ptr<LiftedCopies> lift_copies(Session& session, CUgraphExec exec, CUgraph graph,
                                          uint64_t flags) {
  const Driver& driver = session.driver();
  Shape shape;
  if (session.copies().least_lifted() == 0 ||
      (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0 ||
      !read_nodes(session, graph, &shape) || !read_edges(driver, graph, &shape))
    return nullptr;
  std::vector<size_t> before, after;
  outer_copies(shape, &before, &after);
  auto lifted = std::make_unique<LiftedCopies>(driver);
  lifted->nodes = shape.nodes.size();
  bool all = true;
  const auto lift = [&](const std::vector<size_t>& which, std::vector<LiftedCopy>& to) {
    for (size_t at : which) {
      all = all && driver.cuGraphNodeSetEnabled(exec, shape.nodes[at], 0) == CUDA_SUCCESS;
      LiftedCopy& copy = to.emplace_back(*shape.copies[at]);
      copy.number = at;
      copy.made = copy.updated = shape.nodes[at];
    }
  };
  lift(before, lifted->before);
  lift(after, lifted->after);
  if (all) return before.empty() && after.empty() ? nullptr : std::move(lifted);
  // All or none: they keep their order only among themselves.
  lifted->for_each(
      [&](const LiftedCopy& copy) { (void)driver.cuGraphNodeSetEnabled(exec, copy.made, 1); });
  return nullptr;
}

CUgraphExecUpdateResult update_lifted(Session& session, CUgraph graph, LiftedCopies& lifted) {
  const Driver& driver = session.driver();
  Shape shape;
  if (!nodes_of(driver, graph, &shape.nodes) || shape.nodes.size() != lifted.nodes)
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;  // as far as this is concerned: the driver will say no
  shape.copies.resize(shape.nodes.size());
  auto result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  lifted.for_each([&](LiftedCopy& copy) {
    CUgraphNodeType type{};
    CUDA_MEMCPY3D params{};
    const CUgraphNode node = shape.nodes[copy.number];
    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS ||
        type != CU_GRAPH_NODE_TYPE_MEMCPY) {
      result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
      return;
    }
    auto& row = shape.copies[copy.number];
    if (driver.cuGraphMemcpyNodeGetParams(node, &params) == CUDA_SUCCESS) row = row_of(params);
    if (!row) {
      result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
      return;
    }
    copy.updated = node;
    copy.change(*row);
  });
  if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
  // The same place in the graph, too: nodes may have been made in another order.
  std::vector<size_t> before, after;
  if (!read_edges(driver, graph, &shape)) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  outer_copies(shape, &before, &after);
  const auto same = [](const std::vector<size_t>& numbers, const std::vector<LiftedCopy>& copies) {
    return std::equal(numbers.begin(), numbers.end(), copies.begin(), copies.end(),
                      [](size_t number, const LiftedCopy& copy) { return number == copy.number; });
  };
  return same(before, lifted.before) && same(after, lifted.after)
             ? CU_GRAPH_EXEC_UPDATE_SUCCESS
             : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
}

CUresult change_lifted(Session& session, CUgraphExec exec, CUcontext context, LiftedCopy& copy,
                       CUgraphNode node, const CUDA_MEMCPY3D& params) {
  const Driver& driver = session.driver();
  const auto row = row_of(params);
  if (!row) return CUDA_ERROR_INVALID_VALUE;  // as the driver says of a copy that was a row
  if (CUresult error = driver.cuGraphExecMemcpyNodeSetParams(exec, node, &params, context);
      error != CUDA_SUCCESS)
    return error;
  copy.change(*row);
  return driver.cuGraphNodeSetEnabled(exec, node, 0);
}

namespace {

CUresult issue(Session& session, const StreamOp& op, const LiftedCopy& copy, uint64_t exec,
               bool* held) {
  const Range* const src = session.ranges().covering(copy.src, copy.bytes);
  if (src == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Range* dst = nullptr;
  if (CUresult error = session.check_target_range(copy.dst, copy.bytes, &dst);
      error != CUDA_SUCCESS)
    return error;
  return session.copies().issue({.kind = Copies::kind_of(*dst, *src),
                                 .stream = op.stream,
                                 .state = op.state,
                                 .dst = {.address = copy.dst, .range = dst},
                                 .src = {.address = copy.src, .range = src},
                                 .bytes = copy.bytes,
                                 .holds = ParkKeys::object(wire::NamedKind::kExec, exec)},
                                held);
}

}  // namespace

CUresult launch_lifted(Session& session, const Decoded<wire::cuGraphLaunch>& call, CUgraphExec exec,
                       LiftedCopies& lifted) {
  const Driver& driver = session.driver();
  if (lifted.sequence_ != session.record().sequence) {
    lifted.sequence_ = session.record().sequence;
    lifted.next_ = 0;
  }
  const size_t graph = lifted.before.size(), count = graph + 1 + lifted.after.size();
  StreamOp op = session.stream_op(call->hStream);
  if (op.error != CUDA_SUCCESS) return op.error;
  CUresult error = CUDA_SUCCESS;
  if (lifted.next_ == 0 && lifted.end_ != nullptr && !lifted.ended_on(op))
    error = driver.cuStreamWaitEvent(op.stream, lifted.end_, 0);
  while (error == CUDA_SUCCESS && lifted.next_ < count) {
    const size_t at = lifted.next_++;
    if (at == graph) {
      LaunchPass pass = look_at_graph(session, call);
      if (pass.held()) {
        --lifted.next_;
        session.come_again();
        return error;
      }
      error = launch_graph(session, call, exec, op, pass);
      continue;
    }
    const LiftedCopy& copy = at < graph ? lifted.before[at] : lifted.after[at - graph - 1];
    bool held = false;
    if (copy.enabled) error = issue(session, op, copy, call->hGraph, &held);
    if (!held) continue;
    session.come_again();
    return error;
  }
  if (error == CUDA_SUCCESS) error = lifted.record_end(op);
  lifted.sequence_ = 0;
  return error;
}

// The driver gives a new stream the handle of one that has ended, whose work may go on.
bool LiftedCopies::ended_on(const StreamOp& op) const {
  return stream_ == op.stream && stream_id_ == op.state->id && context_ == op.state->context;
}

CUresult LiftedCopies::record_end(const StreamOp& op) {
  if (end_ != nullptr && context_ != op.state->context)
    (void)driver_.cuEventDestroy_v2(std::exchange(end_, nullptr));
  context_ = op.state->context;
  stream_ = op.stream;
  stream_id_ = op.state->id;
  if (end_ == nullptr) {
    if (CUresult error = driver_.cuEventCreate(&end_, CU_EVENT_DISABLE_TIMING);
        error != CUDA_SUCCESS)
      return error;
  }
  return driver_.cuEventRecord(end_, op.stream);
}

namespace {

LiftedCopy* copy_of(Object& exec, CUgraphNode node) {
  const auto* state = static_cast<const ExecState*>(exec.state.get());
  return state != nullptr && state->lifted != nullptr ? state->lifted->find(node) : nullptr;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::cuGraphNodeSetEnabled>& call,
                Reply<wire::cuGraphNodeSetEnabled>&) {
  Object* exec = session.objects().find(wire::Kind::kGraphExec, call->hGraphExec);
  const auto node = session.resolve<CUgraphNode>(wire::Kind::kGraphNode, call->hNode);
  if (exec == nullptr || node.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  LiftedCopy* copy = copy_of(*exec, node.handle);
  if (copy == nullptr)
    return session.driver().cuGraphNodeSetEnabled(exec->handle<CUgraphExec>(), node.handle,
                                                  static_cast<unsigned>(call->isEnabled));
  copy->enabled = call->isEnabled != 0;
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::cuGraphNodeGetEnabled>& call,
                Reply<wire::cuGraphNodeGetEnabled>& reply) {
  Object* exec = session.objects().find(wire::Kind::kGraphExec, call->hGraphExec);
  const auto node = session.resolve<CUgraphNode>(wire::Kind::kGraphNode, call->hNode);
  if (exec == nullptr || node.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  const LiftedCopy* copy = copy_of(*exec, node.handle);
  unsigned enabled = copy != nullptr && copy->enabled ? 1 : 0;
  if (copy == nullptr) {
    if (CUresult error = session.driver().cuGraphNodeGetEnabled(exec->handle<CUgraphExec>(),
                                                                node.handle, &enabled);
        error != CUDA_SUCCESS)
      return error;
  }
  reply->isEnabled = enabled;
  return CUDA_SUCCESS;
}

}  // namespace tube::proxy
