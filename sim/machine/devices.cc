// The device list: what CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER leave of the topology.
#include "sim/machine/devices.h"

#include <strings.h>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace tube::sim {
namespace {

CUuuid uuid_of(int physical, const DeviceSpec& spec) {
  CUuuid u{};
  const char tag[] = "TubeSimGPU";
  std::memcpy(u.bytes, tag, sizeof tag - 1);
  u.bytes[10] = static_cast<char>(spec.sm);
  u.bytes[14] = static_cast<char>(physical >> 8);
  u.bytes[15] = static_cast<char>(physical);
  return u;
}

std::string uuid_text(const CUuuid& u) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char byte[3];
    std::snprintf(byte, sizeof byte, "%02x", static_cast<unsigned char>(u.bytes[i]));
    text += byte;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

bool names_uuid(const std::string& item) {
  return item.rfind("GPU-", 0) == 0 || item.rfind("MIG-", 0) == 0;
}

// -1: the item names no device, and the list ends here. What comes behind a whole UUID does not
// count.
int match_uuid(const std::string& item, const TopologySpec& spec, const std::vector<int>& order) {
  int found = -1;
  const std::string digits = item.substr(4, 36);
  if (digits.empty()) return -1;
  for (int p : order) {
    const std::string uuid = uuid_text(uuid_of(p, spec.devices[static_cast<size_t>(p)]));
    if (strncasecmp(uuid.c_str() + 4, digits.c_str(), digits.size()) != 0) continue;
    if (found >= 0) return -1;  // ambiguous
    found = p;
  }
  return found;
}

int match_index(const std::string& item, const std::vector<int>& order) {
  char* end = nullptr;
  long index = std::strtol(item.c_str(), &end, 0);
  if (end == item.c_str() || index < 0 || static_cast<size_t>(index) >= order.size()) return -1;
  return order[static_cast<size_t>(index)];
}

// CUDA_ERROR_INVALID_DEVICE for an unknown order and for a device named twice; a list is all
// indices or all UUIDs.
CUresult visible_devices(const TopologySpec& spec, std::vector<int>* visible) {
  std::vector<int> order;
  for (size_t i = 0; i < spec.devices.size(); ++i) order.push_back(static_cast<int>(i));
  const char* by = std::getenv("CUDA_DEVICE_ORDER");
  bool pci = by != nullptr && std::strcmp(by, "PCI_BUS_ID") == 0;
  if (by != nullptr && !pci && std::strcmp(by, "FASTEST_FIRST") != 0)
    return CUDA_ERROR_INVALID_DEVICE;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const DeviceSpec &x = spec.devices[static_cast<size_t>(a)],
                     &y = spec.devices[static_cast<size_t>(b)];
    if (pci) return x.pci_bus < y.pci_bus;
    return x.sm != y.sm ? x.sm > y.sm : x.sm_count > y.sm_count;  // fastest first
  });
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    *visible = order;
    return order.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
  }
  std::istringstream in(list);
  bool uuids = false;
  for (std::string item; std::getline(in, item, ',');) {
    item.erase(0, item.find_first_not_of(" \t"));
    if (visible->empty()) uuids = names_uuid(item);
    int p = uuids != names_uuid(item) ? -1
            : uuids                   ? match_uuid(item, spec, order)
                                      : match_index(item, order);
    if (p < 0) break;
    if (std::find(visible->begin(), visible->end(), p) != visible->end())
      return CUDA_ERROR_INVALID_DEVICE;
    visible->push_back(p);
  }
  return visible->empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

}  // namespace

void make_devices(State& s, const TopologySpec& spec, std::string* error) {
  if (spec.devices.size() > static_cast<size_t>(kMaxDevices)) {
    *error = "more devices than the simulator can hold";
    return;
  }
  std::vector<int> visible;
  s.init_result = visible_devices(spec, &visible);
  if (s.init_result != CUDA_SUCCESS) return;
  for (int physical : visible) {
    auto d = std::make_unique<Device>();
    d->ordinal = static_cast<int>(s.devices.size());
    d->physical = physical;
    d->spec = spec.devices[static_cast<size_t>(physical)];
    d->uuid = uuid_of(physical, d->spec);
    d->default_pool = new Pool;
    d->default_pool->device = d.get();
    d->default_pool->is_default = true;
    d->default_pool->props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    d->default_pool->props.location = {CU_MEM_LOCATION_TYPE_DEVICE, d->ordinal};
    d->default_pool->readable = d->default_pool->writable = 1ull << d->ordinal;
    d->current_pool = d->default_pool;
    s.live.emplace(d->default_pool, Kind::kPool);
    s.devices.push_back(std::move(d));
  }
}

bool peer_capable(const State& s, const Device& a, const Device& b) {
  if (&a == &b) return false;
  if (s.fabric->nvlink(a.physical, b.physical) > 0) return true;
  return s.fabric->pcie_p2p();
}

}  // namespace tube::sim
