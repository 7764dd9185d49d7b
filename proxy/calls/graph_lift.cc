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
  for (auto* copies : {&before, &after}) {
    for (LiftedCopy& copy : *copies)
      if (copy.node == node) return &copy;
  }
  return nullptr;
}

namespace {

// Bytes in a row between pinned memory of the client and a GPU.
std::optional<LiftedCopy> row_of(Session& session, CUgraphNode node, const CUDA_MEMCPY3D& p) {
  const bool row = p.Height <= 1 && p.Depth <= 1 && p.srcMemoryType != CU_MEMORYTYPE_ARRAY &&
                   p.dstMemoryType != CU_MEMORYTYPE_ARRAY &&
                   (p.srcY | p.srcZ | p.dstY | p.dstZ) == 0;
  if (!row || p.WidthInBytes < session.copies().least_lifted()) return std::nullopt;
  const auto address = [](CUmemorytype type, const void* host, CUdeviceptr device) {
    return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
  };
  LiftedCopy copy{.node = node,
                  .dst = address(p.dstMemoryType, p.dstHost, p.dstDevice) + p.dstXInBytes,
                  .src = address(p.srcMemoryType, p.srcHost, p.srcDevice) + p.srcXInBytes,
                  .bytes = p.WidthInBytes};
  const Range* const dst = session.ranges().covering(copy.dst, copy.bytes);
  const Range* const src = session.ranges().covering(copy.src, copy.bytes);
  if (dst == nullptr || src == nullptr) return std::nullopt;
  const CopyKind kind = Copies::kind_of(*dst, *src);
  if (kind != CopyKind::kUpload && kind != CopyKind::kDownload) return std::nullopt;
  return copy;
}

// The graph's nodes and edges as numbers.
struct Shape {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphNodeType> types;
  std::vector<std::pair<size_t, size_t>> edges;
  std::vector<std::optional<LiftedCopy>> copies;  // of the nodes that could be lifted
};

// False: nothing of this graph is lifted. Graphs with allocations are launched with a call that
// waits for the driver's answer; edges with types mean more than "after".
bool read_nodes(Session& session, CUgraph graph, Shape* shape) {
  const Driver& driver = session.driver();
  size_t count = 0;
  if (driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return false;
  shape->nodes.resize(count);
  if (driver.cuGraphGetNodes(graph, shape->nodes.data(), &count) != CUDA_SUCCESS) return false;
  bool any = false;
  for (CUgraphNode node : shape->nodes) {
    CUgraphNodeType& type = shape->types.emplace_back();
    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return false;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE) return false;
    auto& copy = shape->copies.emplace_back();
    CUDA_MEMCPY3D params{};
    if (type == CU_GRAPH_NODE_TYPE_MEMCPY &&
        driver.cuGraphMemcpyNodeGetParams(node, &params) == CUDA_SUCCESS)
      copy = row_of(session, node, params);
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

}  // namespace

std::unique_ptr<LiftedCopies> lift_copies(Session& session, CUgraphExec exec, CUgraph graph,
                                          uint64_t flags, const LiftedCopies* known) {
  const Driver& driver = session.driver();
  if (session.copies().least_lifted() == 0 ||
      (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
    return nullptr;
  Shape shape;
  std::vector<size_t> before, after;
  const bool can = read_nodes(session, graph, &shape) && read_edges(driver, graph, &shape);
  std::vector<bool> taken(shape.nodes.size());
  if (can) {
    before = outermost(shape, taken);
    for (auto& [from, to] : shape.edges) std::swap(from, to);
    after = outermost(shape, taken);
    std::reverse(after.begin(), after.end());
  }
  // All or none: they keep their order only among themselves.
  bool all = can;
  for (const auto* which : {&before, &after}) {
    for (size_t at : *which)
      all = all && driver.cuGraphNodeSetEnabled(exec, shape.nodes[at], 0) == CUDA_SUCCESS;
  }
  // What was lifted of an earlier graph, or could not be of this one, runs in the instance.
  for (size_t i = 0; (known != nullptr || !all) && i < shape.types.size(); ++i) {
    if (shape.types[i] == CU_GRAPH_NODE_TYPE_MEMCPY && !(all && taken[i]))
      (void)driver.cuGraphNodeSetEnabled(exec, shape.nodes[i], 1);
  }
  if (!all || before.size() + after.size() == 0) return nullptr;
  auto lifted = std::make_unique<LiftedCopies>(driver);
  for (size_t at : before) lifted->before.push_back(*shape.copies[at]);
  for (size_t at : after) lifted->after.push_back(*shape.copies[at]);
  return lifted;
}

bool change_lifted(Session& session, CUgraphExec exec, LiftedCopies& lifted, CUgraphNode node,
                   const CUDA_MEMCPY3D& params) {
  const Driver& driver = session.driver();
  LiftedCopy* copy = lifted.find(node);
  if (copy == nullptr) return true;
  if (const auto row = row_of(session, node, params)) {
    const bool enabled = copy->enabled;
    *copy = *row;
    copy->enabled = enabled;
    return driver.cuGraphNodeSetEnabled(exec, node, 0) == CUDA_SUCCESS;
  }
  for (const auto* copies : {&lifted.before, &lifted.after}) {
    for (const LiftedCopy& each : *copies)
      (void)driver.cuGraphNodeSetEnabled(exec, each.node, each.enabled ? 1 : 0);
  }
  return false;
}

namespace {

CUresult issue(Session& session, const StreamOp& op, const LiftedCopy& copy, uint64_t exec,
               bool* held) {
  const Range* const dst = session.ranges().covering(copy.dst, copy.bytes);
  const Range* const src = session.ranges().covering(copy.src, copy.bytes);
  if (dst == nullptr || src == nullptr) return CUDA_ERROR_INVALID_VALUE;
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
  if (lifted.next_ == 0 && lifted.end_ != nullptr && lifted.stream_ != op.stream)
    error = driver.cuStreamWaitEvent(op.stream, lifted.end_, 0);
  while (error == CUDA_SUCCESS && lifted.next_ < count) {
    const size_t at = lifted.next_++;
    if (at == graph) {
      error = launch_graph(session, call, exec, op);
      continue;
    }
    const LiftedCopy& copy = at < graph ? lifted.before[at] : lifted.after[at - graph - 1];
    bool held = false;
    if (copy.enabled) error = issue(session, op, copy, call->hGraph, &held);
    if (!held) continue;
    session.come_again();
    return error;
  }
  if (error == CUDA_SUCCESS && lifted.end_ == nullptr)
    error = driver.cuEventCreate(&lifted.end_, CU_EVENT_DISABLE_TIMING);
  if (error == CUDA_SUCCESS) error = driver.cuEventRecord(lifted.end_, op.stream);
  lifted.stream_ = op.stream;
  lifted.sequence_ = 0;
  return error;
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
