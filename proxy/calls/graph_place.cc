#include "proxy/calls/graph_place.h"

#include <vector>

#include "protocol/driver_table.gen.h"
#include "proxy/calls/graph_steps.h"
#include "proxy/gpu/current_context.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"

namespace tube::proxy {
namespace {

bool has_parts(Session& session) {
  const ContextShare& share = *session.context();
  return session.contexts().placement().has_parts(share.gpu) && !share.own_sms();
}

struct Places {
  CUcontext context = nullptr;  // where nodes come
  CUcontext shared = nullptr;   // the GPU's: of memory operations, which are refused in parts
};
void bring(const Driver& driver, CUgraph graph, const Places& to);

// A node that is set to what it has comes into the context that is current.
void bring_node(const Driver& driver, CUgraphNode node, const Places& to) {
  CUgraphNodeType type{};
  if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return;
  if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
    CUDA_KERNEL_NODE_PARAMS_v2 params{};
    if (driver.cuGraphKernelNodeGetParams_v2(node, &params) != CUDA_SUCCESS) return;
    if (params.ctx == to.context) return;
    params.ctx = to.context;
    (void)driver.cuGraphKernelNodeSetParams_v2(node, &params);
  } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
    CUDA_MEMSET_NODE_PARAMS params{};
    if (driver.cuGraphMemsetNodeGetParams(node, &params) == CUDA_SUCCESS)
      (void)driver.cuGraphMemsetNodeSetParams(node, &params);
  } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    CUDA_MEMCPY3D params{};
    if (driver.cuGraphMemcpyNodeGetParams(node, &params) == CUDA_SUCCESS)
      (void)driver.cuGraphMemcpyNodeSetParams(node, &params);
  } else if (type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
    CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
    if (driver.cuGraphBatchMemOpNodeGetParams(node, &params) != CUDA_SUCCESS) return;
    if (params.ctx == to.shared) return;
    params.ctx = to.shared;
    const CurrentContext current(driver, to.shared);
    (void)driver.cuGraphBatchMemOpNodeSetParams(node, &params);
  } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph inner = nullptr;
    if (driver.cuGraphChildGraphNodeGetGraph(node, &inner) == CUDA_SUCCESS)
      bring(driver, inner, to);
  }
}

void bring(const Driver& driver, CUgraph graph, const Places& to) {
  size_t count = 0;
  if (driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return;
  std::vector<CUgraphNode> nodes(count);
  if (count == 0 || driver.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return;
  for (CUgraphNode node : nodes) bring_node(driver, node, to);
}

}  // namespace

CUcontext instance_context(Session& session) {
  if (!has_parts(session)) return nullptr;
  return session.contexts().placement().part_context(session.context()->gpu);
}

CUcontext instance_context(const ExecState* state) {
  return state != nullptr ? state->context : nullptr;
}

void bring_nodes(Session& session, CUgraph graph, CUcontext context) {
  if (!has_parts(session)) return;
  CUcontext shared = session.shared().gpus[session.context()->gpu].context;
  if (context == nullptr) context = shared;
  const CurrentContext current(session.driver(), context);
  bring(session.driver(), graph, {context, shared});
}

}  // namespace tube::proxy
