// Stream capture: what issue() calls instead of running work while a stream is capturing.
#pragma once

#include "sim/machine/work.h"

namespace tube::sim {

// Adds the work to the capture's graph behind the stream's last node. Fails when the capture is
// invalid.
CUresult capture_work(Lock& lock, Stream* stream, Work work);

// cuEventRecord on a capturing stream: no node, the event remembers where it is. `edge`: an event
// that the launch just captured records.
CUresult capture_event(Stream* stream, Event* event, const CUgraphEdgeData* edge = nullptr);
// cuStreamWaitEvent with an event of a capture: the stream joins that capture.
CUresult capture_wait(State& s, Stream* stream, Event* event);

// The stream goes away while capturing.
void forget_capture(State& s, Stream* stream);

// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT when using the legacy stream would depend on a capturing
// stream.
CUresult check_legacy_capture(State& s, Context* context);

// CUDA_ERROR_STREAM_CAPTURE_INVALIDATED when the stream's capture is broken: asked before anything
// is said about a call's arguments.
CUresult check_capture_valid(const Stream* stream);
// Answers `error`, which breaks the capture that the stream is in.
CUresult refuse_in_capture(Stream* stream, CUresult error);

// A call that is never allowed on a capturing stream (synchronise, query, launch of a graph): 900,
// and the capture is invalid.
CUresult check_not_capturing(Stream* stream);

}  // namespace tube::sim
