// One path of a wide copy (wide_copy.h): the pieces that go over one GPU's link.
//
// A piece has one hop, over the link of the copy's own GPU, or two: the link of a neighbour and a
// copy between the neighbour's relay buffer and the GPU. A hop begins when the pacing thread has
// seen the end of the one before, so no stream ever waits for another GPU, and a context that dies
// leaves nobody waiting. Three pieces are under way at a time, which hides these looks.
//
//   to the GPU     host -- link of R --> buffer on R -- peer copy --> GPU
//   from the GPU   GPU -- peer copy --> buffer on R -- link of R --> host
//
// Hops over a link are claims in its lane (copy_link.h), like everybody's. Peer copies go on a
// stream of the copy's own GPU, whose context reaches the client's memory in any case.
//
// The pacing thread only. Nothing waits.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/cuda_api.h"
#include "policies/paths/pieces.h"
#include "proxy/copy/copy_link.h"
#include "proxy/copy/relay_buffers.h"

namespace tube::proxy {

class Gpus;
struct Driver;

// What all paths share: the peer streams, their events, the relay buffers, the links.
class PathTools {
 public:
  using LinkOf = std::function<CopyLink&(uint32_t gpu, bool to_gpu)>;
  // All outlive it.
  PathTools(const Driver& driver, Gpus& gpus, RelayBuffers& buffers, LinkOf link);
  ~PathTools();  // nothing is under way any more
  PathTools(const PathTools&) = delete;
  PathTools& operator=(const PathTools&) = delete;

  const Driver& driver() const { return driver_; }
  RelayBuffers& buffers() { return buffers_; }
  CopyLink& link(uint32_t gpu, bool to_gpu) { return link_(gpu, to_gpu); }
  // A copy between `gpu` and memory of `relay`, on a stream of `gpu` for the two; *end is recorded
  // behind it, and given back. After an error nothing is under way, unless it is one that ends the
  // context.
  CUresult peer_copy(uint32_t gpu, uint32_t relay, bool to_gpu, CUdeviceptr dst, CUdeviceptr src,
                     uint64_t bytes, CUevent* end);
  void give(uint32_t gpu, CUevent event) { peers_[gpu].events.push_back(event); }

 private:
  struct Peers {
    std::vector<CUstream> streams;  // by relay and direction
    std::vector<CUevent> events;
  };
  CUresult stream(uint32_t gpu, uint32_t relay, bool to_gpu, CUstream* stream);

  const Driver& driver_;
  Gpus& gpus_;
  RelayBuffers& buffers_;
  const LinkOf link_;
  std::vector<Peers> peers_;  // by the copy's own GPU
};

class CopyPath {
 public:
  // What is the same for all paths of a copy.
  struct Copy {
    uint32_t gpu = 0;
    bool to_gpu = false;
    CUdeviceptr dst = 0, src = 0;
    std::shared_ptr<const HostRuns> runs{};  // the host's end, whose address is 0 then
    uint64_t function = 0;
  };
  // `tools` and `copy` outlive it. `over`: whose link; `number`: in the copy's Pieces.
  CopyPath(PathTools& tools, const Copy& copy, uint32_t over, uint32_t number)
      : tools_(tools), copy_(copy), over_(over), number_(number) {}
  CopyPath(const CopyPath&) = delete;
  CopyPath& operator=(const CopyPath&) = delete;
  ~CopyPath() { drop_spare(); }

  bool direct() const { return over_ == copy_.gpu; }
  uint32_t over() const { return over_; }
  uint32_t number() const { return number_; }
  bool closed() const { return closed_; }

  // Whether a piece could begin now: it has what that needs.
  bool ready();
  // There will be no memory for its relay.
  bool hopeless() const { return !direct() && tools_.buffers().refused(over_); }
  // Precondition: ready(). An error: the piece has not begun.
  CUresult send(const policies::Pieces::Piece& piece);
  // A piece that has arrived, or does not get on.
  struct End {
    policies::Pieces::Piece piece;
    CUresult error = CUDA_SUCCESS;
  };
  std::optional<End> look();
  // It gets no further piece.
  void close() {
    closed_ = true;
    drop_spare();
  }
  // Nothing more begins, second hops included; what waits in a lane is taken out of it. Pieces that
  // do not arrive are not told.
  void stop() {
    close();
    stopped_ = true;
  }
  // For now nothing more begins over the link, second hops included.
  void hold(bool held) { held_ = held; }
  // Nothing is under way: no byte moves any more.
  bool idle() const { return under_way_.empty(); }

 private:
  struct Item {
    policies::Pieces::Piece piece;
    CUdeviceptr buffer = 0;
    std::shared_ptr<LaneJob> job{};  // in the lane, or
    CUevent peer_end = nullptr;      // between the GPUs, or
    bool waits = false;              // at the relay, for its second hop
  };
  enum class Hop : uint8_t { kGoesOn, kEnded, kFailed };

  Hop look_at(Item& item, CUresult* error);
  Hop look_at_link(Item& item, CUresult* error);
  Hop look_at_peer(Item& item, CUresult* error);
  CUresult begin(Item& item, bool over_link);
  LaneCopy claim(const Item& item) const;
  void give_back(const Item& item);
  void drop_spare();

  PathTools& tools_;
  const Copy& copy_;
  const uint32_t over_;
  const uint32_t number_;
  bool closed_ = false, stopped_ = false, held_ = false;
  CUdeviceptr spare_ = 0;  // a relay buffer for the next piece
  std::list<Item> under_way_;
};

}  // namespace tube::proxy
