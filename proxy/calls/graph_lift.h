// Copies between host and GPU that are taken out of an instance of a graph and go through the door
// of all copies (session/copies.h) instead.
//
// The driver runs a graph's copy nodes as one stream's copies: in one piece, in front of everybody
// else's (docs/facts.md, Copies). The nodes that come before all others of their graph, or behind
// all others, need not be in it: they are disabled in the instance, and a launch of it does them on
// its stream, in front of the graph or behind it, where they take turns with other functions'
// copies. Copies in the middle stay nodes.
//
// The client sees none of this: it changes, disables and enables the nodes as its own. A launch
// whose copy waits for its turn is kept back and goes on later (parked_records.h); the instance
// changes meanwhile for nobody, and its next launch on another stream waits for this one's end, as
// the driver lets no instance run beside itself.
//
// Session thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/cuda_api.h"
#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"

namespace tube::proxy {

class LaunchPass;
class Session;
struct StreamOp;

struct LiftedCopy {
  size_t number = 0;  // of its node, among those of the graph that the instance was made from
  // Of that graph, and of the one that the instance was updated with last. The client may have
  // destroyed either: compared, never used. The second may have the address of another one's first.
  CUgraphNode made = nullptr, updated = nullptr;
  CUdeviceptr dst = 0, src = 0;
  uint64_t bytes = 0;
  bool enabled = true;  // by the client

  void change(const LiftedCopy& to) {
    dst = to.dst;
    src = to.src;
    bytes = to.bytes;
  }
};

class LiftedCopies {
 public:
  explicit LiftedCopies(const Driver& driver) : driver_(driver) {}
  ~LiftedCopies();
  LiftedCopies(const LiftedCopies&) = delete;
  LiftedCopies& operator=(const LiftedCopies&) = delete;

  LiftedCopy* find(CUgraphNode node);

  size_t nodes = 0;                       // of the graph that the instance was made from
  std::vector<LiftedCopy> before, after;  // the graph, in their order
  template <class Body>
  void for_each(const Body& body) {
    for (LiftedCopy& copy : before) body(copy);
    for (LiftedCopy& copy : after) body(copy);
  }

 private:
  friend CUresult launch_lifted(Session&, const Decoded<wire::cuGraphLaunch>&, CUgraphExec,
                                LiftedCopies&);
  CUresult record_end(const StreamOp& op);
  bool ended_on(const StreamOp& op) const;

  const Driver& driver_;
  uint64_t sequence_ = 0;  // the record of the launch that is under way
  size_t next_ = 0;        // of its copies, the graph itself being one of them
  CUevent end_ = nullptr;  // of the last launch, an event of its stream's context
  CUstream stream_ = nullptr;
  uint64_t stream_id_ = 0;
  uint32_t context_ = 0;
};

// The instance was just made from the graph. nullptr: nothing is lifted.
std::unique_ptr<LiftedCopies> lift_copies(Session& session, CUgraphExec exec, CUgraph graph,
                                          uint64_t flags);
// The same copies as the graph has them that the instance is to be updated with, before the driver
// is asked to: it keeps their nodes disabled. An error: the graph's nodes, in the order in which
// they were made, are not those of the instance or hold what can only be a node; the driver must
// not be asked. Some copies are changed then.
CUgraphExecUpdateResult update_lifted(Session& session, CUgraph graph, LiftedCopies& lifted);
// The client's launch, with its copies. Returns before it is whole when a copy waits for its turn;
// then the record is kept and comes again.
CUresult launch_lifted(Session& session, const Decoded<wire::cuGraphLaunch>& call, CUgraphExec exec,
                       LiftedCopies& lifted);
// The client gives a node of the instance new parameters, which the driver judges.
CUresult change_lifted(Session& session, CUgraphExec exec, CUcontext context, LiftedCopy& copy,
                       CUgraphNode node, const CUDA_MEMCPY3D& params);

// cuGraphLaunch itself (output.cc).
CUresult launch_graph(Session& session, const Decoded<wire::cuGraphLaunch>& call, CUgraphExec exec,
                      const StreamOp& op, LaunchPass& pass);
// Whether the launch is measured, and has its turn if it is a long one (output.cc).
LaunchPass look_at_graph(Session& session, const Decoded<wire::cuGraphLaunch>& call);

}  // namespace tube::proxy
