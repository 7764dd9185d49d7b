// Transfers between the GPUs of a machine in virtual time: pieces over links, nothing else.
//
// Each link serves one piece after another, in the order of their arrival: what a copy costs
// besides its bytes, then the bytes at the link's rate. A relay stores a piece before it sends it
// on; a path has one piece more in flight than it has hops. Through host memory a piece crosses the
// sender's PCIe link and its switch's uplink at once, then the receiver's. Paths come from
// policies/paths/gpu_paths.h and change as transfers begin and end; pieces are pulled (pieces.h).
//
// The direct way, to compare with: the pair's own link, or host memory, in the same pieces, but
// the cost besides the bytes is paid once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "policies/paths/gpu_paths.h"
#include "policies/paths/pieces.h"
#include "tools/tubectl/machine.h"

namespace tube::bench {

enum class CopyRule { kDirect, kPaths };

class CopyModel {
 public:
  struct Copy {
    uint32_t from = 0, to = 0;
    uint64_t bytes = 0;
    uint64_t begin_ns = 0;
    uint64_t end_ns = 0;
  };

  CopyModel(const ctl::Machine& machine, CopyRule rule, const policies::Pieces::Options& pieces);

  // Returns its number. May be called from on_end, with at_ns not before now.
  uint32_t begin(uint32_t from, uint32_t to, uint64_t bytes, uint64_t at_ns);
  // Until all have ended, or until a time.
  void run(uint64_t end_ns = UINT64_MAX);

  uint64_t now_ns() const { return now_ns_; }
  const std::vector<Copy>& copies() const { return copies_; }
  uint64_t done_bytes() const;
  std::function<void(uint32_t copy)> on_end = [](uint32_t) {};

 private:
  using Links = std::vector<uint32_t>;  // crossed at once
  struct Path {
    policies::GpuPath way;
    bool through_host = false;
    std::vector<Links> hops;
    uint32_t number = 0;  // among the pieces' paths
  };
  struct Running {
    std::unique_ptr<policies::Pieces> pieces;
    std::vector<Path> paths;
    uint32_t version = 0;
    bool paid = false;  // the cost besides the bytes, on the direct way
  };
  struct Event {
    uint64_t at_ns = 0;
    uint64_t order = 0;
    uint32_t copy = 0;
    policies::Pieces::Piece piece;  // none: the copy begins
    std::shared_ptr<const std::vector<Links>> hops;
    size_t hop = 0;
    bool operator<(const Event& o) const {
      return at_ns != o.at_ns ? at_ns > o.at_ns : order > o.order;
    }
  };

  uint32_t host_link(uint32_t gpu, bool up) const { return kHostLinks + 2 * gpu + (up ? 1 : 0); }
  uint32_t uplink(uint32_t gpu, bool up) const;
  Path path_of(const Copy& copy, const policies::GpuPath* way) const;
  static policies::Pieces::Path terms(const Path& path, uint64_t bytes_per_s);
  void start(uint32_t copy);
  void end(uint32_t copy);
  void follow_paths(uint32_t copy);
  void pull(uint32_t copy);
  void send(Event event);
  void arrive(Event event);

  static constexpr uint32_t kHostLinks = policies::kMaxGpus * policies::kMaxGpus;
  static constexpr uint32_t kUplinks = kHostLinks + 2 * policies::kMaxGpus;
  static constexpr uint32_t kAllLinks = kUplinks + 2 * policies::kMaxGpus;

  const ctl::Machine& machine_;
  CopyRule rule_;
  policies::Pieces::Options options_;
  policies::GpuPaths gpu_paths_;
  std::vector<uint64_t> rate_;
  std::vector<uint64_t> free_ns_;
  std::vector<Copy> copies_;
  std::vector<Running> running_;  // one each; those that ended have no pieces
  std::priority_queue<Event> events_;
  uint64_t events_made_ = 0;
  uint64_t now_ns_ = 0;
  uint64_t ended_bytes_ = 0;
};

// The most that can flow between two GPUs, over paths of any length; their own ports are a bound
// too.
uint64_t max_flow(const policies::GpuLinks& links, uint32_t from, uint32_t to);

}  // namespace tube::bench
