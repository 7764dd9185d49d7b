#include "proxy/launch/coalescer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/current_context.h"
#include "proxy/gpu/driver_wrappers.h"

namespace tube::proxy {

namespace {

uint64_t shape_of(const PlainLaunch& launch, size_t parameter_bytes) {
  const uint64_t values[] = {
      reinterpret_cast<uint64_t>(launch.function), uint64_t{launch.grid[0]} << 32 | launch.grid[1],
      uint64_t{launch.grid[2]} << 32 | launch.shared_bytes,
      uint64_t{launch.block[0]} << 32 | launch.block[1],
      uint64_t{launch.block[2]} << 32 | static_cast<uint32_t>(parameter_bytes)};
  return hash64(values, sizeof values);
}

}  // namespace

// Two launches of an instance never overlap, whatever their streams: one that still stands behind a
// wait would keep the next stream's work back.
Coalescer::~Coalescer() {
  if (graphs_.empty()) return;
  const bool can_leave =
      nodes_ == Nodes::kOfContext && driver_.cuStreamQuery(stream_) == CUDA_SUCCESS;
  for (Variants& variants : graphs_) {
    for (RunGraph* graph : variants.graphs) {
      if (graph == nullptr) continue;
      if (can_leave) all_graphs_.leave(*graph);
      else all_graphs_.drop(*graph);
    }
  }
}

std::span<const std::byte> Coalescer::parameters_of(const HeldLaunch& held,
                                                    const std::vector<std::byte>& store) const {
  return {store.data() + held.parameters_at, held.parameters_bytes};
}

CUresult Coalescer::launch(const PlainLaunch& launch, std::span<const std::byte> parameters,
                           uint64_t now, const Around* around) {
  const policies::LaunchRuns::Decision decision = runs_.launch(shape_of(launch, parameters.size()));
  if (decision.kind == policies::LaunchRuns::Kind::kPass) {
    const CUresult error = decision.release ? launch_held() : CUDA_SUCCESS;
    const CUresult own = around == nullptr
                             ? launch_now(launch, parameters)
                             : (*around)(stream_, [&] { return launch_now(launch, parameters); });
    return error != CUDA_SUCCESS ? error : own;
  }
  if (held_.empty()) held_since_ = now;
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
  for (Variants& variants : graphs_) drop(variants);
  graphs_.clear();
}

void Coalescer::keep(const PlainLaunch& launch, std::span<const std::byte> parameters) {
  const size_t at = (parameters_.size() + 15) & ~size_t{15};
  parameters_.resize(at + parameters.size());
  if (!parameters.empty())
    std::memcpy(parameters_.data() + at, parameters.data(), parameters.size());
  held_.push_back({launch, static_cast<uint32_t>(at), static_cast<uint32_t>(parameters.size())});
}

CUresult Coalescer::launch_now(const PlainLaunch& launch, std::span<const std::byte> parameters) {
  PackedParameters packed(parameters);
  return driver_.cuLaunchKernel(launch.function, launch.grid[0], launch.grid[1], launch.grid[2],
                                launch.block[0], launch.block[1], launch.block[2],
                                launch.shared_bytes, stream_, nullptr, packed.extra());
}

// All of them, whatever one answers: natively each is a call of its own. The first error is the one
// that counts.
CUresult Coalescer::launch_held() {
  CUresult first = CUDA_SUCCESS;
  for (const HeldLaunch& held : held_) {
    const CUresult error = launch_now(held.launch, parameters_of(held, parameters_));
    if (first == CUDA_SUCCESS) first = error;
  }
  held_are_out();
  return first;
}

void Coalescer::held_are_out() {
  held_.clear();
  parameters_.clear();
  if (parameters_.capacity() > kKeptBytes) parameters_.shrink_to_fit();
}

CUresult Coalescer::replay(uint32_t run) {
  RunGraph* graph = graph_for(run);
  if (graph == nullptr) return std::exchange(later_, false) ? launch_held() : give_up();
  all_graphs_.replayed(*graph);
  const CUresult error = driver_.cuGraphLaunch(graph->exec, stream_);
  if (error != CUDA_SUCCESS) {
    all_graphs_.drop(*graph);
    return give_up();
  }
  runs_.replayed();
  Stats::add(stats_.runs);
  Stats::add(stats_.run_launches, held_.size());
  held_are_out();
  return CUDA_SUCCESS;
}

// The run's graph that is nearest to what is held, with its parameters written into it; a new one
// while there is room for it. nullptr: launching one by one costs no more than what would have to
// be written, or the driver refuses.
RunGraph* Coalescer::graph_for(uint32_t run) {
  if (graphs_.size() <= run) graphs_.resize(run + 1);
  Variants& variants = graphs_[run];
  if (runs_.take_forgotten(run)) drop(variants);
  RunGraph** best = nullptr;
  RunGraph** room = nullptr;
  uint32_t least = static_cast<uint32_t>(held_.size()) / 2 + 2;
  for (RunGraph*& graph : variants.graphs) {
    if (graph == nullptr) {
      if (room == nullptr) room = &graph;
    } else if (const uint32_t changed = difference(*graph); changed < least) {
      best = &graph;
      least = changed;
    }
  }
  if (best == nullptr) return make_graph(variants, room);
  if (!update(**best)) {
    all_graphs_.drop(**best);
    return make_graph(variants, best);
  }
  variants.misses = 0;
  return *best;
}

// Without a place (nullptr) an older graph of the run makes room, and graphs of other runs do when
// the session has too many. Both only after some misses: what is dropped may be wanted next, and a
// run whose kernels change each time would pay for a new graph each time.
RunGraph* Coalescer::make_graph(Variants& variants, RunGraph** place) {
  if (RunGraph* left = take_left(variants, place)) return left;
  const uint64_t bytes = RunGraphs::bytes_of(held_.size(), parameters_.size());
  if ((place == nullptr || !all_graphs_.has_room(bytes)) && ++variants.misses < kMisses)
    return nullptr;
  // Making an instance is context-wide. A launch does not stand at the gate: natively it waits for
  // nothing, and the run can go out one by one.
  RunGraph* made = nullptr;
  const auto make = [&] { made = make_graph_now(variants, place, bytes); };
  later_ = !all_graphs_.if_gate_open(make);
  return made;
}

// Of a stream that is gone: the same kernels, in the same GPU's context.
RunGraph* Coalescer::take_left(Variants& variants, RunGraph** place) {
  if (place == nullptr || nodes_ != Nodes::kOfContext) return nullptr;
  const auto fits = [this](const RunGraph& graph) {
    return graph.gpu == gpu_ && difference(graph) <= held_.size();
  };
  RunGraph* found = all_graphs_.take_left(fits, place);
  if (found == nullptr) return nullptr;
  if (!update(*found)) {
    all_graphs_.drop(*found);
    return nullptr;
  }
  variants.misses = 0;
  return found;
}

RunGraph* Coalescer::make_graph_now(Variants& variants, RunGraph** place, uint64_t bytes) {
  if (place == nullptr) {
    place = &variants.graphs[variants.oldest];
    all_graphs_.drop(**place);
  }
  all_graphs_.make_room(bytes);
  variants.misses = 0;
  variants.oldest = (static_cast<uint32_t>(place - variants.graphs) + 1) % kVariants;
  RunGraph made;
  if (build(made) != CUDA_SUCCESS) {
    all_graphs_.destroy(made);
    return nullptr;
  }
  all_graphs_.add(std::move(made), place);
  return *place;
}

CUresult Coalescer::add_nodes(RunGraph& graph) {
  CUresult error = driver_.cuGraphCreate(&graph.graph, 0);
  for (const HeldLaunch& held : held_) {
    if (error != CUDA_SUCCESS) return error;
    PackedParameters packed(parameters_of(held, parameters_));
    const CUDA_KERNEL_NODE_PARAMS_v2 params = kernel_node(held.launch, packed);
    CUgraphNode node = nullptr;
    error = driver_.cuGraphAddKernelNode_v2(&node, graph.graph,
                                            graph.nodes.empty() ? nullptr : &graph.nodes.back(),
                                            graph.nodes.empty() ? 0 : 1, &params);
    graph.nodes.push_back(node);
  }
  return error;
}

// The stream is in a capture of the session's own; nothing else comes to it meanwhile.
CUresult Coalescer::capture_launches(RunGraph& graph) {
  for (const HeldLaunch& held : held_) {
    if (CUresult error = launch_now(held.launch, parameters_of(held, parameters_));
        error != CUDA_SUCCESS)
      return error;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode* last = nullptr;
    const CUgraphEdgeData* edges = nullptr;
    size_t count = 0;
    if (CUresult error = driver_.cuStreamGetCaptureInfo_v3(stream_, &status, nullptr, nullptr,
                                                           &last, &edges, &count);
        error != CUDA_SUCCESS)
      return error;
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || count != 1) return CUDA_ERROR_UNKNOWN;
    graph.nodes.push_back(*last);
  }
  return CUDA_SUCCESS;
}

