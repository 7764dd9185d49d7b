// What the proxies of one user do on the links of a machine's GPUs, and with the GPUs' time: a file
// in the runtime folder that all of them map.
//
// Each proxy has a slot in it and writes nothing else: for each of its GPUs (told by UUID, since
// proxies count them differently) and direction the bytes that went over the link, and what its
// functions' SLOs ask of it. Others read; rates are differences of what was read. Two proxies are
// two contexts, which the hardware lets take turns copy by copy, so nobody decides for others here.
//
// A slot belongs to whoever holds the lock of its byte of the file (F_OFD_SETLK), which the kernel
// drops with the process: a proxy may die at any instruction. There is no mutex and no allocation
// in the file, every field is an atomic of its own, and what a dead proxy left is counted by nobody
// and overwritten by the next one in its slot. A file of zeros is a valid, empty one.
//
// Boost.Interprocess makes the mapping. The file is the user's own, as is every proxy's memory: who
// can write it could as well attach to the proxies. What is read is used as numbers only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/cuda_api.h"
#include "base/result.h"

namespace tube::proxy {

// One link, as its proxy counts it. Written through MachineLinks::mine().
struct LinkCell {
  std::atomic<uint64_t> bytes{0};               // since the proxy began; never falls
  std::atomic<uint64_t> needed_bytes_per_s{0};  // what SLOs ask for; 0: nothing
};

// The time of one GPU, as its proxy counts it. Written through MachineLinks::my_time().
struct TimeCell {
  std::atomic<uint64_t> running{0};   // long launches in flight
  std::atomic<uint64_t> wants_ns{0};  // when one ran or waited last (CLOCK_MONOTONIC)
};

class MachineLinks {
 public:
  static constexpr uint32_t kSlots = 64;  // proxies of a user at once; later ones are not counted
  static constexpr uint32_t kGpus = 16;   // of a proxy

  // Opens the file, makes it if it is not there, and takes a free slot. An error says why this
  // proxy is not counted and counts nobody: another layout, no slot, no space.
  static Result<std::unique_ptr<MachineLinks>> open(const std::string& path,
                                                    const std::string& workflow,
                                                    const std::vector<CUuuid>& gpus,
                                                    uint32_t weight = 0);
  ~MachineLinks();
  MachineLinks(const MachineLinks&) = delete;
  MachineLinks& operator=(const MachineLinks&) = delete;

  // This proxy's cell of its GPU, below kGpus. For as long as this lives. Any thread.
  LinkCell& mine(uint32_t gpu, bool to_gpu);

  // A link of another proxy that lives.
  struct Other {
    uint32_t slot = 0;  // its proxy, among those that live
    int32_t pid = 0;    // in its own PID namespace
    std::string workflow;
    CUuuid gpu{};
    bool to_gpu = false;
    uint64_t bytes = 0, needed_bytes_per_s = 0;
  };
  // One lock question for each slot that was ever used: microseconds. Any thread.
  std::vector<Other> others() const;

  // As mine().
  TimeCell& my_time(uint32_t gpu);
  // What another proxy that lives does with a GPU's time; `weight`: as it was opened.
  struct OtherTime {
    uint32_t slot = 0;
    int32_t pid = 0;
    std::string workflow;
    uint32_t weight = 0;
    uint64_t running = 0, wants_ns = 0;
  };
  // As others().
  std::vector<OtherTime> others_time(const CUuuid& gpu) const;

 private:
  struct File;
  struct Slot;
  struct Mapped;
  MachineLinks(std::unique_ptr<Mapped> mapped, uint32_t slot);
  const Slot& slot(uint32_t index) const;
  bool lives(uint32_t index) const;
  static std::string workflow_of(const Slot& slot);

  const std::unique_ptr<Mapped> mapped_;
  const uint32_t slot_;
};

}  // namespace tube::proxy
