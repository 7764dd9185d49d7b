// Presets, the topology file, single settings, and how long a transfer takes.
#include "sim/machine/topology.h"

#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace tube::sim {
namespace {

DeviceSpec h200() {
  DeviceSpec d;
  d.name = "Tube Simulated H200";
  d.memory_bytes = 141ull << 30;
  return d;
}

DeviceSpec v100() {
  DeviceSpec d;
  d.name = "Tube Simulated V100";
  d.sm = 70;
  d.memory_bytes = 16ull << 30;
  d.sm_count = 80;
  d.clock_khz = 1530000;
  d.memory_clock_khz = 877000;
  d.bus_width_bits = 4096;
  d.pcie_bytes_per_s = 12.5e9;
  return d;
}

DeviceSpec a10() {
  DeviceSpec d;
  d.name = "Tube Simulated A10";
  d.sm = 86;
  d.memory_bytes = 24ull << 30;
  d.sm_count = 72;
  d.clock_khz = 1695000;
  d.memory_clock_khz = 6251000;
  d.bus_width_bits = 384;
  d.pcie_bytes_per_s = 25e9;
  return d;
}

TopologySpec dgx_v100() {
  TopologySpec t;
  for (int i = 0; i < 8; ++i) {
    DeviceSpec d = v100();
    d.pcie_switch = i / 2;
    d.numa_node = i / 4;
    t.devices.push_back(d);
  }
  t.switch_bytes_per_s = 12.5e9;
  // The hybrid cube mesh of that machine: device pair, number of 25 GB/s links.
  static constexpr int kLinks[][3] = {
      {0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
      {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
  for (auto& l : kLinks) t.nvlinks.push_back({l[0], l[1], l[2] * 25e9});
  return t;
}

TopologySpec hgx_h200() {
  TopologySpec t;
  for (int i = 0; i < 8; ++i) {
    DeviceSpec d = h200();
    d.pcie_switch = i;
    d.numa_node = i / 4;
    t.devices.push_back(d);
  }
  for (int a = 0; a < 8; ++a)
    for (int b = a + 1; b < 8; ++b) t.nvlinks.push_back({a, b, 450e9});
  t.nvlink_ports_bytes_per_s = 450e9;
  return t;
}

TopologySpec four_a10() {
  TopologySpec t;
  for (int i = 0; i < 4; ++i) {
    DeviceSpec d = a10();
    d.pcie_switch = i;
    d.numa_node = i / 2;
    t.devices.push_back(d);
  }
  t.pcie_p2p = false;
  return t;
}

TopologySpec one() {
  TopologySpec t;
  DeviceSpec d = h200();
  d.memory_bytes =
      8ull << 30;  // small, so that running out is easy to test; only accounted, not touched
  t.devices.push_back(d);
  return t;
}

bool parse_double(const std::string& text, double* value) {
  char* end = nullptr;
  *value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && *value >= 0;
}

bool apply_device(DeviceSpec* d, const std::string& key, const std::string& value) {
  double n = 0;
  if (key == "name") {
    d->name = value;
    std::replace(d->name.begin(), d->name.end(), '_', ' ');
    return !value.empty();
  }
  if (key == "memory") return parse_bytes(value, &d->memory_bytes);
  if (!parse_double(value, &n)) return false;
  if (key == "sm") d->sm = static_cast<int>(n);
  else if (key == "sms") d->sm_count = static_cast<int>(n);
  else if (key == "clock_khz") d->clock_khz = static_cast<int>(n);
  else if (key == "pcie") d->pcie_bytes_per_s = n;
  else if (key == "copy_ns") d->copy_ns = static_cast<uint64_t>(n);
  else if (key == "block_ns") d->block_ns = static_cast<uint64_t>(n);
  else if (key == "switch") d->pcie_switch = static_cast<int>(n);
  else if (key == "numa") d->numa_node = static_cast<int>(n);
  else return false;
  return true;
}

bool parse_line(const std::string& line, TopologySpec* spec) {
  std::istringstream in(line);
  std::string word;
  if (!(in >> word) || word[0] == '#') return true;
  if (word == "device") {
    DeviceSpec d = h200();
    int copies = 1;
    while (in >> word) {
      size_t equals = word.find('=');
      if (equals == std::string::npos) return false;
      std::string key = word.substr(0, equals), value = word.substr(equals + 1);
      if (key == "count") copies = std::atoi(value.c_str());
      else if (!apply_device(&d, key, value)) return false;
    }
    for (int i = 0; i < copies; ++i) spec->devices.push_back(d);
    return copies > 0;
  }
  if (word == "nvlink") {
    NvLink link;
    std::string bandwidth;
    if (!(in >> link.a >> link.b >> bandwidth) || !parse_double(bandwidth, &link.bytes_per_s))
      return false;
    spec->nvlinks.push_back(link);
    return true;
  }
  std::string value;
  if (word == "switch_uplink")
    return (in >> value) && parse_double(value, &spec->switch_bytes_per_s);
  if (word == "nvlink_ports")
    return (in >> value) && parse_double(value, &spec->nvlink_ports_bytes_per_s);
  if (word == "pcie_p2p") return static_cast<bool>(in >> spec->pcie_p2p);
  return false;
}

// TUBE_SIM_COUNT, _MEMORY, _SM, _SMS, _NAME, _PCIE, _BLOCK_NS: applied to every device.
bool apply_settings(TopologySpec* spec, std::string* error) {
  static constexpr const char* kSettings[][2] = {
      {"TUBE_SIM_MEMORY", "memory"}, {"TUBE_SIM_SM", "sm"},     {"TUBE_SIM_SMS", "sms"},
      {"TUBE_SIM_NAME", "name"},     {"TUBE_SIM_PCIE", "pcie"}, {"TUBE_SIM_BLOCK_NS", "block_ns"}};
  bool good = true;
  if (const char* count = std::getenv("TUBE_SIM_COUNT")) {
    int n = std::atoi(count);
    if (n < 0 || n > 64 || spec->devices.empty()) {
      *error = std::string("TUBE_SIM_COUNT: not a device count: ") + count;
      good = false;
    } else {
      DeviceSpec last = spec->devices.back();
      spec->devices.resize(static_cast<size_t>(n), last);
      std::erase_if(spec->nvlinks, [n](const NvLink& l) { return l.a >= n || l.b >= n; });
    }
  }
  for (auto& [variable, key] : kSettings) {
    const char* value = std::getenv(variable);
    if (value == nullptr) continue;
    for (DeviceSpec& d : spec->devices) {
      if (apply_device(&d, key, value)) continue;
      *error = std::string(variable) + ": not understood: " + value;
      good = false;
    }
  }
  return good;
}

}  // namespace

bool parse_bytes(const std::string& text, uint64_t* bytes) {
  char* end = nullptr;
  double n = std::strtod(text.c_str(), &end);
  if (text.empty() || end == text.c_str() || n < 0) return false;
  std::string unit(end);
  if (unit == "K") n *= 1024;
  else if (unit == "M") n *= 1048576;
  else if (unit == "G") n *= 1073741824;
  else if (unit == "T") n *= 1099511627776;
  else if (!unit.empty()) return false;
  *bytes = static_cast<uint64_t>(n);
  return true;
}

bool find_preset(const std::string& name, TopologySpec* spec) {
  if (name == "dgx-v100") *spec = dgx_v100();
  else if (name == "hgx-h200") *spec = hgx_h200();
  else if (name == "4xa10") *spec = four_a10();
  else if (name == "1x" || name.empty()) *spec = one();
  else return false;
  return true;
}

bool parse_topology(const std::string& text, TopologySpec* spec, std::string* error) {
  *spec = TopologySpec();
  std::istringstream in(text);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (parse_line(line, spec)) continue;
    *error = "line " + std::to_string(number) + " not understood: " + line;
    return false;
  }
  for (const NvLink& l : spec->nvlinks) {
    int n = static_cast<int>(spec->devices.size());
    if (l.a >= 0 && l.b >= 0 && l.a < n && l.b < n && l.a != l.b) continue;
    *error = "nvlink names a device that does not exist";
    return false;
  }
  if (spec->devices.size() <= 64) return true;
  *error = "more than 64 devices";
  return false;
}

TopologySpec load_topology(std::string* error) {
  const char* choice = std::getenv("TUBE_SIM_TOPOLOGY");
  TopologySpec spec;
  if (!find_preset(choice == nullptr ? "" : choice, &spec)) {
    std::ifstream file(choice);
    std::stringstream text;
    text << file.rdbuf();
    std::string why;
    if (!file) why = "no such preset or file";
    if (!file || !parse_topology(text.str(), &spec, &why)) {
      *error = std::string("TUBE_SIM_TOPOLOGY=") + choice + ": " + why;
      spec = one();
    }
  }
  apply_settings(&spec, error);
  for (size_t i = 0; i < spec.devices.size(); ++i)
    if (spec.devices[i].pci_bus == 0) spec.devices[i].pci_bus = static_cast<int>(0x10 + 8 * i);
  return spec;
}

Fabric::Fabric(const TopologySpec& spec) : pcie_p2p_(spec.pcie_p2p) {
  const char* time = std::getenv("TUBE_SIM_TIME");
  real_time_ = time != nullptr && std::strcmp(time, "real") == 0;
  int switches = 0;
  for (size_t i = 0; i < spec.devices.size(); ++i) {
    const DeviceSpec& d = spec.devices[i];
    add(static_cast<int>(i), -1, d.pcie_bytes_per_s);
    add(-1, static_cast<int>(i), d.pcie_bytes_per_s);
    switch_of_.push_back(d.pcie_switch);
    switches = std::max(switches, d.pcie_switch + 1);
  }
  for (int s = 0; s < switches && spec.switch_bytes_per_s > 0; ++s)
    uplinks_.push_back(
        {add(-2 - s, -1, spec.switch_bytes_per_s), add(-1, -2 - s, spec.switch_bytes_per_s)});
  for (const NvLink& l : spec.nvlinks) {
    add(l.a, l.b, l.bytes_per_s);
    add(l.b, l.a, l.bytes_per_s);
  }
}

Link* Fabric::add(int from, int to, double bytes_per_s) {
  auto link = std::make_unique<Link>();
  link->from = from;
  link->to = to;
  link->bytes_per_s.store(bytes_per_s, std::memory_order_relaxed);
  links_.push_back(std::move(link));
  return links_.back().get();
}

Link* Fabric::find(int from, int to) const {
  for (auto& l : links_)
    if (l->from == from && l->to == to) return l.get();
  return nullptr;
}

double Fabric::nvlink(int a, int b) const {
  if (a < 0 || b < 0 || a == b) return 0;
  Link* l = find(a, b);
  return l == nullptr ? 0 : l->bytes_per_s.load(std::memory_order_relaxed);
}

double Fabric::host_link(int device, bool up) const {
  return find(up ? -1 : device, up ? device : -1)->bytes_per_s.load(std::memory_order_relaxed);
}

bool Fabric::set_bandwidth(size_t link, double bytes_per_s) {
  if (link >= links_.size()) return false;
  links_[link]->bytes_per_s.store(bytes_per_s, std::memory_order_relaxed);
  return true;
}

std::vector<Link*> Fabric::path(int from, int to) const {
  if (from == to) return {};
  if (from >= 0 && to >= 0) {
    if (Link* direct = find(from, to)) return {direct};
  }
  std::vector<Link*> links;
  if (from >= 0) {
    links.push_back(find(from, -1));
    if (!uplinks_.empty())
      links.push_back(uplinks_[static_cast<size_t>(switch_of_[static_cast<size_t>(from)])].first);
  }
  if (to >= 0) {
    if (!uplinks_.empty())
      links.push_back(uplinks_[static_cast<size_t>(switch_of_[static_cast<size_t>(to)])].second);
    links.push_back(find(-1, to));
  }
  return links;
}

void Fabric::transfer(int from, int to, uint64_t bytes) {
  if (!real_time_ || bytes == 0) return;
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  uint64_t now =
      static_cast<uint64_t>(ts.tv_sec) * 1000000000ull + static_cast<uint64_t>(ts.tv_nsec);
  uint64_t end = now;
  for (Link* link : path(from, to)) {
    double rate = link->bytes_per_s.load(std::memory_order_relaxed);
    uint64_t length = static_cast<uint64_t>(static_cast<double>(bytes) / rate * 1e9);
    uint64_t free_at = link->free_at_ns.load(std::memory_order_relaxed);
    uint64_t done = 0;
    do done = std::max(free_at, now) + length;
    while (!link->free_at_ns.compare_exchange_weak(free_at, done, std::memory_order_relaxed));
    end = std::max(end, done);
  }
  timespec until{static_cast<time_t>(end / 1000000000ull), static_cast<long>(end % 1000000000ull)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace tube::sim
