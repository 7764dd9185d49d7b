// What kernels of this program print, on its own stdout; and the text of a failed assertion, on its
// stderr.
//
// The driver prints in the proxy. After a synchronising call the hook asks for the text, if a
// kernel that may print has been launched since the last time, and writes it with the program's own
// stdio, as the driver would natively. Programs whose kernels do not print pay one load. Any
// thread; collecting waits for a reply, never for the GPU.
#pragma once

#include <atomic>
#include <cstdint>

namespace tube::hook {

// Whether there may be text: 0 none, else see device_output.cc.
extern std::atomic<uint32_t> g_output_state;

struct Context;
// A launch in `context` of a kernel with these `writes` is about to be published; the producer lock
// is held, unless captured: then it runs whenever a graph is launched.
void expect_output(uint32_t writes, bool captured, const Context* context);

// Whether such a launch came in this context since it was made or reset.
bool has_printed(const Context* context);

inline bool output_expected() { return g_output_state.load(std::memory_order_acquire) != 0; }

void collect_output_now();
// At the end of every call that synchronises, without any lock but a context's list of streams.
inline void collect_output() {
  if (output_expected()) [[unlikely]]
    collect_output_now();
}
// A call answered CUDA_ERROR_ASSERT: what the assertion said, once.
void collect_assertion();

}  // namespace tube::hook