CUresult Coalescer::capture_nodes(RunGraph& graph) {
  if (CUresult error = driver_.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED);
      error != CUDA_SUCCESS)
    return error;
  const CUresult error = capture_launches(graph);
  const CUresult ended = driver_.cuStreamEndCapture(stream_, &graph.graph);
  return error != CUDA_SUCCESS ? error : ended;
}

CUresult Coalescer::build(RunGraph& graph) {
  CUresult error = nodes_ == Nodes::kOfStream ? capture_nodes(graph) : add_nodes(graph);
  if (error == CUDA_SUCCESS)
    error = driver_.cuGraphInstantiateWithFlags(&graph.exec, graph.graph, 0);
  if (error != CUDA_SUCCESS) return error;
  graph.gpu = gpu_;
  graph.launches = held_;
  graph.parameters = parameters_;
  return CUDA_SUCCESS;
}

// How many launches' parameters differ; no less than all when the graph is of other kernels. A
// shape is a hash: here it is made sure.
uint32_t Coalescer::difference(const RunGraph& graph) const {
  const auto count = static_cast<uint32_t>(held_.size());
  if (graph.launches.size() != count) return count + 2;
  uint32_t changed = 0;
  for (size_t i = 0; i < count; ++i) {
    const HeldLaunch& now = held_[i];
    const HeldLaunch& then = graph.launches[i];
    if (!(now.launch == then.launch) || now.parameters_bytes != then.parameters_bytes ||
        now.parameters_at != then.parameters_at)
      return count + 2;
    const std::span<const std::byte> bytes = parameters_of(now, parameters_);
    changed +=
        !bytes.empty() &&
        std::memcmp(bytes.data(), parameters_of(then, graph.parameters).data(), bytes.size()) != 0;
  }
  return changed;
}

