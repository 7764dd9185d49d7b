// Memory of other processes that one client has open (cuIpcOpenMemHandle): where it is, how often
// it was opened, and what keeps it alive.
//
//   owner in this proxy, same window    the owner's own address; nothing is mapped
//   owner in this proxy, other window   the owner's block mapped a second time
//   owner in another proxy              its block by POSIX fd through the broker (broker.h), mapped
//                                       here
//   a program without Tube              the driver's cuIpcOpenMemHandle; the address lies outside
//                                       the windows
//
// The range belongs to the client as long as it is open, so copies and pointer checks know it.
// Session thread only; opening memory of another proxy waits for that proxy's answer, at most
// limits::kBrokerMs.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "base/cuda_api.h"
#include "base/unique_fd.h"
#include "proxy/memory/memory_map.h"
#include "proxy/memory/ranges.h"

namespace tube::proxy {

struct Driver;
class Gpus;

struct Opened {
  uint64_t address = 0;
  uint64_t bytes = 0;
  int device = 0;
};

class Imports {
 public:
  Imports(const Driver& driver, const Gpus& gpus, MemoryMap& map, Ranges& ranges, uint64_t session);
  ~Imports();
  void set_window(uint32_t window) { window_ = window; }

  // For a context on `gpu`, which is current. The same handle again only counts.
  CUresult open(const CUipcMemHandle& untrusted_handle, uint32_t flags, uint32_t context,
                uint32_t gpu, Opened* opened);
  // `left`: how many opens remain. CUDA_ERROR_INVALID_VALUE when nothing that was opened starts
  // there. The GPU must be done.
  CUresult close(uint64_t untrusted_address, uint32_t* left);
  // Everything opened in `context`, or everything (DeviceMemory::kAllContexts).
  void close_all(uint32_t context);
  uint32_t count() const { return static_cast<uint32_t>(imports_.size()); }

 private:
  enum class Source : uint32_t { kAlias, kSecondMapping, kOtherProxy, kDriver };
  struct Import {
    std::array<uint64_t, 8> handle{};
    Source source = Source::kAlias;
    uint32_t opens = 1;
    uint32_t context = 0;
    Opened opened;
    ShareToken token;
    uint64_t mapping = 0;            // kSecondMapping: where we have it mapped
    BlockId block = BlockId::kNone;  // kOtherProxy: our own, one reference
    UniqueFd lease;                  // kOtherProxy: its owner counts us as long as this is open
  };
  CUresult open_here(const MemoryHandle& handle, Import* import);
  CUresult open_there(const MemoryHandle& handle, Import* import);
  CUresult open_with_driver(uint32_t flags, Import* import);
  bool reaches(uint32_t gpu, int device) const;
  void give_back(Import& import);

  const Driver& driver_;
  const Gpus& gpus_;
  MemoryMap& map_;
  Ranges& ranges_;
  uint64_t session_;
  uint32_t window_ = 0;
  std::map<uint64_t, Import> imports_;                     // by address
  std::map<std::array<uint64_t, 8>, uint64_t> by_handle_;  // handle -> address
};

}  // namespace tube::proxy
