#include "tools/tubectl/machine.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace tube::ctl {
namespace {

static_assert(policies::kMaxGpus == policies::kMaxHostLinks);
static_assert(policies::kMaxGpus == policies::kMaxPlacedGpus);

uint64_t rate(double bytes_per_s) { return static_cast<uint64_t>(bytes_per_s); }

}  // namespace

Result<Machine> machine_of(const sim::TopologySpec& spec) {
  if (spec.devices.empty()) return errorf("the topology has no GPU");
  if (spec.devices.size() > policies::kMaxGpus)
    return errorf("the topology has %zu GPUs, more than %u", spec.devices.size(),
                  policies::kMaxGpus);
  Machine m;
  m.nvlink.gpus = m.host.count = static_cast<uint32_t>(spec.devices.size());
  m.host.switch_bytes_per_s = rate(spec.switch_bytes_per_s);
  for (uint32_t g = 0; g < m.nvlink.gpus; ++g) {
    const sim::DeviceSpec& d = spec.devices[g];
    m.gpu_names.push_back(d.name);
    m.copy_ns = std::max(m.copy_ns, d.copy_ns);
    m.nvlink.ports_bytes_per_s[g] = rate(spec.nvlink_ports_bytes_per_s);
    // Numbered anew: the first GPU behind the same switch.
    m.host.link[g].pcie_switch = static_cast<uint32_t>(
        std::find_if(spec.devices.begin(), spec.devices.end(),
                     [&](const sim::DeviceSpec& o) { return o.pcie_switch == d.pcie_switch; }) -
        spec.devices.begin());
    for (uint64_t& alone : m.host.link[g].alone_bytes_per_s) alone = rate(d.pcie_bytes_per_s);
  }
  for (const sim::NvLink& l : spec.nvlinks) {
    for (auto [a, b] : {std::pair{l.a, l.b}, std::pair{l.b, l.a}}) {
      m.nvlink.bytes_per_s[a][b] += rate(l.bytes_per_s);
      m.host.between_bytes_per_s[a][b] += rate(l.bytes_per_s);
    }
  }
  return m;
}

Result<Machine> load_machine(const std::string& preset_or_file) {
  sim::TopologySpec spec;
  if (!sim::find_preset(preset_or_file, &spec)) {
    std::ifstream file(preset_or_file);
    std::stringstream text;
    text << file.rdbuf();
    std::string why;
    if (!file)
      return errorf("%s: no such file, nor one of the presets 1x, dgx-v100, hgx-h200, 4xa10",
                    preset_or_file.c_str());
    if (!sim::parse_topology(text.str(), &spec, &why))
      return errorf("%s: %s", preset_or_file.c_str(), why.c_str());
  }
  return machine_of(spec);
}

uint64_t host_bytes_per_s(const Machine& machine, uint32_t gpu) {
  const uint64_t link = machine.host.link[gpu].alone_bytes_per_s[0];
  const uint64_t uplink = machine.host.switch_bytes_per_s;
  return uplink == 0 ? link : std::min(link, uplink);
}

policies::PlacementGpus placement_gpus(const Machine& machine, Between between) {
  policies::PlacementGpus gpus;
  gpus.count = machine.nvlink.gpus;
  for (uint32_t a = 0; a < gpus.count; ++a) {
    gpus.free_share[a] = policies::kWholeGpu;
    gpus.up_bytes_per_s[a] = gpus.down_bytes_per_s[a] = host_bytes_per_s(machine, a);
    for (uint32_t b = 0; b < gpus.count; ++b) {
      if (a == b) continue;
      uint64_t best = machine.nvlink.bytes_per_s[a][b];
      if (between == Between::kPaths) {
        policies::GpuPaths paths(machine.nvlink);
        policies::GpuTransfer transfer;
        transfer.from = a;
        transfer.to = b;
        best = paths.open(transfer)->bytes_per_s;
      }
      const uint64_t host = std::min(host_bytes_per_s(machine, a), host_bytes_per_s(machine, b));
      gpus.between_bytes_per_s[a][b] = best != 0 ? best : host;
    }
  }
  return gpus;
}

}  // namespace tube::ctl
