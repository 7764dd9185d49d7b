// Device memory that is freed in stream order (cuMemFreeAsync): it goes when its stream has got to
// the free.
//
// Each free records an event behind what its stream has. Frees of one stream come due in order, so
// there is a queue per stream and a look asks for the first of each only: one event query a stream
// that is not there yet, whatever waits behind. Until then the allocation's range is retired (no
// target any more) and its reference on the block stays (memory_map.h).
//
// A queue is named by the driver's stream, whose name may come again for a stream that is made
// later: its frees then stand behind those of the stream that ended, and come due no earlier than
// they may. Session thread only.
#pragma once

#include <cstddef>
#include <deque>
#include <map>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Driver;
class DeviceMemory;

class DeferredFrees {
 public:
  DeferredFrees(const Driver& driver, DeviceMemory& memory) : driver_(driver), memory_(memory) {}

  // Frees the allocation when `stream` gets here; looks first for memory whose time has come.
  // CUDA_ERROR_INVALID_VALUE when no allocation of the client starts at the address, and the
  // driver's errors.
  CUresult add(CUstream stream, CUdeviceptr untrusted_address);
  // Frees the memory whose time has come.
  void collect();
  // Forgets the frees; what they would have freed is the caller's to free or to leave. At the end.
  void drop();
  size_t count() const;

 private:
  struct Free {
    CUevent event;
    CUdeviceptr address;
  };

  const Driver& driver_;
  DeviceMemory& memory_;
  std::map<CUstream, std::deque<Free>> queues_;  // none is empty
};

}  // namespace tube::proxy
