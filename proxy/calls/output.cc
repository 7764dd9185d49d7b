// Launches of graphs, whose kernels may write, and handing over what the client's kernels printed
// or asserted (session/output.h).
#include <functional>
#include <span>
#include <string>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/calls/graph_lift.h"
#include "proxy/calls/graph_steps.h"
#include "proxy/gpu/context_gate.h"
#include "proxy/session/session.h"

namespace tube::proxy {

CUresult handle(Session& session, const Decoded<wire::cuGraphLaunch>& call,
                Reply<wire::cuGraphLaunch>&) {
  const Object* exec = session.objects().find(wire::Kind::kGraphExec, call->hGraph);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto* state = static_cast<const ExecState*>(exec->state.get());
  if (state != nullptr && state->lifted != nullptr)
    return launch_lifted(session, call, exec->handle<CUgraphExec>(), *state->lifted);
  const StreamOp op = session.stream_op(call->hStream);
  if (op.error != CUDA_SUCCESS) return op.error;
  return launch_graph(session, call, exec->handle<CUgraphExec>(), op);
}

CUresult launch_graph(Session& session, const Decoded<wire::cuGraphLaunch>& call, CUgraphExec exec,
                      const StreamOp& op) {
  const auto launch = [&] { return session.driver().cuGraphLaunch(exec, op.stream); };
  Output& output = session.output();
  const CUresult error = output.graph_writes() == 0
                             ? launch()
                             : output.launch(op, output.graph_writes(), session.record().sequence,
                                             std::cref(launch), LaunchGate::kNone);
  if (error != CUDA_SUCCESS) return error;
  session.graph_memory().launched({wire::Kind::kGraphExec, call->hGraph});
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeCollectOutput>&,
                Reply<wire::tubeCollectOutput>& reply) {
  if (session.shared().output == nullptr) return CUDA_SUCCESS;
  Output& output = session.output();
  output.fetch_assertion();
  const std::string err = output.take_assertion(reply.room() / 2);
  reply.put(&wire::tubeCollectOutput_reply::err, std::as_bytes(std::span(err)));
  bool outstanding = false;
  bool more = false;
  const std::string out = output.collect(reply.room(), &outstanding, &more);
  reply.put(&wire::tubeCollectOutput_reply::out, std::as_bytes(std::span(out)));
  reply->outstanding = outstanding ? 1 : 0;
  reply->more = more || output.assertion_is_left() ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace tube::proxy
