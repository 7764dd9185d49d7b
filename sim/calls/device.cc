// cuDevice*: the list, its names and numbers, peers.
#include "sim/calls/device.h"

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

using namespace tube::sim;

#define SIM_DEVICE(variable, ordinal)    \
  Device* variable = device_at(ordinal); \
  if (variable == nullptr) return CUDA_ERROR_INVALID_DEVICE

SIM_API CUresult cuDriverGetVersion(int* driverVersion) {
  SIM_ENTER(kNothing);
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = kDriverVersion;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  SIM_ENTER(kInit);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, ordinal);
  *device = d->ordinal;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetCount(int* count) {
  SIM_ENTER(kInit);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(state().devices.size());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  SIM_ENTER(kInit);
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  std::snprintf(name, static_cast<size_t>(len), "%s", d->spec.name.c_str());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  SIM_ENTER(kInit);
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  *uuid = d->uuid;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  SIM_ENTER(kInit);
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  *uuid = d->uuid;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  if (!initialized() && bytes != nullptr) *bytes = 0;
  SIM_ENTER(kInit);
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  *bytes = d->spec.memory_bytes;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  SIM_ENTER(kInit);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  return device_attribute(*d, attrib, pi) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  SIM_ENTER(kInit);
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  *major = d->spec.sm / 10;
  *minor = d->spec.sm % 10;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  SIM_ENTER(kInit);
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  auto get = [d](CUdevice_attribute a) {
    int v = 0;
    device_attribute(*d, a, &v);
    return v;
  };
  *prop = {get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
           {get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X), get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
            get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
           {get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
            get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
           get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
           get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
           get(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
           get(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
           get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
           get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
           get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)};
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  SIM_ENTER(kInit);
  if (pciBusId == nullptr || len < 13) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  std::snprintf(pciBusId, static_cast<size_t>(len), "0000:%02X:00.0",
                static_cast<unsigned>(d->spec.pci_bus) & 0xff);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  SIM_ENTER(kInit);
  if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, slot = 0;
  if (std::sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (std::sscanf(pciBusId, "%x:%x", &bus, &slot) != 2) return CUDA_ERROR_INVALID_VALUE;
  }
  for (auto& d : state().devices) {
    if (domain != 0 || slot != 0 || static_cast<unsigned>(d->spec.pci_bus) != bus) continue;
    *dev = d->ordinal;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

SIM_API CUresult cuDeviceGetLuid(char* luid, unsigned int* deviceNodeMask, CUdevice dev) {
  SIM_ENTER(kInit);
  if (luid == nullptr || deviceNodeMask == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  (void)d;
  return CUDA_ERROR_NOT_SUPPORTED;  // Windows only, as on a real Linux driver
}

static bool plain_format(CUarray_format format) {
  switch (static_cast<int>(format)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_FLOAT: return true;
    default: return false;
  }
}

SIM_API CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements,
                                                    CUarray_format format, unsigned numChannels,
                                                    CUdevice dev) {
  SIM_ENTER(kInit);
  if (maxWidthInElements == nullptr || (numChannels != 1 && numChannels != 2 && numChannels != 4) ||
      !plain_format(format))
    return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  (void)d;
  *maxWidthInElements = 268435456;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType type, CUdevice dev) {
  SIM_ENTER(kInit);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  (void)d;
  (void)type;  // no kind is supported, the unknown ones included
  *pi = 0;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  SIM_ENTER(kInit);
  if (canAccessPeer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(a, dev);
  SIM_DEVICE(b, peerDev);
  *canAccessPeer = peer_capable(state(), *a, *b) ? 1 : 0;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib,
                                         CUdevice srcDevice, CUdevice dstDevice) {
  SIM_ENTER(kInit);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(a, srcDevice);
  SIM_DEVICE(b, dstDevice);
  if (a == b) return CUDA_ERROR_INVALID_DEVICE;
  if (attrib < 1 || attrib > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED)
    return CUDA_ERROR_INVALID_VALUE;
  bool nvlink = state().fabric->nvlink(a->physical, b->physical) > 0;
  switch (attrib) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: *value = nvlink ? 0 : 1; break;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = peer_capable(state(), *a, *b) ? 1 : 0;
      break;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: *value = nvlink ? 1 : 0; break;
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED: *value = 0; break;
  }
  return CUDA_SUCCESS;
}
