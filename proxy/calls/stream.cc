// Streams: creation, progress words, host functions of the client.
#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/gpu/capture.h"
#include "proxy/gpu/gpus.h"
#include "proxy/gpu/placement.h"
#include "proxy/session/session.h"
#include "sharedmem/words.h"

namespace tube::proxy {

CUresult handle(Session& session, const Decoded<wire::tubeStreamCreate>& call,
                Reply<wire::tubeStreamCreate>&) {
  ContextShare* share = session.context();
  if (CUresult error = session.objects().admit(wire::Kind::kStream, call->stream);
      error != CUDA_SUCCESS)
    return error;
  auto state = std::make_unique<StreamState>();
  state->id = call->stream;
  state->context = share->number;
  state->flags = call->flags;
  state->priority = call->priority;
  if (CUresult error =
          session.contexts().placement().make_stream(share->gpu, share->own_sms(), *state);
      error != CUDA_SUCCESS)
    return error;
  CUstream stream = state->stream;
  return session.objects().insert(wire::Kind::kStream, call->stream, stream, share->number,
                                  std::move(state));
}

CUresult handle(Session& session, const Decoded<wire::tubeStreamDestroy>& call,
                Reply<wire::tubeStreamDestroy>&) {
  return session.destroy_object(wire::Kind::kStream, call->stream);
}

CUresult handle(Session& session, const Decoded<wire::tubeSignal>& call, Reply<wire::tubeSignal>&) {
  if (!shared::valid_word(call->word) || call->value >= limits::kWordValue)
    return CUDA_ERROR_INVALID_VALUE;
  StreamOp op = session.point_op(call->stream, StreamUse::kMarker);
  if (op.error != CUDA_SUCCESS) return op.error;
  const CUresult error = session.copies().write_word(*op.state, call->word, call->value);
  if (error == CUDA_SUCCESS) session.marked(*op.state, call->word, call->value);
  return error;
}

namespace {

// Whether the record's wait is kept back, and the record must come again. In a capture, and where
// somebody waits for the answer, it is not.
bool stays(Session& session, const StreamOp& op, const ParkedWaits::Wait& wait) {
  const ContextShare* share = session.context(op.state->context);
  if (share == nullptr || session.record().reply_slot != abi::kNoReply ||
      (session.captures() && is_capturing(session.driver(), op.stream)))
    return false;
  return session.parked_waits().stays(wait, *op.state, session.shared().gpus[share->gpu].device,
                                      session.record().sequence);
}

// A value in the client's pinned memory can be looked at here.
bool stays(Session& session, const StreamOp& op, const PendingWait& wait) {
  const Range* range = session.ranges().find(wait.address);
  if (range == nullptr || range->kind != RangeKind::kPinned || wait.address % wait.bytes != 0)
    return false;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): pinned memory has its address in both processes
  return stays(session, op,
               {reinterpret_cast<const void*>(wait.address), wait.value, wait.flags, wait.bytes});
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeHostFunc>& call,
                Reply<wire::tubeHostFunc>&) {
  if (!shared::valid_word(call->reached) || !shared::valid_word(call->done) ||
      call->value >= limits::kWordValue) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t sequence = session.record().sequence;
  const bool reached = session.parked_waits().came_before(sequence);
  StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  const Driver& driver = session.driver();
  CUresult error = CUDA_SUCCESS;
  if (!reached) error = session.copies().write_word(*op.state, call->reached, call->value);
  if (error != CUDA_SUCCESS) return error;
  session.host_calls().posted(session.word(call->reached), call->value);
  if (stays(session, op, {&session.word(call->done), call->value, CU_STREAM_WAIT_VALUE_GEQ, 8})) {
    session.come_again();
    return CUDA_SUCCESS;
  }
  return driver.cuStreamWaitValue64_v2(op.stream, session.word_address(call->done), call->value,
                                       CU_STREAM_WAIT_VALUE_GEQ);
}

namespace {

// The session remembers what its streams wait for (pending_waits.h).
template <class Wait>
CUresult wait_value(Session& session, uint64_t stream, const PendingWait& wait, Wait wait_call) {
  StreamOp op = session.stream_op(stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  if (CUresult r = session.check_device_range(wait.address, wait.bytes)) return r;
  if (stays(session, op, wait)) {
    session.come_again();
    return CUDA_SUCCESS;
  }
  const CUresult error = wait_call(op.stream);
  if (error == CUDA_SUCCESS) session.remember_wait(wait);
  return error;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::cuStreamWaitValue32_v2>& call,
                Reply<wire::cuStreamWaitValue32_v2>&) {
  return wait_value(session, call->stream, {call->addr, call->value, call->flags, 4},
                    [&](CUstream stream) {
                      return session.driver().cuStreamWaitValue32_v2(stream, call->addr,
                                                                     call->value, call->flags);
                    });
}

CUresult handle(Session& session, const Decoded<wire::cuStreamWaitValue64_v2>& call,
                Reply<wire::cuStreamWaitValue64_v2>&) {
  return wait_value(session, call->stream, {call->addr, call->value, call->flags, 8},
                    [&](CUstream stream) {
                      return session.driver().cuStreamWaitValue64_v2(stream, call->addr,
                                                                     call->value, call->flags);
                    });
}

// As the client sees it, its streams are of one context; the driver refuses those of two parts.
CUresult handle(Session& session, const Decoded<wire::cuStreamCopyAttributes>& call,
                Reply<wire::cuStreamCopyAttributes>&) {
  StreamOp to = session.stream_op(call->dstStream);
  if (to.error != CUDA_SUCCESS) return to.error;
  to.state->attributes = true;
  StreamOp from = session.stream_op(call->srcStream);
  if (from.error != CUDA_SUCCESS) return from.error;
  const bool apart = to.state->green != nullptr || from.state->green != nullptr;
  return apart ? copy_attributes(session.driver(), to.stream, from.stream)
               : session.driver().cuStreamCopyAttributes(to.stream, from.stream);
}

// Not ready is an answer, not an error of the context. A wait for work from before
// a capture must not break that capture by asking: it goes on, and the legacy stream shows as well
// whether the context lives.
CUresult handle(Session& session, const Decoded<wire::tubeStreamProbe>& call,
                Reply<wire::tubeStreamProbe>&) {
  StreamOp op = session.point_op(call->stream, StreamUse::kMarker);
  if (op.error != CUDA_SUCCESS) return op.error;
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  if (session.captures()) (void)session.driver().cuStreamIsCapturing(op.stream, &capturing);
  if (capturing == CU_STREAM_CAPTURE_STATUS_NONE) return session.driver().cuStreamQuery(op.stream);
  op = session.stream_op(wire::kLegacyStream, StreamUse::kMarker);
  if (op.error != CUDA_SUCCESS) return op.error;
  const CUresult state = session.driver().cuStreamQuery(op.stream);
  return state == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : state;
}

}  // namespace tube::proxy
