// The proxy's own file descriptors: how many it may have, and what is kept for itself. And what
// else /proc counts of this process.
//
// The kernel gives out the lowest free number, so a new descriptor's number says how full the table
// is. What a client or another proxy brings is turned away once its number lies within the
// headroom; what the proxy opens for itself still finds one.
#pragma once

#include <cstdint>

namespace tube::proxy {

// Raises the soft limit to the hard one (RLIMIT_NOFILE). Before other threads.
void raise_descriptor_limit();
// The limit that holds now, and what of it is the proxy's own. Any thread.
uint32_t descriptor_limit();
uint32_t descriptor_headroom();
// How many are open, and how many threads there are; 0 when /proc does not say.
uint64_t open_descriptors();
uint64_t running_threads();
// This descriptor, just made for somebody else, is one too many.
bool is_scarce(int fd);

}  // namespace tube::proxy
