// Instances of graphs: made and updated. A graph's steps get the instance's own words and staging
// first (graph_steps.h).
#include <vector>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/calls/graph_lift.h"
#include "proxy/calls/graph_place.h"
#include "proxy/calls/graph_steps.h"
#include "proxy/calls/graph_walk.h"
#include "proxy/calls/modules.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/graph_objects.h"
#include "proxy/session/session.h"

namespace tube::proxy {

CUresult handle(Session& session, const Decoded<wire::tubeGraphSteps>& call,
                Reply<wire::tubeGraphSteps>& reply) {
  auto graph = session.resolve<CUgraph>(wire::Kind::kGraph, call->graph);
  if (graph.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Step> steps;
  uint32_t flags = 0;
  if (CUresult error = list_steps(session, graph.handle, &steps, &flags); error != CUDA_SUCCESS)
    return error;
  std::vector<wire::GraphStep> answer;
  answer.reserve(steps.size());
  for (const Step& step : steps) answer.push_back({step.tag, step.staging_bytes});
  reply->flags = flags;
  if (answer.empty()) return CUDA_SUCCESS;
  return reply.put_array(&wire::tubeGraphSteps_reply::steps,
                         std::span<const wire::GraphStep>(answer))
             ? CUDA_SUCCESS
             : CUDA_ERROR_NOT_SUPPORTED;
}

namespace {

struct Instance {
  std::unique_ptr<ExecState> state;  // none: no steps
};

CUresult place(Session& session, CUgraph graph,
               std::span<const wire::GraphStepPlace> untrusted_places, Instance* made) {
  if (untrusted_places.empty()) return CUDA_SUCCESS;
  std::vector<Step> steps;
  uint32_t flags = 0;
  if (CUresult error = list_steps(session, graph, &steps, &flags); error != CUDA_SUCCESS)
    return error;
  if (CUresult error = place_steps(session, steps, untrusted_places); error != CUDA_SUCCESS)
    return error;
  made->state = std::make_unique<ExecState>();
  remember_places(*made->state, steps, untrusted_places);
  return CUDA_SUCCESS;
}

// The state of an instance that was just made.
std::unique_ptr<ObjectState> with_lifted(Session& session, CUgraphExec exec, CUgraph graph,
                                         uint64_t flags, std::unique_ptr<ExecState> state) {
  auto lifted = lift_copies(session, exec, graph, flags);
  if (lifted == nullptr) return state;
  if (state == nullptr) state = std::make_unique<ExecState>();
  state->lifted = std::move(lifted);
  return state;
}

// What becomes of the instance's lifted copies with the driver's update.
class LiftedUpdate {
 public:
  LiftedUpdate(Session& session, Object& exec, CUgraph graph) {
    const auto* state = static_cast<const ExecState*>(exec.state.get());
    if (state != nullptr) lifted_ = state->lifted.get();
    if (lifted_ == nullptr) return;
    before_ = lifted_->before;
    after_ = lifted_->after;
    result_ = update_lifted(session, graph, *lifted_);
  }
  // Nothing was updated.
  void undo() {
    if (lifted_ == nullptr) return;
    lifted_->before = std::move(before_);
    lifted_->after = std::move(after_);
  }
  // The driver must not be asked: it would do what the copies cannot follow.
  bool refused() const { return result_ != CU_GRAPH_EXEC_UPDATE_SUCCESS; }
  CUgraphExecUpdateResult result() const { return result_; }

 private:
  LiftedCopies* lifted_ = nullptr;
  std::vector<LiftedCopy> before_, after_;
  CUgraphExecUpdateResult result_ = CU_GRAPH_EXEC_UPDATE_SUCCESS;
};

// An instance keeps the memory of the graph's allocation nodes.
void own_memory(Session& session, uint64_t graph, uint64_t exec) {
  session.graph_memory().share({wire::Kind::kGraph, graph}, {wire::Kind::kGraphExec, exec});
}

// The context with which the instance ends: its graph's, whatever is current; but a green one's
// nodes are in that.
uint32_t owner_of_instance(Session& session, uint64_t graph) {
  const ContextShare* share = session.context();
  if (share != nullptr && share->own_sms()) return session.record().context;
  return session.objects().find(wire::Kind::kGraph, graph)->context;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeGraphInstantiate>& call,
                Reply<wire::tubeGraphInstantiate>& reply) {
  if (CUresult error = session.objects().admit(wire::Kind::kGraphExec, call->exec);
      error != CUDA_SUCCESS)
    return error;
  auto graph = session.resolve<CUgraph>(wire::Kind::kGraph, call->graph);
  if (graph.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  uint64_t nodes = 0;
  if (CUresult error = admit_copy(session, graph.handle, &nodes); error != CUDA_SUCCESS)
    return error;
  Instance made;
  if (CUresult error =
          place(session, graph.handle, call.array<wire::GraphStepPlace>(call->places), &made);
      error != CUDA_SUCCESS)
    return error;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = call->flags;
  if ((call->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
    StreamOp op = session.stream_op(call->stream);
    if (op.error != CUDA_SUCCESS) return op.error;
    params.hUploadStream = op.stream;
  }
  if (CUcontext context = instance_context(session); context != nullptr) {
    if (made.state == nullptr) made.state = std::make_unique<ExecState>();
    made.state->context = context;
  }
  bring_nodes(session, graph.handle, instance_context(made.state.get()));
  CUgraphExec exec = nullptr;
  reply->result = session.or_without_pool(session.context()->gpu, [&] {
    return session.driver().cuGraphInstantiateWithParams(&exec, graph.handle, &params);
  });
  reply->status = params.result_out;
  if (reply->result != CUDA_SUCCESS) {
    reply->error_node = name_node_inside(session, call->graph, params.hErrNode_out);
    return CUDA_SUCCESS;
  }
  note_update(session);
  own_memory(session, call->graph, call->exec);
  const CUresult kept = session.objects().insert(
      wire::Kind::kGraphExec, call->exec, exec, owner_of_instance(session, call->graph),
      with_lifted(session, exec, graph.handle, call->flags, std::move(made.state)));
  session.objects().weigh(wire::Kind::kGraphExec, call->exec, nodes);
  return kept;
}

CUresult handle(Session& session, const Decoded<wire::tubeGraphExecUpdate>& call,
                Reply<wire::tubeGraphExecUpdate>& reply) {
  auto exec = session.resolve<CUgraphExec>(wire::Kind::kGraphExec, call->exec);
  auto graph = session.resolve<CUgraph>(wire::Kind::kGraph, call->graph);
  if (exec.error != CUDA_SUCCESS || graph.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  Instance made;
  if (CUresult error =
          place(session, graph.handle, call.array<wire::GraphStepPlace>(call->places), &made);
      error != CUDA_SUCCESS)
    return error;
  Object& object = *session.objects().find(wire::Kind::kGraphExec, call->exec);
  LiftedUpdate lifted(session, object, graph.handle);
  bring_nodes(session, graph.handle,
              instance_context(static_cast<const ExecState*>(object.state.get())));
  CUgraphExecUpdateResultInfo info{};
  const auto update = [&] {
    return session.driver().cuGraphExecUpdate_v2(exec.handle, graph.handle, &info);
  };
  if (lifted.refused()) {  // whoever hears it makes an instance of the graph
    reply->result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    info.result = lifted.result();
  } else {
    reply->result =
        session.shared().gpus.gate().launch(this_caller(), update_gate(session), update);
  }
  if (reply->result != CUDA_SUCCESS) lifted.undo();
  reply->status = info.result;
  reply->error_node = name_node_inside(session, call->graph, info.errorNode);
  reply->error_from_node = name_node_inside(session, call->graph, info.errorFromNode);
  if (reply->result != CUDA_SUCCESS) return CUDA_SUCCESS;
  note_update(session);
  if (made.state != nullptr && object.state != nullptr)
    adopt_places(static_cast<ExecState&>(*object.state), std::move(*made.state));
  return CUDA_SUCCESS;
}

}  // namespace tube::proxy
