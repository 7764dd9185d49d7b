// What the hook keeps for each thread of the program that made a call.
#pragma once

#include "hook/objects/context.h"

namespace tube::hook {

struct PerThreadStream {
  Context* context;
  CUstream handle;  // names nothing any more once the context was reset or destroyed
};

// One per thread that made a call; recycled when the thread ends.
struct Thread {
  uint32_t number = 0;
  Context** stack = nullptr;  // current contexts, the last is current
  uint32_t depth = 0;
  uint32_t capacity = 0;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool in_callback = false;            // runs host functions, which may not call (800)
  bool per_thread_default = false;     // PerThreadDefault scope: stream 0 means this thread's own
  Stream* operation_stream = nullptr;  // the stream of the record being built (support.h)
  PerThreadStream* own_streams = nullptr;
  uint32_t own_stream_count = 0;
  Thread* next_free = nullptr;
};

Thread& this_thread();
// The calling thread's current context, or nullptr.
Context* current_context();
// A context's turn to be the top of the calling thread's stack; false when out of memory.
bool push_context(Context* context);

// While it lives, stream 0 means the calling thread's per-thread default stream (the _ptds entry
// points).
class PerThreadDefault {
 public:
  PerThreadDefault() : before_(this_thread().per_thread_default) {
    this_thread().per_thread_default = true;
  }
  ~PerThreadDefault() { this_thread().per_thread_default = before_; }
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;

 private:
  bool before_;
};

}  // namespace tube::hook
