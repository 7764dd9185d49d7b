// Small allocations without a round trip: the program cuts pieces out of slabs that the proxy has
// leased to it.
//
// A slab is a block of 2 MiB, of which the proxy keeps its own books. It leases one when a request
// of up to 1 MiB finds no room (the reply says so); from then on this side alone gives out its
// pieces, in units of 512 bytes, and posts tubeMemCut for each. A free is posted as ever, behind
// the wait for the program's streams, and only then is the piece free here: the ring keeps the two
// in order. Nothing about a cut can fail, so no error comes late; no lease, or no room, is a round
// trip.
//
// A lease ends when its slab is empty and another one of that GPU is, when memory is short, when a
// context of its GPU ends, and when a piece goes to other processes or is freed in stream order:
// then the proxy decides when the place is free again.
//
// Any thread. One lock (rank 3), held while a record is posted, so that no piece of a lease is
// named behind the lease's end. A cut looks at 64 words, no allocation, no system call.
#pragma once

#include <cstdint>

#include "base/cuda_api.h"

namespace tube::hook {

struct Context;

// An address of `context`'s GPU for so many bytes, and the record that says so is posted. 0: ask.
uint64_t cut_piece(Context* context, uint64_t bytes);
// The reply to a request for `bytes` at `address` says that its slab is leased.
void slab_was_leased(const Context* context, uint64_t address, uint64_t bytes);
// Posts the record that frees a piece of a leased slab, behind the wait for the program's streams,
// and gives its place out again. False: it lies in none, and nothing was done.
bool free_piece(Context* context, uint64_t address, uint64_t bytes, CUresult* result);
// The proxy is to decide what becomes of pieces of this slab, if it is leased.
void end_lease_of(uint64_t address);
// Memory is short: empty slabs go back. False: there was none.
bool end_empty_leases();
void context_ends_leases(const Context* context);

}  // namespace tube::hook
