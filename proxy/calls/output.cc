// What a client's kernels print and which assertion of theirs failed: launches that may write, and
// handing the text over.
//
// Printing is device_output.h's business. A failed assertion ends the context for everybody; its
// text goes to the clients that had a kernel with assertions in flight, which as a rule is one.
#include <algorithm>
#include <functional>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/code/module_cache.h"
#include "proxy/gpu/device_output.h"
#include "proxy/gpu/gpus.h"
#include "proxy/gpu/quiet_calls.h"
#include "proxy/session/session.h"
#include "sharedmem/accessors.h"
#include "sharedmem/words.h"

namespace tube::proxy {

namespace {

// Others may become the owner in between; each that does has launched something, so one of us goes
// on.
constexpr int kTries = 16;

}  // namespace

CUresult Session::launch_writing(const StreamOp& op, uint32_t writes,
                                 const std::function<CUresult()>& launch, LaunchTurn launch_turn) {
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  if (captures() && driver().cuStreamIsCapturing(op.stream, &capturing) == CUDA_SUCCESS &&
      capturing != CU_STREAM_CAPTURE_STATUS_NONE) {
    graph_gains(writes);  // it writes when the graph is launched
    return launch_in_turn(launch_turn, launch);
  }
  if ((writes & wire::kKernelAsserts) != 0) op.state->last_assert = record_->sequence;
  if ((writes & wire::kKernelPrints) == 0 || shared_.output == nullptr)
    return launch_in_turn(launch_turn, launch);
  const auto write = [&](DeviceOutput::Turn&& turn) {
    const CUresult error = launch();
    if (error == CUDA_SUCCESS) turn.launched(thread_gpu_, op.stream, &op.state->printed);
    return error;
  };
  if (launch_turn == LaunchTurn::kNone)
    return write(DeviceOutput::Turn(*shared_.output, client_.id));
  // In a turn nobody may wait for the kernels of another client: they may need a wait of its
  // program, which stands until the turn ends.
  const int tries = launch_turn == LaunchTurn::kQuiet ? kTries : 1;
  for (int i = 0; i < tries; ++i) {
    (void)DeviceOutput::Turn(*shared_.output, client_.id);
    bool owner = false;
    const CUresult error = launch_in_turn(launch_turn, [&] {
      DeviceOutput::Turn turn(*shared_.output, client_.id, DeviceOutput::Turn::IfOwner{});
      owner = static_cast<bool>(turn);
      return owner ? write(std::move(turn)) : CUDA_SUCCESS;
    });
    if (owner) return error;
  }
  const auto at_last = [&] { return write(DeviceOutput::Turn(*shared_.output, client_.id)); };
  return launch_turn == LaunchTurn::kQuiet ? quietly(at_last) : at_last();
}

bool Session::may_have_asserted() {
  const auto open = [this](const StreamState& stream) {
    if (stream.last_assert == 0) return false;
    const bool ended = stream.marked > stream.last_assert && shared::valid_word(stream.mark_word) &&
                       static_cast<int64_t>(shared::load_word(segment_.word(stream.mark_word)) -
                                            stream.mark_value) >= 0;
    return !ended;
  };
  for (auto& [number, share] : contexts_) {
    if (share.legacy != nullptr && open(*share.legacy)) return true;
  }
  for (uint64_t id : objects_.ids(wire::Kind::kStream)) {
    if (open(static_cast<const StreamState&>(*objects_.find(wire::Kind::kStream, id)->state)))
      return true;
  }
  return false;
}

namespace {

// Once, when a GPU of the client has died of an assertion.
void fetch_assertion(Session& session) {
  Gpus& gpus = session.shared().gpus;
  for (uint32_t gpu = 0; gpu < gpus.count(); ++gpu) {
    if (gpus[gpu].failed.load(std::memory_order_relaxed) != CUDA_ERROR_ASSERT) continue;
    if (!session.take_assertion_turn() || !session.may_have_asserted()) return;
    // The driver writes the text when somebody synchronises; on a dead context that returns at
    // once.
    if (session.make_current(gpu) == CUDA_SUCCESS) (void)session.driver().cuCtxSynchronize();
    session.assertion_text() = session.shared().output->assertions();
    return;
  }
}

}  // namespace

// Generated but for what the graph's kernels may write.
CUresult handle(Session& session, const Decoded<wire::cuGraphLaunch>& call,
                Reply<wire::cuGraphLaunch>&) {
  const auto exec = session.resolve<CUgraphExec>(wire::Kind::kGraphExec, call->hGraph);
  if (exec.error != CUDA_SUCCESS) return exec.error;
  const StreamOp op = session.stream_op(call->hStream);
  if (op.error != CUDA_SUCCESS) return op.error;
  const auto launch = [&] { return session.driver().cuGraphLaunch(exec.handle, op.stream); };
  const CUresult error = session.graph_writes() == 0
                             ? launch()
                             : session.launch_writing(op, session.graph_writes(), std::cref(launch),
                                                      LaunchTurn::kNone);
  if (error != CUDA_SUCCESS) return error;
  session.graph_memory().launched({wire::Kind::kGraphExec, call->hGraph});
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeCollectOutput>&,
                Reply<wire::tubeCollectOutput>& reply) {
  if (session.shared().output == nullptr) return CUDA_SUCCESS;
  fetch_assertion(session);
  std::string& assertion = session.assertion_text();
  const std::string err = assertion.substr(0, std::min<size_t>(assertion.size(), reply.room() / 2));
  assertion.erase(0, err.size());
  reply.put(&wire::tubeCollectOutput_reply::err, std::as_bytes(std::span(err)));
  bool outstanding = false;
  bool more = false;
  const std::string out =
      session.shared().output->collect(session.client().id, reply.room(), &outstanding, &more);
  reply.put(&wire::tubeCollectOutput_reply::out, std::as_bytes(std::span(out)));
  reply->outstanding = outstanding ? 1 : 0;
  reply->more = more || !assertion.empty() ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace tube::proxy
