#include "hook/visible_devices.h"

#include <strings.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace tube::hook {
namespace {

constexpr uint32_t kNoDevice = ~0u;

uint32_t by_uuid(const std::string& entry, const info::DeviceInfo* devices, uint32_t count) {
  if (entry.size() < 5) return kNoDevice;
  uint32_t found = kNoDevice;
  for (uint32_t i = 0; i < count; ++i) {
    char text[41];
    format_uuid(devices[i].uuid, text);
    if (strncasecmp(text, entry.c_str(), entry.size()) != 0) continue;
    if (found != kNoDevice) return kNoDevice;  // ambiguous
    found = i;
  }
  return found;
}

uint32_t find_device(const std::string& entry, const info::DeviceInfo* devices, uint32_t count) {
  if (entry.rfind("GPU-", 0) == 0) return by_uuid(entry, devices, count);
  char* end = nullptr;
  const long ordinal = std::strtol(entry.c_str(), &end, 10);
  if (end == entry.c_str() || *end != 0 || ordinal < 0 || ordinal >= static_cast<long>(count)) return kNoDevice;
  return static_cast<uint32_t>(ordinal);
}

std::string trimmed(const std::string& s) {
  const size_t first = s.find_first_not_of(" \t");
  return first == std::string::npos ? "" : s.substr(first, s.find_last_not_of(" \t") - first + 1);
}

}  // namespace

void format_uuid(const uint8_t u[16], char out[41]) {
  std::snprintf(out, 41, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4],
                u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

uint32_t choose_visible_devices(const char* text, const info::DeviceInfo* devices, uint32_t count, uint32_t* chosen) {
  if (text == nullptr) {
    for (uint32_t i = 0; i < count; ++i) chosen[i] = i;
    return count;
  }
  const std::string list = text;
  uint32_t n = 0;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = list.find(',', at) == std::string::npos ? list.size() : list.find(',', at);
    const uint32_t device = find_device(trimmed(list.substr(at, comma - at)), devices, count);
    if (device == kNoDevice) break;
    for (uint32_t i = 0; i < n; ++i) {
      if (chosen[i] == device) return 0;
    }
    chosen[n++] = device;
    at = comma + 1;
  }
  return n;
}

}  // namespace tube::hook
