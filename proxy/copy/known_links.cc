#include "proxy/copy/known_links.h"

#include <algorithm>

#include "policies/link_share.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/gpus.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kUnseen = policies::LinkShare::Options{}.bytes_per_s;
constexpr uint64_t kNvlink = 300'000'000'000;  // more than a host link, as every NVLink switch

bool reaches(const Gpu& who, const Gpu& whose) {
  return std::any_of(whose.access.begin(), whose.access.end(), [&](const CUmemAccessDesc& access) {
    return access.location.id == who.device;
  });
}

// Native atomics between two GPUs are what NVLink has and PCIe has not. Both ways between a copy's
// GPU and a relay are the GPU's work, in the relay's memory.
bool joined(const Driver& driver, const Gpu& a, const Gpu& b) {
  int atomics = 0;
  return reaches(a, b) && reaches(b, a) &&
         driver.cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                                        a.device, b.device) == CUDA_SUCCESS &&
         atomics != 0;
}

}  // namespace

policies::HostLinks known_links(const Driver& driver, const Gpus& gpus) {
  policies::HostLinks links;
  links.count = std::min(gpus.count(), policies::kMaxHostLinks);
  for (uint32_t a = 0; a < links.count; ++a) {
    links.link[a].pcie_switch = a;
    for (uint64_t& alone : links.link[a].alone_bytes_per_s) alone = kUnseen;
    for (uint32_t b = 0; b < links.count; ++b)
      if (a != b && joined(driver, gpus[a], gpus[b])) links.between_bytes_per_s[a][b] = kNvlink;
  }
  return links;
}

}  // namespace tube::proxy
