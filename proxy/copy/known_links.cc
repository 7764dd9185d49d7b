#include "proxy/copy/known_links.h"

#include <algorithm>
#include <iterator>
#include <vector>

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

constexpr uint64_t kBytes = 4u << 20;
constexpr uint32_t kCopies = 3;  // one behind the other, on each link

// Streams, events and memory of all GPUs for the time of the measurement.
class Meter {
 public:
  Meter(const Driver& driver, const Gpus& gpus) : driver_(driver), gpus_(gpus) {}
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  bool open(uint32_t gpus);
  // Bytes a second; 0: the driver refused something.
  uint64_t together(bool up, uint32_t links);
  uint64_t between(uint32_t from, uint32_t to);

 private:
  struct Line {
    CUstream stream = nullptr;
    CUevent begin = nullptr, end = nullptr;
    CUdeviceptr device = 0;
    void* host = nullptr;
  };
  bool current(uint32_t gpu) const {
    return driver_.cuCtxSetCurrent(gpus_[gpu].context) == CUDA_SUCCESS;
  }
  bool open_line(Line& line);
  template <class Copy>
  bool start(const Line& line, const Copy& copy);
  double seconds(const Line& line) const;  // 0: it failed

  const Driver& driver_;
  const Gpus& gpus_;
  std::vector<Line> lines_;
};

bool Meter::open_line(Line& line) {
  return driver_.cuStreamCreate(&line.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
         driver_.cuEventCreate(&line.begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
         driver_.cuEventCreate(&line.end, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
         driver_.cuMemAlloc_v2(&line.device, kBytes) == CUDA_SUCCESS &&
         driver_.cuMemHostAlloc(&line.host, kBytes, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS;
}

bool Meter::open(uint32_t gpus) {
  lines_.resize(gpus);
  for (uint32_t gpu = 0; gpu < gpus; ++gpu)
    if (!current(gpu) || !open_line(lines_[gpu])) return false;
  return true;
}

Meter::~Meter() {
  for (uint32_t gpu = 0; gpu < lines_.size(); ++gpu) {
    const Line& line = lines_[gpu];
    if (!current(gpu)) continue;
    if (line.stream != nullptr) (void)driver_.cuStreamSynchronize(line.stream);
    if (line.host != nullptr) (void)driver_.cuMemFreeHost(line.host);
    if (line.device != 0) (void)driver_.cuMemFree_v2(line.device);
    if (line.begin != nullptr) (void)driver_.cuEventDestroy_v2(line.begin);
    if (line.end != nullptr) (void)driver_.cuEventDestroy_v2(line.end);
    if (line.stream != nullptr) (void)driver_.cuStreamDestroy_v2(line.stream);
  }
}

template <class Copy>
bool Meter::start(const Line& line, const Copy& copy) {
  bool started = driver_.cuEventRecord(line.begin, line.stream) == CUDA_SUCCESS;
  for (uint32_t i = 0; i < kCopies && started; ++i) started = copy(line) == CUDA_SUCCESS;
  return started && driver_.cuEventRecord(line.end, line.stream) == CUDA_SUCCESS;
}

double Meter::seconds(const Line& line) const {
  float ms = 0;
  const bool known = driver_.cuEventSynchronize(line.end) == CUDA_SUCCESS &&
                     driver_.cuEventElapsedTime(&ms, line.begin, line.end) == CUDA_SUCCESS;
  return known ? double{ms} / 1000 : 0;
}

uint64_t Meter::together(bool up, uint32_t links) {
  const auto copy = [&](const Line& line) {
    return up ? driver_.cuMemcpyHtoDAsync_v2(line.device, line.host, kBytes, line.stream)
              : driver_.cuMemcpyDtoHAsync_v2(line.host, line.device, kBytes, line.stream);
  };
  for (uint32_t gpu = 0; gpu < links; ++gpu)
    if (!current(gpu) || !start(lines_[gpu], copy)) return 0;
  double longest = 0;
  for (uint32_t gpu = 0; gpu < links; ++gpu) {
    const double took = seconds(lines_[gpu]);
    if (took <= 0) return 0;
    longest = std::max(longest, took);
  }
  return static_cast<uint64_t>(double(links * kCopies * kBytes) / longest);
}

uint64_t Meter::between(uint32_t from, uint32_t to) {
  const auto copy = [&](const Line& line) {
    return driver_.cuMemcpyPeerAsync(line.device, gpus_[to].context, lines_[from].device,
                                     gpus_[from].context, kBytes, line.stream);
  };
  if (!current(to) || !start(lines_[to], copy)) return 0;
  const double took = seconds(lines_[to]);
  return took <= 0 ? 0 : static_cast<uint64_t>(double(kCopies * kBytes) / took);
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

void measure_links(const Driver& driver, const Gpus& gpus, policies::HostLinks& links) {
  bool any = false;
  for (const auto& row : links.between_bytes_per_s)
    any = any || std::any_of(std::begin(row), std::end(row), [](uint64_t rate) { return rate; });
  Meter meter(driver, gpus);
  if (!any || !meter.open(links.count)) return;
  for (const bool up : {true, false}) {
    const auto way = static_cast<uint32_t>(up ? policies::HostWay::kUp : policies::HostWay::kDown);
    (void)meter.together(up, links.count);  // pages and clocks are awake then
    // Each of the first four: which of them is the last that pays decides (three to the host).
    for (uint32_t count = 1; count <= links.count; count += count < 4 ? 1 : 2) {
      // The better one of two: what disturbs a measurement makes it slower.
      const uint64_t rate = std::max(meter.together(up, count), meter.together(up, count));
      links.together_bytes_per_s[way][count] = rate;
      if (count != 1 || rate == 0) continue;
      for (uint32_t gpu = 0; gpu < links.count; ++gpu)
        links.link[gpu].alone_bytes_per_s[way] = rate;
    }
  }
  for (uint32_t a = 0; a < links.count; ++a) {
    for (uint32_t b = 0; b < links.count; ++b) {
      if (links.between_bytes_per_s[a][b] == 0) continue;
      if (const uint64_t rate = meter.between(a, b)) links.between_bytes_per_s[a][b] = rate;
    }
  }
}

}  // namespace tube::proxy
