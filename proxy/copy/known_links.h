// What a proxy knows of its machine's links before it has used them (policies/paths/multipath.h).
#pragma once

#include "policies/paths/multipath.h"

namespace tube::proxy {

class Gpus;
struct Driver;

// At the proxy's start, on any thread. Asks the driver which GPUs are joined by NVLink. A way
// through a peer that is reached over PCIe would use the copy's own link a second time, so it is
// none.
policies::HostLinks known_links(const Driver& driver, const Gpus& gpus);

// Copies for some ten milliseconds, while no function is there, to see what one, two, four and
// eight links carry together and what goes between GPUs. Nothing, where no GPUs are joined. What
// cannot be measured stays as it was. Another context is current afterwards. Waits for the GPUs.
void measure_links(const Driver& driver, const Gpus& gpus, policies::HostLinks& links);

}  // namespace tube::proxy