// A captured node keeps the function and context that the capture gave it; the driver wants that
// context to be current.
CUresult Coalescer::set_parameters(const RunGraph& graph, size_t node, const PlainLaunch& launch,
                                   PackedParameters& packed) {
  CUDA_KERNEL_NODE_PARAMS_v2 params = kernel_node(launch, packed);
  if (nodes_ == Nodes::kOfStream) {
    const CUresult error = driver_.cuGraphKernelNodeGetParams_v2(graph.nodes[node], &params);
    if (error != CUDA_SUCCESS) return error;
    params.kernelParams = nullptr;
    params.extra = packed.extra();
  }
  const CurrentContext current(driver_, nodes_ == Nodes::kOfStream ? params.ctx : nullptr);
  return driver_.cuGraphExecKernelNodeSetParams_v2(graph.exec, graph.nodes[node], &params);
}

// False when the driver does not take the parameters.
bool Coalescer::update(RunGraph& graph) {
  for (size_t i = 0; i < held_.size(); ++i) {
    const HeldLaunch& now = held_[i];
    const std::span<const std::byte> bytes = parameters_of(now, parameters_);
    if (bytes.empty() ||
        std::memcmp(bytes.data(), parameters_of(now, graph.parameters).data(), bytes.size()) == 0)
      continue;
    PackedParameters packed(bytes);
    if (set_parameters(graph, i, now.launch, packed) != CUDA_SUCCESS) return false;
    std::memcpy(graph.parameters.data() + now.parameters_at, bytes.data(), bytes.size());
  }
  return true;
}

void Coalescer::drop(Variants& variants) {
  for (RunGraph* graph : variants.graphs) {
    if (graph != nullptr) all_graphs_.drop(*graph);
  }
}

}  // namespace tube::proxy
