#include "hook/process/visible_devices.h"

#include <strings.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace tube::hook {
namespace {

constexpr uint32_t kNoDevice = ~0u;

constexpr size_t kUuidText = 40;  // what comes behind a whole UUID does not count

bool names_uuid(const std::string& entry) {
  return entry.rfind("GPU-", 0) == 0 || entry.rfind("MIG-", 0) == 0;
}

// The driver takes the UUID of an undivided GPU behind "MIG-" too (H200, 13.0).
uint32_t by_uuid(const std::string& entry, const info::DeviceInfo* devices, uint32_t count) {
  if (entry.size() < 5) return kNoDevice;
  const std::string digits = entry.substr(4, kUuidText - 4);
  uint32_t found = kNoDevice;
  for (uint32_t i = 0; i < count; ++i) {
    char text[41];
    format_uuid(devices[i].uuid, text);
    if (strncasecmp(text + 4, digits.c_str(), digits.size()) != 0) continue;
    if (found != kNoDevice) return kNoDevice;  // ambiguous
    found = i;
  }
  return found;
}

uint32_t by_ordinal(const std::string& entry, uint32_t count, const uint32_t* order) {
  char* end = nullptr;
  const long ordinal = std::strtol(entry.c_str(), &end, 0);
  // What comes behind the digits does not count, as on an H200 with 13.0.
  if (end == entry.c_str() || ordinal < 0 || ordinal >= static_cast<long>(count)) return kNoDevice;
  return order[ordinal];
}

// The proxy's order is the driver's, fastest first, unless it was started with --gpus.
bool order_devices(const char* by, const info::DeviceInfo* devices, uint32_t count,
                   uint32_t* order) {
  for (uint32_t i = 0; i < count; ++i) order[i] = i;
  if (by == nullptr || std::strcmp(by, "FASTEST_FIRST") == 0) return true;
  if (std::strcmp(by, "PCI_BUS_ID") != 0) return false;
  std::stable_sort(order, order + count, [&](uint32_t a, uint32_t b) {
    return strncasecmp(devices[a].pci_bus_id, devices[b].pci_bus_id, sizeof devices[a].pci_bus_id) <
           0;
  });
  return true;
}

std::string trimmed(const std::string& s) {
  const size_t first = s.find_first_not_of(" \t");
  return first == std::string::npos ? "" : s.substr(first, s.find_last_not_of(" \t") - first + 1);
}

}  // namespace

void format_uuid(const uint8_t u[16], char out[41]) {
  std::snprintf(out, 41, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
                u[13], u[14], u[15]);
}

uint32_t choose_visible_devices(const char* text, const char* order_by,
                                const info::DeviceInfo* devices, uint32_t count, uint32_t* chosen) {
  uint32_t order[info::kMaxDevices];
  if (!order_devices(order_by, devices, count, order)) return kBadVisibleDevices;
  if (text == nullptr) {
    std::copy(order, order + count, chosen);
    return count;
  }
  const std::string list = text;
  const bool uuids =
      names_uuid(trimmed(list));  // of the first entry: the list ends where the kind changes
  uint32_t n = 0;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = list.find(',', at) == std::string::npos ? list.size() : list.find(',', at);
    const std::string entry = trimmed(list.substr(at, comma - at));
    if (uuids != names_uuid(entry)) break;
    const uint32_t device =
        uuids ? by_uuid(entry, devices, count) : by_ordinal(entry, count, order);
    if (device == kNoDevice) break;
    for (uint32_t i = 0; i < n; ++i) {
      if (chosen[i] == device) return kBadVisibleDevices;
    }
    chosen[n++] = device;
    at = comma + 1;
  }
  return n;
}

}  // namespace tube::hook
