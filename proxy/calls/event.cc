// Events. A recorded event also writes a progress word, so that the client queries and waits
// without a message.
#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/session/session.h"
#include "sharedmem/words.h"

namespace tube::proxy {

CUresult handle(Session& session, const Decoded<wire::tubeEventCreate>& call,
                Reply<wire::tubeEventCreate>&) {
  if (CUresult error = session.objects().admit(wire::Kind::kEvent, call->event);
      error != CUDA_SUCCESS)
    return error;
  CUevent event = nullptr;
  if (CUresult error = session.driver().cuEventCreate(&event, call->flags); error != CUDA_SUCCESS)
    return error;
  return session.objects().insert(wire::Kind::kEvent, call->event, event,
                                  session.context()->number);
}

CUresult handle(Session& session, const Decoded<wire::tubeEventDestroy>& call,
                Reply<wire::tubeEventDestroy>&) {
  return session.destroy_object(wire::Kind::kEvent, call->event);
}

CUresult handle(Session& session, const Decoded<wire::tubeEventRecord>& call,
                Reply<wire::tubeEventRecord>&) {
  const bool signals = call->word != shared::kNoWord;
  if (signals && (!shared::valid_word(call->word) || call->value >= limits::kWordValue))
    return CUDA_ERROR_INVALID_VALUE;
  auto event = session.resolve<CUevent>(wire::Kind::kEvent, call->event);
  if (event.error != CUDA_SUCCESS) return event.error;
  StreamOp op = session.point_op(call->stream, StreamUse::kWork);
  if (op.error != CUDA_SUCCESS) return op.error;
  const Driver& driver = session.driver();
  // The word first: a program that finds work done which waited for the event must find the event
  // done too.
  if (signals) {
    const CUresult error = session.copies().write_word(*op.state, call->word, call->value);
    if (error != CUDA_SUCCESS) return error;
    session.marked(*op.state, call->word, call->value);
  }
  return call->flags == 0 ? driver.cuEventRecord(event.handle, op.stream)
                          : driver.cuEventRecordWithFlags(event.handle, op.stream, call->flags);
}

CUresult handle(Session& session, const Decoded<wire::tubeStreamWaitEvent>& call,
                Reply<wire::tubeStreamWaitEvent>&) {
  auto event = session.resolve<CUevent>(wire::Kind::kEvent, call->event);
  if (event.error != CUDA_SUCCESS) return event.error;
  StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  if (session.captures() && !op.state->legacy) {
    if (CUresult error = session.contexts().enter_capture(*op.state); error != CUDA_SUCCESS)
      return error;
  }
  return session.driver().cuStreamWaitEvent(op.stream, event.handle, call->flags);
}

CUresult handle(Session& session, const Decoded<wire::tubeEventElapsed>& call,
                Reply<wire::tubeEventElapsed>& reply) {
  auto start = session.resolve<CUevent>(wire::Kind::kEvent, call->start);
  auto end = session.resolve<CUevent>(wire::Kind::kEvent, call->end);
  if (start.error != CUDA_SUCCESS || end.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_HANDLE;
  return session.driver().cuEventElapsedTime_v2(&reply->milliseconds, start.handle, end.handle);
}

}  // namespace tube::proxy
