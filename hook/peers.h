// What contexts remember about peer access (peers.cc).
#pragma once

namespace tube::hook {

struct Context;

// The context was reset or destroyed: as natively, whatever it enabled, or others enabled of it, is off again. Any thread.
void forget_peers(const Context* context);

}  // namespace tube::hook
