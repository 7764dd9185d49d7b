// The proxy's GPUs: one primary context each, made at start and kept until the end; every client
// works in it.
//
// Peer access between all of them is switched on once. Read-only after open(), so any thread may
// look; a GPU whose context died of a sticky error is marked by an atomic and refuses new work.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cuda_api.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "proxy/gpu/context_gate.h"
#include "proxy/gpu/registrations.h"
#include "proxy/gpu/shared_limits.h"

namespace tube::proxy {

struct Driver;
class MemoryProbe;

struct Gpu {
  Gpu();
  ~Gpu();

  int ordinal = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  std::string name;
  CUuuid uuid{};
  uint64_t total_bytes = 0;
  std::optional<uint64_t> context_bytes;  // what making the context took; nothing: not known
  int capability = 0;                     // compute capability times ten
  SharedLimits limits;                    // what functions asked for with cuCtxSetLimit
  uint64_t granularity = 2u << 20;        // of cuMemCreate memory
  std::vector<CUmemAccessDesc> access;  // the GPUs that may reach its memory: itself and its peers
  std::atomic<uint32_t> local_bytes{
      0};  // of local memory per thread: the most that a launched kernel has needed
  // Of the device runtime, what a launched kernel is known to have used (code/image_scan.h).
  std::atomic<uint32_t> runtime_used{0};
  std::atomic<uint32_t> failed{0};  // the sticky CUresult that ended the context
};

class Gpus {
 public:
  explicit Gpus(const Driver& driver);
  ~Gpus();
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;

  // Initialises the driver and makes every visible GPU's context. Takes 0.1-0.3 s per GPU.
  Status open();
  // After the last session ended.
  void close();

  uint32_t count() const { return static_cast<uint32_t>(gpus_.size()); }
  Gpu& operator[](uint32_t ordinal) { return *gpus_[ordinal]; }
  const Gpu& operator[](uint32_t ordinal) const { return *gpus_[ordinal]; }
  // Whether work of `gpu` may name memory that was mapped for `owner`.
  bool reaches(uint32_t gpu, uint32_t owner) const;
  // In front of all of them (context_gate.h).
  ContextGate& gate() const { return gate_; }
  // Of host memory with all of them (registrations.h).
  Registrations& registrations() const { return registrations_; }
  // Of all GPUs.
  std::span<const int> capabilities() const { return capabilities_; }
  int driver_version() const { return driver_version_; }
  // The sealed description that every client maps (protocol/device_info.h).
  Result<UniqueFd> make_info_file(const std::string& workflow, bool is_sim) const;

 private:
  Status open_gpu(int ordinal, MemoryProbe& probe);
  void enable_peers();

  const Driver& driver_;
  mutable ContextGate gate_;
  mutable Registrations registrations_;
  int driver_version_ = 0;
  std::vector<int> capabilities_;
  std::vector<std::unique_ptr<Gpu>> gpus_;  // each stays where it is
};

// True for the results after which a context only repeats the error (docs/facts.md).
bool is_sticky(CUresult result);
// "CUDA_ERROR_ILLEGAL_ADDRESS (700)"
std::string result_text(const Driver& driver, CUresult result);
// "GPU-00010203-0405-..."
std::string uuid_text(const CUuuid& uuid);

}  // namespace tube::proxy
