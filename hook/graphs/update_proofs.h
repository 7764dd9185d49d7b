// Which updates of an instance's nodes the driver is known to take, so that they can be posted.
//
// cuGraphExecKernelNodeSetParams and its like answer what the driver says, which is a round trip,
// and programs that keep an instance and give it new addresses before every launch (XLA's command
// buffers) pay it several times a step. What the driver can refuse is the shape of the update:
// which function, which grid, which kind of memory. So the first update of a node waits, and when
// the driver took it, its shape is remembered as proven; an update of the same node in the same
// instance with the same shape, that is with other argument values or other addresses of the same
// kind of memory, is posted. Another shape waits again, and proves that one instead.
//
// What could change the driver's mind drops the proof first: for one instance an update as a whole,
// a new child graph and its end; for all of them the end of a graph, a node, a module or a context,
// a change of a graph's node that may replace it, a change of a function's attribute. These are
// rare. (A node that is switched off is updated as any other.) If the driver refuses a posted
// update all the same, the proxy counts and logs it, the next synchronising call of the program
// reports it, as for a launch, and all proofs are dropped.
//
// Shapes are plain values. The table is guarded by Connection::producer: an update is looked up
// while its record is being written, so it lies in the ring before whatever drops its proof. Costs
// an update two hash lookups; nothing is allocated there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "base/cuda_api.h"
#include "hook/code/launch.h"

namespace tube::hook {

// Everything in an update that the driver's answer can depend on.
struct UpdateShape {
  uint64_t words[9] = {};  // the first is the type of node and the context's number
  bool operator==(const UpdateShape&) const = default;
};

// `context` is the record's: which the node will run in. False: no shape of this can be proven.
bool shape_of(const Kernel* kernel, const LaunchShape& launch, uint32_t parameter_bytes,
              const Context* context, UpdateShape* shape);
// One row, in memory that this program has allocated on the context's device.
bool shape_of(const CUDA_MEMCPY3D& copy, const Context* context, UpdateShape* shape);
bool shape_of(const CUDA_MEMSET_NODE_PARAMS& fill, const Context* context, UpdateShape* shape);

// Ids of instances and nodes are the wire's.
class UpdateProofs {
 public:
  using Nodes = std::unordered_map<uint64_t, UpdateShape>;
  using Execs = std::unordered_map<uint64_t, Nodes>;
  static constexpr size_t kMostNodes = 1u << 16;  // beyond, all start anew

  bool hold(uint64_t exec, uint64_t node, const UpdateShape& shape) const;
  // Counts what dropped proofs. Taken when an update is sent, it says when the answer comes whether
  // that still proves anything.
  uint64_t version() const { return version_; }
  void add(uint64_t exec, uint64_t node, const UpdateShape& shape, uint64_t version);
  void drop(uint64_t exec, uint64_t node);
  // These answer what was there, for the caller to free when it has given the lock back.
  Nodes drop(uint64_t exec);
  Execs drop_all();
  size_t size() const { return count_; }

 private:
  Execs execs_;
  size_t count_ = 0;
  uint64_t version_ = 0;
};

// The program's one. Connection::producer.
UpdateProofs& update_proofs();

// For what drops proofs, before its record is written (calls/graph.cc). Producer not held.
void forget_updates_of(uint64_t exec);
void forget_all_updates();

}  // namespace tube::hook
