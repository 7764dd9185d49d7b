// What is left in the log when tubed itself crashes: the signal, the address, the thread, and the
// calls that led there, with their names.
//
// libunwind walks the stack of the thread that crashed. It is loaded at the start, from
// lib/tube beside bin/ or where the loader finds it: Debian's archive cannot be linked into a
// position-independent program, and its functions have the names of libgcc's. Without it the log
// has the signal, the thread and the one place. Nothing is allocated, and a trace that does not
// come to its end within some seconds (the crash was in the loader, say) is cut off by an alarm.
// The process then dies of the same signal, as it would have without. Builds with a
// sanitizer have traces of their own and none of this. A thread without a stack left for the
// handler gets no trace: only the main thread has a second stack.
#pragma once

namespace tube::proxy {

// SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT, as far as nobody handles them. Before other threads
// and other handlers (memory/bus_guard.h), which hand on what is not theirs.
void trace_crashes();

}  // namespace tube::proxy
