// What contexts remember about peer access (peers.cc).
#pragma once

namespace tube::hook {

struct Context;

// Whether the program has let work in `from` reach memory of `owner`: on one GPU always. Any
// thread.
bool reaches(const Context* from, const Context* owner);

// Opening another process's memory of a peer GPU does it by itself.
void let_reach(const Context* from, const Context* owner);

// The context was reset or destroyed: as natively, whatever it enabled, or others enabled of it, is
// off again. Any thread.
void forget_peers(const Context* context);

}  // namespace tube::hook
