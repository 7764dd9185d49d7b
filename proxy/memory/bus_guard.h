// What happens when a client cuts a file short whose pages the proxy has mapped
// (proxy/memory/host_pages.h): the driver, or the simulated GPU, touches a page that is no more,
// and the kernel sends SIGBUS. A client must not end the proxy that way, so the handler puts an
// empty page of our own there and the access goes on; any other SIGBUS ends the process as before.
//
// A table of address ranges that the handler reads without a lock. add() and remove() from any
// thread.
#pragma once

#include <cstdint>

namespace tube::proxy::bus_guard {

// Installs the handler at first use. False when the table is full.
bool add(uint64_t begin, uint64_t end);
void remove(uint64_t begin);

}  // namespace tube::proxy::bus_guard
