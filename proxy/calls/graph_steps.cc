#include "proxy/calls/graph_steps.h"

#include <cstring>

#include "protocol/driver_table.gen.h"
#include "proxy/calls/copy_region.h"
#include "proxy/calls/graph_lift.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"
#include "sharedmem/words.h"

namespace tube::proxy {

namespace {

constexpr int kMaxDepth = 64;  // of child graphs in child graphs; the driver's own limit is lower

struct StepOps {
  CUstreamBatchMemOpParams ops[2] = {};
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
  StepOps(CUcontext context, CUdeviceptr word, uint64_t tag) {
    ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    ops[0].writeValue.address = word;
    ops[0].writeValue.value64 = tag;
    ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    ops[1].waitValue.address = word;
    ops[1].waitValue.value64 = wire::kStepDone;
    ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    params.ctx = context;
    params.count = 2;
    params.paramArray = ops;
  }
  StepOps(const StepOps&) = delete;
  StepOps& operator=(const StepOps&) = delete;
};

// Word 0 is never handed out: what a step names until its graph becomes an instance.
CUdeviceptr no_place(const Session& session) { return session.word_address(0); }

bool operation_of(Session& session, CUgraphNode node, uint64_t* tag) {
  CUDA_BATCH_MEM_OP_NODE_PARAMS p{};
  if (session.driver().cuGraphBatchMemOpNodeGetParams(node, &p) != CUDA_SUCCESS || p.count != 2)
    return false;
  const auto& write = p.paramArray[0].writeValue;
  if (p.paramArray[0].operation != CU_STREAM_MEM_OP_WRITE_VALUE_64) return false;
  if (write.address - session.word_address(0) >= uint64_t{abi::kWordCount} * 8) return false;
  *tag = write.value64;
  return true;
}

uint64_t bytes_of(const CUDA_MEMCPY3D& p) { return uint64_t{p.WidthInBytes} * p.Height * p.Depth; }

// The two nodes of a copy's child graph.
bool copy_step_of(Session& session, CUgraphNode node, Step* step) {
  const Driver& driver = session.driver();
  CUgraph body = nullptr;
  CUgraphNode nodes[2] = {};
  size_t count = 2, total = 0;
  if (driver.cuGraphChildGraphNodeGetGraph(node, &body) != CUDA_SUCCESS) return false;
  if (driver.cuGraphGetNodes(body, nullptr, &total) != CUDA_SUCCESS || total != 2) return false;
  if (driver.cuGraphGetNodes(body, nodes, &count) != CUDA_SUCCESS) return false;
  for (int i = 0; i < 2; ++i) {
    CUgraphNodeType type{}, other{};
    if (driver.cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS ||
        driver.cuGraphNodeGetType(nodes[1 - i], &other) != CUDA_SUCCESS)
      return false;
    if (type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP || other != CU_GRAPH_NODE_TYPE_MEMCPY) continue;
    if (!operation_of(session, nodes[i], &step->tag) || !wire::is_copy_step(step->tag))
      return false;
    CUDA_MEMCPY3D copy{};
    size_t before = 0;
    if (driver.cuGraphMemcpyNodeGetParams(nodes[1 - i], &copy) != CUDA_SUCCESS) return false;
    if (driver.cuGraphNodeGetDependencies_v2(nodes[1 - i], nullptr, nullptr, &before) !=
        CUDA_SUCCESS)
      return false;
    step->operation = nodes[i];
    step->copy = nodes[1 - i];
    step->direction = before != 0 ? wire::StepDirection::kToGpu : wire::StepDirection::kFromGpu;
    step->staging_bytes = bytes_of(copy);
    return true;
  }
  return false;
}

void put_staging(CUDA_MEMCPY3D& p, wire::StepDirection direction, uint64_t staging) {
  void* host = reinterpret_cast<void*>(staging);
  if (direction == wire::StepDirection::kToGpu) {
    p.srcXInBytes = p.srcY = p.srcZ = p.srcLOD = 0;
    p.srcMemoryType = CU_MEMORYTYPE_HOST;
    p.srcHost = host;
    p.srcDevice = 0;
    p.srcArray = nullptr;
    p.srcPitch = p.WidthInBytes;
    p.srcHeight = p.Height;
  } else {
    p.dstXInBytes = p.dstY = p.dstZ = p.dstLOD = 0;
    p.dstMemoryType = CU_MEMORYTYPE_HOST;
    p.dstHost = host;
    p.dstDevice = 0;
    p.dstArray = nullptr;
    p.dstPitch = p.WidthInBytes;
    p.dstHeight = p.Height;
  }
}

// The copy of a step: the GPU's side twice, until there is staging.
CUresult gpu_copy(Session& session, const wire::GraphStepParams& untrusted, uint64_t staging,
                  CUDA_MEMCPY3D* copy) {
  for (uint64_t extent : untrusted.extent) {
    if (extent == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  const CopySide side{untrusted.kind, untrusted.address, untrusted.pitch, untrusted.height,
                      untrusted.origin};
  if (untrusted.kind == wire::SideKind::kChunk) return CUDA_ERROR_INVALID_VALUE;
  CopyRegion region;
  if (CUresult error = build_copy(session, side, side, untrusted.extent, &region);
      error != CUDA_SUCCESS)
    return error;
  *copy = region.copy;
  if (staging != 0) put_staging(*copy, untrusted.direction, staging);
  return CUDA_SUCCESS;
}

CUresult check_step(const wire::GraphStepParams& untrusted) {
  if (!wire::is_valid(untrusted) || !wire::valid_step_tag(untrusted.tag))
    return CUDA_ERROR_INVALID_VALUE;
  const bool copies = untrusted.direction != wire::StepDirection::kAlone;
  return copies && !wire::is_copy_step(untrusted.tag) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// Memory operations are of the GPU's shared context: a graph with one of a part is refused.
CUcontext shared_context(Session& session) {
  return session.shared().gpus[session.context()->gpu].context;
}

// The child graph of a copy: not yet part of anything, the caller destroys it.
// `context`: of the copy.
CUresult make_body(Session& session, CUcontext context, const wire::GraphStepParams& untrusted,
                   CUdeviceptr word, uint64_t staging, CUgraph* body) {
  const Driver& driver = session.driver();
  CUDA_MEMCPY3D copy;
  if (CUresult error = gpu_copy(session, untrusted, staging, &copy); error != CUDA_SUCCESS)
    return error;
  if (CUresult error = driver.cuGraphCreate(body, 0); error != CUDA_SUCCESS) return error;
  const StepOps ops(shared_context(session), word, untrusted.tag);
  const bool step_first = untrusted.direction == wire::StepDirection::kToGpu;
  CUgraphNode step = nullptr, transfer = nullptr;
  CUresult error = CUDA_SUCCESS;
  if (step_first) error = driver.cuGraphAddBatchMemOpNode(&step, *body, nullptr, 0, &ops.params);
  if (error == CUDA_SUCCESS)
    error = driver.cuGraphAddMemcpyNode(&transfer, *body, step_first ? &step : nullptr,
                                        step_first ? 1 : 0, &copy, context);
  if (error == CUDA_SUCCESS && !step_first)
    error = driver.cuGraphAddBatchMemOpNode(&step, *body, &transfer, 1, &ops.params);
  if (error != CUDA_SUCCESS) driver.cuGraphDestroy(*body);
  return error;
}

CUresult list_in(Session& session, CUgraph graph, std::vector<Step>* steps, uint32_t* flags,
                 int depth) {
  const Driver& driver = session.driver();
  size_t count = 0;
  if (depth > kMaxDepth) return CUDA_ERROR_NOT_SUPPORTED;
  if (CUresult error = driver.cuGraphGetNodes(graph, nullptr, &count); error != CUDA_SUCCESS)
    return error;
  std::vector<CUgraphNode> nodes(count);
  if (count == 0) return CUDA_SUCCESS;
  if (CUresult error = driver.cuGraphGetNodes(graph, nodes.data(), &count); error != CUDA_SUCCESS)
    return error;
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    if (CUresult error = driver.cuGraphNodeGetType(node, &type); error != CUDA_SUCCESS)
      return error;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE)
      *flags |= wire::kGraphHasMemoryNodes;
    Step step;
    if (type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP && type != CU_GRAPH_NODE_TYPE_GRAPH) continue;
    if (step_of(session, node, &step)) {
      steps->push_back(step);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      CUresult error = driver.cuGraphChildGraphNodeGetGraph(node, &child);
      if (error == CUDA_SUCCESS) error = list_in(session, child, steps, flags, depth + 1);
      if (error != CUDA_SUCCESS) return error;
    }
  }
  return CUDA_SUCCESS;
}

CUresult set_operation(Session& session, CUgraphNode operation, CUdeviceptr word, uint64_t tag) {
  CUDA_BATCH_MEM_OP_NODE_PARAMS old{};
  if (CUresult error = session.driver().cuGraphBatchMemOpNodeGetParams(operation, &old);
      error != CUDA_SUCCESS)
    return error;
  const StepOps ops(old.ctx, word, tag);
  return session.driver().cuGraphBatchMemOpNodeSetParams(operation, &ops.params);
}

// Staging is the client's pinned memory.
CUresult check_staging(Session& session, const Step& step, uint64_t untrusted_staging,
                       uint64_t bytes) {
  return step.direction == wire::StepDirection::kFromGpu
             ? session.check_target_range(untrusted_staging, bytes)
             : session.check_device_range(untrusted_staging, bytes);
}

CUresult check_place(Session& session, const Step& step, const wire::GraphStepPlace& untrusted) {
  if (!wire::is_valid(untrusted) || untrusted.word == 0 || !shared::valid_word(untrusted.word))
    return CUDA_ERROR_INVALID_VALUE;
  return check_staging(session, step, untrusted.staging, step.staging_bytes);
}

CUresult place_step(Session& session, const Step& step, const wire::GraphStepPlace& untrusted) {
  const Driver& driver = session.driver();
  if (CUresult error = check_place(session, step, untrusted); error != CUDA_SUCCESS) return error;
  CUresult error =
      set_operation(session, step.operation, session.word_address(untrusted.word), step.tag);
  if (error != CUDA_SUCCESS || step.copy == nullptr) return error;
  CUDA_MEMCPY3D copy{};
  if (error = driver.cuGraphMemcpyNodeGetParams(step.copy, &copy); error != CUDA_SUCCESS)
    return error;
  put_staging(copy, step.direction, untrusted.staging);
  return driver.cuGraphMemcpyNodeSetParams(step.copy, &copy);
}

}  // namespace

bool step_of(Session& session, CUgraphNode node, Step* step) {
  CUgraphNodeType type{};
  if (session.driver().cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return false;
  *step = {};
  step->node = node;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH) return copy_step_of(session, node, step);
  if (type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) return false;
  step->operation = node;
  return operation_of(session, node, &step->tag);
}

CUresult visible_type(Session& session, CUgraphNode node, CUgraphNodeType* type) {
  if (CUresult error = session.driver().cuGraphNodeGetType(node, type); error != CUDA_SUCCESS)
    return error;
  Step step;
  if (step_of(session, node, &step))
    *type = wire::is_copy_step(step.tag) ? CU_GRAPH_NODE_TYPE_MEMCPY : CU_GRAPH_NODE_TYPE_HOST;
  return CUDA_SUCCESS;
}

CUresult list_steps(Session& session, CUgraph graph, std::vector<Step>* steps, uint32_t* flags) {
  *flags = 0;
  return list_in(session, graph, steps, flags, 0);
}

CUresult place_steps(Session& session, std::span<const Step> steps,
                     std::span<const wire::GraphStepPlace> untrusted_places) {
  if (steps.size() != untrusted_places.size()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (CUresult error = place_step(session, steps[i], untrusted_places[i]); error != CUDA_SUCCESS)
      return error;
  }
  return CUDA_SUCCESS;
}

CUresult add_step(Session& session, const NodeSpot& spot, const wire::GraphStepParams& untrusted,
                  CUgraphNode* node) {
  const Driver& driver = session.driver();
  if (CUresult error = check_step(untrusted); error != CUDA_SUCCESS) return error;
  const CUgraphEdgeData* edges = spot.edges.empty() ? nullptr : spot.edges.data();
  CUgraphNodeParams p{};
  if (untrusted.direction == wire::StepDirection::kAlone) {
    const StepOps ops(shared_context(session), no_place(session), untrusted.tag);
    p.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    p.memOp = {ops.params.ctx, ops.params.count, ops.params.paramArray, ops.params.flags};
    return driver.cuGraphAddNode_v2(node, spot.graph, spot.dependencies.data(), edges,
                                    spot.dependencies.size(), &p);
  }
  CUgraph body = nullptr;
  if (CUresult error = make_body(session, spot.context, untrusted, no_place(session), 0, &body);
      error != CUDA_SUCCESS)
    return error;
  p.type = CU_GRAPH_NODE_TYPE_GRAPH;
  p.graph.graph = body;
  p.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
  const CUresult error = driver.cuGraphAddNode_v2(node, spot.graph, spot.dependencies.data(), edges,
                                                  spot.dependencies.size(), &p);
  driver.cuGraphDestroy(body);
  return error;
}

CUresult set_step(Session& session, CUgraphNode node, CUcontext,
                  const wire::GraphStepParams& untrusted) {
  if (CUresult error = check_step(untrusted); error != CUDA_SUCCESS) return error;
  Step step;
  if (!step_of(session, node, &step) || step.direction != untrusted.direction)
    return CUDA_ERROR_NOT_FOUND;
  if (wire::is_copy_step(step.tag) != wire::is_copy_step(untrusted.tag))
    return CUDA_ERROR_INVALID_VALUE;
  if (step.copy != nullptr) {
    CUDA_MEMCPY3D copy;
    if (CUresult error = gpu_copy(session, untrusted, 0, &copy); error != CUDA_SUCCESS)
      return error;
    if (CUresult error = session.driver().cuGraphMemcpyNodeSetParams(step.copy, &copy);
        error != CUDA_SUCCESS)
      return error;
  }
  return set_operation(session, step.operation, no_place(session), untrusted.tag);
}

ExecState::ExecState() = default;
ExecState::~ExecState() = default;

void remember_places(ExecState& state, std::span<const Step> steps,
                     std::span<const wire::GraphStepPlace> places) {
  for (size_t i = 0; i < steps.size(); ++i) {
    state.steps.push_back(steps[i].node);
    state.places[steps[i].node] = places[i];
    state.staging_bytes[steps[i].node] = steps[i].staging_bytes;
  }
}

void adopt_places(ExecState& state, ExecState&& updated) {
  if (state.steps.size() != updated.steps.size()) {
    state.steps.clear(), state.places.clear(), state.staging_bytes.clear();
    return;
  }
  for (size_t i = 0; i < state.steps.size(); ++i) {
    state.places[state.steps[i]] = updated.places[updated.steps[i]];
    state.staging_bytes[state.steps[i]] = updated.staging_bytes[updated.steps[i]];
  }
}

CUresult set_exec_step(Session& session, CUgraphExec exec, ExecState& state, CUgraphNode node,
                       CUcontext context, const wire::GraphStepParams& untrusted, uint32_t* word,
                       uint64_t* needed) {
  const Driver& driver = session.driver();
  *needed = 0;
  if (CUresult error = check_step(untrusted); error != CUDA_SUCCESS) return error;
  Step step;
  auto place = state.places.find(node);
  if (place == state.places.end() || !step_of(session, node, &step))
    return CUDA_ERROR_INVALID_VALUE;
  if (step.direction != untrusted.direction ||
      wire::is_copy_step(step.tag) != wire::is_copy_step(untrusted.tag))
    return CUDA_ERROR_INVALID_VALUE;
  *word = place->second.word;
  if (step.copy == nullptr) {
    const StepOps ops(shared_context(session), session.word_address(*word), untrusted.tag);
    return driver.cuGraphExecBatchMemOpNodeSetParams(exec, node, &ops.params);
  }
  CUDA_MEMCPY3D copy;
  if (CUresult error = gpu_copy(session, untrusted, 0, &copy); error != CUDA_SUCCESS) return error;
  const uint64_t bytes = bytes_of(copy);
  uint64_t staging = place->second.staging;
  if (untrusted.staging != 0) {
    if (untrusted.word == 0 || !shared::valid_word(untrusted.word)) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = check_staging(session, step, untrusted.staging, bytes);
        error != CUDA_SUCCESS)
      return error;
    *word = untrusted.word;
    staging = untrusted.staging;
  } else if (bytes > state.staging_bytes[node]) {
    *needed = bytes;
    return CUDA_SUCCESS;
  } else if (CUresult error = check_staging(session, step, staging, bytes); error != CUDA_SUCCESS) {
    return error;  // the client has freed it since
  }
  CUgraph body = nullptr;
  if (CUresult error =
          make_body(session, context, untrusted, session.word_address(*word), staging, &body);
      error != CUDA_SUCCESS)
    return error;
  const CUresult error = driver.cuGraphExecChildGraphNodeSetParams(exec, node, body);
  driver.cuGraphDestroy(body);
  if (error != CUDA_SUCCESS) return error;
  place->second.word = *word;
  place->second.staging = staging;
  if (untrusted.staging != 0) state.staging_bytes[node] = bytes;
  return CUDA_SUCCESS;
}

CUresult place_child(Session& session, const ExecState& state, CUgraphNode node, CUgraph child) {
  CUgraph old = nullptr;
  uint32_t flags = 0;
  std::vector<Step> before, after;
  if (CUresult error = session.driver().cuGraphChildGraphNodeGetGraph(node, &old);
      error != CUDA_SUCCESS)
    return error;
  if (CUresult error = list_steps(session, child, &after, &flags);
      error != CUDA_SUCCESS || after.empty())
    return error;
  if (CUresult error = list_steps(session, old, &before, &flags); error != CUDA_SUCCESS)
    return error;
  if (before.size() != after.size()) return CUDA_ERROR_INVALID_VALUE;
  std::vector<wire::GraphStepPlace> places;
  for (size_t i = 0; i < before.size(); ++i) {
    auto place = state.places.find(before[i].node);
    auto bytes = state.staging_bytes.find(before[i].node);
    if (place == state.places.end() || bytes == state.staging_bytes.end() ||
        after[i].staging_bytes > bytes->second)
      return CUDA_ERROR_INVALID_VALUE;
    places.push_back(place->second);
  }
  return place_steps(session, after, places);
}

}  // namespace tube::proxy
