#include "proxy/coalescer.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"

namespace tube::proxy {

namespace {

// The packed parameters as the driver takes them; lives as long as the call.
struct Packed {
  size_t bytes;
  void* extra[5];
  explicit Packed(std::span<const std::byte> parameters)
      : bytes(parameters.size()),
        extra{CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(parameters.data()), CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END} {}
  void** get() { return bytes != 0 ? extra : nullptr; }
};

CUDA_KERNEL_NODE_PARAMS_v2 node_of(const PlainLaunch& launch, Packed& packed) {
  CUDA_KERNEL_NODE_PARAMS_v2 node{};
  if (launch.is_library_kernel) {
    node.kern = reinterpret_cast<CUkernel>(launch.function);
  } else {
    node.func = launch.function;
  }
  node.gridDimX = launch.grid[0];
  node.gridDimY = launch.grid[1];
  node.gridDimZ = launch.grid[2];
  node.blockDimX = launch.block[0];
  node.blockDimY = launch.block[1];
  node.blockDimZ = launch.block[2];
  node.sharedMemBytes = launch.shared_bytes;
  node.extra = packed.get();
  return node;
}

uint64_t shape_of(const PlainLaunch& launch, size_t parameter_bytes) {
  const uint64_t values[] = {reinterpret_cast<uint64_t>(launch.function),
                             uint64_t{launch.grid[0]} << 32 | launch.grid[1],
                             uint64_t{launch.grid[2]} << 32 | launch.shared_bytes,
                             uint64_t{launch.block[0]} << 32 | launch.block[1],
                             uint64_t{launch.block[2]} << 32 | static_cast<uint32_t>(parameter_bytes)};
  return hash64(values, sizeof values);
}

}  // namespace

std::span<const std::byte> Coalescer::parameters_of(const Held& held, const std::vector<std::byte>& store) const {
  return {store.data() + held.parameters_at, held.parameters_bytes};
}

CUresult Coalescer::launch(const PlainLaunch& launch, std::span<const std::byte> parameters, CUstream stream) {
  stream_ = stream;
  const policies::LaunchRuns::Decision decision = runs_.launch(shape_of(launch, parameters.size()));
  if (decision.kind == policies::LaunchRuns::Kind::kPass) {
    const CUresult error = decision.release ? launch_held() : CUDA_SUCCESS;
    return error != CUDA_SUCCESS ? error : launch_now(launch, parameters);
  }
  keep(launch, parameters);
  return decision.kind == policies::LaunchRuns::Kind::kReplay ? replay(decision.run) : CUDA_SUCCESS;
}

CUresult Coalescer::give_up() {
  runs_.give_up();
  return launch_held();
}

CUresult Coalescer::boundary() {
  (void)runs_.boundary();
  return held_.empty() ? CUDA_SUCCESS : launch_held();
}

void Coalescer::forget() {
  runs_.forget();
  for (Graph& graph : graphs_) drop(graph);
}

void Coalescer::keep(const PlainLaunch& launch, std::span<const std::byte> parameters) {
  const size_t at = (parameters_.size() + 15) & ~size_t{15};
  parameters_.resize(at + parameters.size());
  if (!parameters.empty()) std::memcpy(parameters_.data() + at, parameters.data(), parameters.size());
  held_.push_back({launch, static_cast<uint32_t>(at), static_cast<uint32_t>(parameters.size())});
}

CUresult Coalescer::launch_now(const PlainLaunch& launch, std::span<const std::byte> parameters) {
  Packed packed(parameters);
  return driver_.cuLaunchKernel(launch.function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0], launch.block[1],
                                launch.block[2], launch.shared_bytes, stream_, nullptr, packed.get());
}

// All of them, whatever one answers: natively each is a call of its own. The first error is the one that counts.
CUresult Coalescer::launch_held() {
  CUresult first = CUDA_SUCCESS;
  for (const Held& held : held_) {
    const CUresult error = launch_now(held.launch, parameters_of(held, parameters_));
    if (first == CUDA_SUCCESS) first = error;
  }
  held_.clear();
  parameters_.clear();
  return first;
}

CUresult Coalescer::replay(uint32_t run) {
  if (graphs_.size() <= run) graphs_.resize(run + 1);
  Graph& graph = graphs_[run];
  if (runs_.take_forgotten(run) || graph.stream != stream_) drop(graph);
  if (graph.exec == nullptr ? build(graph) != CUDA_SUCCESS : !update(graph)) {
    drop(graph);
    return give_up();
  }
  const CUresult error = driver_.cuGraphLaunch(graph.exec, stream_);
  if (error != CUDA_SUCCESS) {
    drop(graph);
    return give_up();
  }
  runs_.replayed();
  Stats::add(stats_.runs);
  Stats::add(stats_.run_launches, held_.size());
  held_.clear();
  parameters_.clear();
  return CUDA_SUCCESS;
}

CUresult Coalescer::build(Graph& graph) {
  CUresult error = driver_.cuGraphCreate(&graph.graph, 0);
  for (const Held& held : held_) {
    if (error != CUDA_SUCCESS) return error;
    Packed packed(parameters_of(held, parameters_));
    const CUDA_KERNEL_NODE_PARAMS_v2 params = node_of(held.launch, packed);
    CUgraphNode node = nullptr;
    error = driver_.cuGraphAddKernelNode_v2(&node, graph.graph, graph.nodes.empty() ? nullptr : &graph.nodes.back(), graph.nodes.empty() ? 0 : 1, &params);
    graph.nodes.push_back(node);
  }
  if (error == CUDA_SUCCESS) error = driver_.cuGraphInstantiateWithFlags(&graph.exec, graph.graph, 0);
  if (error != CUDA_SUCCESS) return error;
  graph.stream = stream_;
  graph.launches = held_;
  graph.parameters = parameters_;
  return CUDA_SUCCESS;
}

bool Coalescer::update(Graph& graph) {
  if (graph.launches.size() != held_.size()) return false;
  uint32_t changed = 0;
  for (size_t i = 0; i < held_.size(); ++i) {
    const Held& now = held_[i];
    const Held& then = graph.launches[i];
    // A shape is a hash: here it is made sure.
    if (!(now.launch == then.launch) || now.parameters_bytes != then.parameters_bytes || now.parameters_at != then.parameters_at) return false;
    const auto bytes = parameters_of(now, parameters_);
    if (std::memcmp(bytes.data(), parameters_of(then, graph.parameters).data(), bytes.size()) == 0) continue;
    if (++changed > held_.size() / 2 + 1) return false;
    Packed packed(bytes);
    const CUDA_KERNEL_NODE_PARAMS_v2 params = node_of(now.launch, packed);
    if (driver_.cuGraphExecKernelNodeSetParams_v2(graph.exec, graph.nodes[i], &params) != CUDA_SUCCESS) return false;
    std::memcpy(graph.parameters.data() + then.parameters_at, bytes.data(), bytes.size());
  }
  return true;
}

// The driver keeps what a running graph needs until it has ended.
void Coalescer::drop(Graph& graph) {
  if (graph.exec != nullptr) driver_.cuGraphExecDestroy(graph.exec);
  if (graph.graph != nullptr) driver_.cuGraphDestroy(graph.graph);
  graph = Graph{};
}

}  // namespace tube::proxy
