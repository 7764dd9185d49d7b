// Launches of graphs, whose kernels may write, and handing over what the client's kernels printed
// or asserted (session/output.h).
#include <functional>
#include <span>
#include <string>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/calls/graph_lift.h"
#include "proxy/calls/graph_steps.h"
#include "proxy/gpu/capture.h"
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
  LaunchPass pass =
      state == nullptr || state->places.empty() ? look_at_graph(session, call) : LaunchPass();
  if (pass.held()) {
    session.come_again();
    return CUDA_SUCCESS;
  }
  const StreamOp op = session.stream_op(call->hStream);
  if (op.error != CUDA_SUCCESS) return op.error;
  return launch_graph(session, call, exec->handle<CUgraphExec>(), op, pass);
}

// What a graph holds is not looked at: it counts as a kernel that fills the GPU.
LaunchPass look_at_graph(Session& session, const Decoded<wire::cuGraphLaunch>& call) {
  constexpr uint64_t kFills = uint64_t{1} << 32;
  LongLaunches& launches = session.long_launches();
  if (!launches.on()) return {};
  LaunchWatch& watch = launches.of_graph(call->hGraph);
  if (!watch.due(0)) return {};
  CUresult error = CUDA_SUCCESS;
  StreamState* stream = session.contexts().stream(call->hStream, session.record().context, &error);
  if (stream == nullptr || (session.captures() && is_capturing(session.driver(), stream->stream))) {
    watch.look_in(1);
    return {};
  }
  return launches.look({.key = call->hGraph << 1 | uint64_t{1} << 63,
                        .blocks = kFills,
                        .stream = stream,
                        .record = session.record().sequence,
                        .also = ParkKeys::object(wire::NamedKind::kExec, call->hGraph)},
                       watch);
}

CUresult launch_graph(Session& session, const Decoded<wire::cuGraphLaunch>& call, CUgraphExec exec,
                      const StreamOp& op, LaunchPass& pass) {
  static const std::string kGraph = "a kernel of a graph";
  session.launched(*op.state, &kGraph);
  // Its allocation nodes take their memory now.
  const auto launch = [&] {
    return pass.around(op.stream, [&] {
      return session.or_without_pool(
          session.context()->gpu, [&] { return session.driver().cuGraphLaunch(exec, op.stream); });
    });
  };
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
