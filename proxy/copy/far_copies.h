// Copies of a client between the host and memory of a GPU that its stream's own GPU does not reach:
// GeForce cards, and others without peer access between them.
//
// Natively the driver finds a way by itself. Memory that the proxy has mapped for one GPU is
// refused on a stream of another one (only cuMemcpyPeerAsync takes it, between two GPUs; measured
// on an H200). So the copy goes to a stream of the memory's GPU, which waits for what the client's
// stream has before it, and for which the client's stream waits.
//
// The session's thread only. Nothing waits for the GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "base/cuda_api.h"
#include "proxy/gpu/placement.h"

namespace tube::proxy {

struct Driver;
class Gpus;
struct Range;

class FarCopies {
 public:
  // All outlive it.
  FarCopies(const Driver& driver, const Gpus& gpus, Placement& placement)
      : driver_(driver), gpus_(gpus), placement_(placement) {}
  FarCopies(const FarCopies&) = delete;
  FarCopies& operator=(const FarCopies&) = delete;

  // Whether the range is memory that `gpu` does not reach. `range` may be nullptr: no.
  bool is_far(uint32_t gpu, const Range* range) const;
  // Calls `make` with a stream of `gpu`, whose context is current meanwhile: the copy that it makes
  // there counts as `stream`'s, which does not capture and whose context is current. The first
  // error.
  CUresult on(uint32_t gpu, CUstream stream, const std::function<CUresult(CUstream)>& make);
  // None is under way any more, and no other comes.
  void end();

 private:
  CUresult stream_of(uint32_t gpu, CUstream* stream);
  CUresult make_there(uint32_t gpu, CUevent ready, CUevent* done,
                      const std::function<CUresult(CUstream)>& make);

  const Driver& driver_;
  const Gpus& gpus_;
  Placement& placement_;
  std::map<uint32_t, PlacedStream> streams_;  // by GPU; made when first needed
};

}  // namespace tube::proxy
