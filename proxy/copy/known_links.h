// What a proxy knows of its machine's links before it has used them (policies/multipath.h).
#pragma once

#include "policies/multipath.h"

namespace tube::proxy {

class Gpus;
struct Driver;

// At the proxy's start, on any thread. Asks the driver which GPUs are joined by NVLink. A way
// through a peer that is reached over PCIe would use the copy's own link a second time, so it is
// none.
policies::HostLinks known_links(const Driver& driver, const Gpus& gpus);

}  // namespace tube::proxy
