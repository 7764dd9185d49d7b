// In which part of its GPU a client's streams are, and how they come into another one.
//
// A stream is made in the part that its function has at that moment (gpu/gpu_slices.h). When parts
// have changed, each stream is made anew in the right one before its next operation: at once when
// it is idle, else so that the new one waits for what is still under way on the old one. Nobody can
// tell but by where kernels run: order, priority and attributes are the same. A stream that
// captures goes on where it is, and comes after it. Streams of a client's own green contexts and of
// its created contexts with SMs of their own stay there.
//
// What it costs who has no slice: a load and a compare for each operation. Session thread only.
#pragma once

#include <cstdint>
#include <functional>

#include "base/cuda_api.h"
#include "policies/launch_priority.h"
#include "proxy/gpu/gpu_slices.h"

namespace tube::proxy {

struct Driver;

// Streams of green contexts refuse cuStreamCopyAttributes; the attributes themselves they take.
CUresult copy_attributes(const Driver& driver, CUstream to, CUstream from);

// The driver's stream behind one of a client's, and where it is.
struct PlacedStream {
  CUstream stream = nullptr;
  CUgreenCtx green = nullptr;  // nullptr: the context in which it was made
  bool in_slice = false;       // a part of the GPU that is the client's alone
  uint64_t placed = 0;         // the version of the GPU's slices that this was looked at for
  int priority = 0;  // as the client gave it; the stream's own: policies/launch_priority.h
};

class Placement {
 public:
  explicit Placement(const Driver& driver) : driver_(driver) {}

  struct Client {
    uint64_t session = 0;
    uint32_t sm_percent = 0;  // of a GPU, for itself; 0: no slice
    policies::LaunchPriority priority = policies::LaunchPriority::kNormal;
  };
  // nullptr: there are no slices. `apart` is told when the client comes into a slice of a GPU, and
  // out of it.
  void use(GpuSlices* slices, const Client& client,
           std::function<void(uint32_t gpu, bool is_apart)> apart);
  policies::LaunchPriority priority() const { return client_.priority; }

  // Makes the driver's stream of `stream`, whose priority is set. Of a context with multiprocessors
  // of its own (`own_sms`) it stays there. Its context is current.
  CUresult make_stream(uint32_t gpu, bool own_sms, PlacedStream& stream);
  // True when parts have changed since the stream was made or looked at.
  bool due(const PlacedStream& stream, uint32_t gpu) const {
    return slices_ != nullptr && stream.placed != slices_->version(gpu);
  }
  // The stream, which does not capture, comes into the part where it belongs. Its context is
  // current. `leaves` is called before its old stream of the driver goes. `attributes`: the client
  // set some. The driver has no room for another stream: it stays.
  void move(uint32_t gpu, bool own_sms, PlacedStream& stream, bool attributes,
            const std::function<void()>& leaves);
  // Of the client's part; nullptr: it has none, and its streams are in the GPU's shared context.
  CUcontext part_context(uint32_t gpu) const;
  // Whether nodes may be of other contexts than the GPU's shared one.
  bool has_parts(uint32_t gpu) const { return slices_ != nullptr && slices_->version(gpu) != 0; }
  // It opened something of another process, or gave it something.
  void exchanges(const char* what) {
    if (slices_ != nullptr) slices_->exchanges(client_.session, what);
  }
  // The client is gone.
  void leave();

 private:
  GpuPlace place_on(uint32_t gpu);
  CUresult make_in(const GpuPlace& place, int priority, CUstream* stream);

  const Driver& driver_;
  GpuSlices* slices_ = nullptr;
  Client client_;
  std::function<void(uint32_t, bool)> apart_;
};

}  // namespace tube::proxy
