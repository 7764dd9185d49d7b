// What the simulated machine looks like: devices, and the links between them and the host.
//
// Chosen once, at cuInit, from TUBE_SIM_TOPOLOGY (a preset's name or a file) and overridden by
// single TUBE_SIM_* settings; see sim/README.md for both. Immutable afterwards, except for what
// fault injection does to a bandwidth.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tube::sim {

struct DeviceSpec {
  std::string name = "Tube Simulated GPU";
  int sm = 90;  // compute capability times ten
  uint64_t memory_bytes = 0;
  int sm_count = 132;
  int clock_khz = 1785000;
  int memory_clock_khz = 2619000;
  int bus_width_bits = 5120;
  double pcie_bytes_per_s = 55e9;  // each direction
  uint64_t block_ns = 0;           // what a block of a kernel takes; 0: kernels take no time
  uint64_t copy_ns = 4000;         // what a copy takes besides its bytes (docs/facts.md)
  int pcie_switch = 0;             // devices of one switch share its uplink
  int numa_node = 0;
  int pci_bus = 0;  // filled in order when zero
};

// One direction of one cable. Copies on it queue behind each other.
struct Link {
  int from = 0, to = 0;  // device index; -1 is the host
  std::atomic<double> bytes_per_s{0};
  std::atomic<uint64_t> free_at_ns{
      0};  // TUBE_SIM_TIME=real: when the last accepted byte is through
};

struct NvLink {
  int a = 0, b = 0;
  double bytes_per_s = 0;  // each direction
};

struct TopologySpec {
  std::vector<DeviceSpec> devices;
  std::vector<NvLink> nvlinks;
  // What a device sends, and receives, over all its NVLinks; 0: their sum. Behind NVSwitch each
  // device reaches all others at this rate. Not part of what a transfer takes here.
  double nvlink_ports_bytes_per_s = 0;
  double switch_bytes_per_s = 0;  // uplink of a PCIe switch, 0: not a bottleneck
  bool pcie_p2p = true;           // peers without NVLink reach each other over PCIe
};

// Reads the environment. On a malformed file or setting *error gets one line and the default is
// used.
TopologySpec load_topology(std::string* error);
bool find_preset(const std::string& name, TopologySpec* spec);
bool parse_topology(const std::string& text, TopologySpec* spec, std::string* error);
// "8G", "512M", "1048576"; false when malformed.
bool parse_bytes(const std::string& text, uint64_t* bytes);

// The links of one machine, built from the spec.
class Fabric {
 public:
  explicit Fabric(const TopologySpec& spec);
  // Takes as long as moving so many bytes would; returns at once unless TUBE_SIM_TIME=real. -1 is
  // the host.
  void transfer(int from, int to, uint64_t bytes);
  // Bytes per second between two devices, 0 when they have no NVLink.
  double nvlink(int a, int b) const;
  // Bytes per second between the host and a device.
  double host_link(int device, bool up) const;
  bool set_bandwidth(size_t link, double bytes_per_s);
  bool pcie_p2p() const { return pcie_p2p_; }

 private:
  std::vector<Link*> path(int from, int to) const;
  Link* add(int from, int to, double bytes_per_s);
  Link* find(int from, int to) const;

  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::pair<Link*, Link*>> uplinks_;  // per switch: to the host, from the host
  std::vector<int> switch_of_;
  bool real_time_ = false;
  bool pcie_p2p_ = true;
};

}  // namespace tube::sim
