// Driver calls that wait for the whole context, and streams that wait for a program.
//
// Loading and unloading code, giving back memory that cuMemAlloc, cuMemHostRegister or
// cuArrayCreate made, making a green context or the instance of a graph, and the first launch of a
// kernel that needs more local memory than any before it make the driver wait until the context is
// idle, and every launch of every client stands still meanwhile (measured,
// docs/decisions/0009-quiet-calls.md). Looking up a kernel does not wait, but what is submitted
// behind it does. When a stream of one client waits for a value that its program has yet to write,
// and that program first wants to launch something, another client's module load would stop both
// for good.
//
// So these calls take turns with such waits, outside of the driver: a call begins when no stream
// waits for another program, and a wait is submitted when no such call is in the driver. Whoever
// has to wait waits alone; everybody else goes on. A wait is over when the event recorded behind it
// is. A program that keeps some stream waiting at all times would keep the calls out: after
// kPatience they are made all the same, and a wait that has stood for so long is waited for no
// more. Calls that overlap would keep a wait out: one that has come goes before calls that have not
// begun.
//
// Each GPU has its turns: a call waits for the context that it was made in, and programs on two
// GPUs may depend on each other (NCCL: a kernel of one goes on when the other one has launched its
// own, and a call may stand behind that kernel). A session that works on several GPUs takes the
// turns of all of these, since some of its calls wait for another context than the current one
// (cuMemFree of the other GPU's memory, instances of graphs with nodes on both), and what is given
// back for several sessions may be everywhere. A wait stands behind a call of one GPU as long as
// that takes, behind a call of several for about kPatience.
//
// A turn (rank 12) is the first thing to take: who waits for one may hold no lock that another
// session needs for a call that natively waits for nothing, or the stream that he waits for is
// never released. Turns of one thread may lie inside each other: the outer one counts, and the
// inner calls go straight into the driver. Whoever makes several such calls, or takes a lock around
// them, takes one turn around all of it with quietly().
//
// What the driver puts off to the next launch is done before a turn ends (settled_contexts.h).
//
// The first launch of a kernel on a GPU takes a turn as well, of less patience. If it is the first
// that prints or allocates, everything that comes after on that GPU stands behind the waits that
// are there, though the driver itself does not wait. So it waits for the streams that wait for
// other programs, and waits that come meanwhile stand behind it: both for kLaunchPatience at most,
// and beside waits that do not end or always come anew a session does so once in ten of these
// times.
//
// install_quiet_calls() puts this into the table of the driver's entry points, so no caller has to
// know. Costs the calls an uncontended lock, a wait an event. Session threads.
#pragma once

#include <cstdint>
#include <functional>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Driver;

// Once, right after the table was filled and before other threads read it.
void install_quiet_calls(Driver& table);

// The thread's session has work on this GPU from here on. Any thread; costs nothing.
void session_works_on(CUdevice device);

// Whose waits a call minds: those of the current context's GPU and of the session's other ones, or
// of all GPUs.
enum class QuietOn : uint32_t { kItsGpus, kAllGpus };

// `call` in a turn: for up to ten seconds it waits for the streams that wait for other programs,
// and then as long as the driver does, which may be without end. No lock but the session's own may
// be held (above). Straight away in a turn that the thread has already, and when nothing is
// installed or no context is current. Inside a turn, one of more GPUs takes the others as well.
CUresult quietly(const std::function<CUresult()>& call, QuietOn on = QuietOn::kItsGpus);

// The same for a call that brings code or changes what all kernels need, and is no entry of the
// table that does so by itself: the context of the GPU is settled behind it (settled_contexts.h).
CUresult quietly_unsettling(const std::function<CUresult()>& call);

// Before any client, for each GPU's context, which is current: so that what comes is settled from
// the start. An error: what follows works, but first launches may hold others up.
CUresult prepare_context(CUdevice device, CUcontext context);

// Which turn a launch takes: kFirst as the first one of code on a GPU, kQuiet as one that makes the
// driver wait for the whole context, which is quietly().
enum class LaunchTurn : uint32_t { kNone, kFirst, kQuiet };
CUresult launch_in_turn(LaunchTurn turn, const std::function<CUresult()>& launch);

// For what natively waits for nothing, and can do without: `call` in a turn if one is to be had at
// once, otherwise false. The caller's own waits count as well: natively this call would not stand
// for them. What `call` then asks of the driver waits for kernels.
bool quietly_if_nobody_waits(const std::function<void()>& call, QuietOn on = QuietOn::kItsGpus);

// For who has waited for that with quiet_patience_ms() of patience, as all calls do: `call` in a
// turn of all GPUs although streams wait for programs.
void quietly_all_the_same(const std::function<void()>& call);

// How long a call waits for the others' waits, and a first launch. To set them is for tests.
uint32_t quiet_patience_ms();
void set_quiet_patience(uint32_t milliseconds);
void set_launch_patience(uint32_t milliseconds);

}  // namespace tube::proxy
