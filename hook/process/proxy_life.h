// Whether the proxy still lives, for a program that closed our socket (sharedmem/wait.h asks).
//
// Daemons close every descriptor they do not know; calls go on without our socket. A wait then asks
// by a short connection, at most every 50 ms, to the first of the proxy's sockets that this process
// sees: a container may have been given the .sock alone. Where it sees neither any more (it changed
// its root, a cleaner removed the files) the proxy's process is asked.
//
// A proxy that ends in order says so in the segment. Another proxy at the same place is another
// process, and its socket another file: of processes in other PID namespaces the kernel tells
// nothing but a 0.
#pragma once

#include <sys/stat.h>

#include <string>

namespace tube::hook {

struct ProxyPlace {
  int pid = 0;  // as this process sees it; 0: it does not
  std::string control_path, data_path;
  struct stat data_file = {};  // what was at data_path when this process connected
};

// The proxy behind `socket`, which is connected to it.
ProxyPlace place_of_proxy(int socket, const std::string& workflow);

// Blocks for some 20 ms at most. What cannot be asked now, for want of descriptors, is alive.
bool proxy_answers(const ProxyPlace& place);

}  // namespace tube::hook
