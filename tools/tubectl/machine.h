// A machine's links, as the policies of paths and placement want them: from a preset of the
// simulated GPU or a topology file (sim/README.md). A proxy does not tell its machine's yet.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "policies/paths/gpu_paths.h"
#include "policies/paths/multipath.h"
#include "policies/paths/placement.h"
#include "sim/machine/topology.h"

namespace tube::ctl {

struct Machine {
  std::vector<std::string> gpu_names;
  policies::GpuLinks nvlink;
  policies::HostLinks host;
  uint64_t copy_ns = 0;  // what a copy costs besides its bytes
};

// How data between two GPUs goes: over the pair's own link, or over all paths that an idle machine
// has. Without either through host memory.
enum class Between { kDirect, kPaths };

// Error: no such preset or file, a line in it that is not understood, more GPUs than kMaxGpus.
Result<Machine> load_machine(const std::string& preset_or_file);
Result<Machine> machine_of(const sim::TopologySpec& spec);

// The slowest link between a GPU and the host, its switch's uplink included.
uint64_t host_bytes_per_s(const Machine& machine, uint32_t gpu);

// With all GPUs free.
policies::PlacementGpus placement_gpus(const Machine& machine, Between between);

}  // namespace tube::ctl
