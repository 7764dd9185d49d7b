// What a client's graphs own beyond themselves: the graphs inside their nodes, and the memory of
// their allocation nodes.
//
// A graph inside a node (child graph, body of a conditional node) is never destroyed by itself: its
// ids and those of its nodes end with the node or with the graph around it. The driver may give a
// freed object's address to the next one, so nothing may be remembered longer than it lives.
//
// Memory of allocation nodes has an address of the driver's choice from the node's creation on. The
// client may name it as long as a graph or an instance with that node lives, or until it freed it
// when no free node does.
//
// Session thread only.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "base/cuda_api.h"
#include "proxy/memory/memory_budgets.h"
#include "proxy/session/objects.h"

namespace tube::proxy {

class Session;

// State of a graph object that another object owns.
struct InnerGraph final : ObjectState {
  uint64_t node = 0;     // it lives in
  uint64_t capture = 0;  // the driver's number of the one that makes it; the two exclude each other
};

// The id of a graph inside `node` of `parent`; 0 at the limit.
uint64_t adopt_inner(Session& session, CUgraph graph, uint64_t parent, uint64_t node);
// The client's graph `id` goes into a node of `parent` for good.
void move_inside(Session& session, uint64_t id, uint64_t parent, uint64_t node);
// The graphs inside `node`, and everything in them.
void forget_inside(Session& session, uint64_t node);
// All nodes of the graph and what is inside of them, not the graph itself.
void forget_nodes(Session& session, uint64_t graph);
// And the graph itself: it is gone, or about to be.
void forget_graph(Session& session, uint64_t graph);
// A capture has failed, and the graph that it was making is gone, unless it is one of the client's
// own.
void forget_capture(Session& session, uint64_t capture, CUgraph graph);
// The clone holds the same user objects as its original (calls/user_object.cc).
void clone_user_objects(Session& session, uint64_t original, uint64_t clone);
// The id behind a driver's handle among all of a kind, the client's own included; 0: none. Looks at
// each.
uint64_t find_id(Session& session, wire::Kind kind, uint64_t raw);

// Which memory that graphs own is this client's. The driver gives an address out again, to anybody,
// once no graph has its node and nothing is allocated there: from then on it is nobody's here.
class GraphMemory {
 public:
  GraphMemory();
  ~GraphMemory();
  using Owner = std::pair<wire::Kind, uint64_t>;
  // A node or a captured allocation of `owner` made it. Charged until it is nobody's here.
  CUresult made(Session& session, CUdeviceptr address, uint64_t bytes, Owner owner,
                MemoryCharge charge);
  bool knows(CUdeviceptr untrusted_address) const;
  bool empty() const { return entries_.empty(); }
  // An instance was launched: what its nodes allocate is the client's until it is freed.
  void launched(Owner exec);
  // A free node or a captured free of `owner` has it.
  void freed_by_graph(CUdeviceptr address, Owner owner);
  // The client freed it outside of graphs.
  void freed(Session& session, CUdeviceptr address);
  // An instance of a graph, or the graph that its graph moved into.
  void share(Owner owner, Owner other);
  // What a capture made (an owner of kind kCount, by the driver's handle of its graph) belongs to
  // the graph it became.
  void change_owner(Owner owner, Owner heir);
  void drop_owner(Session& session, Owner owner);
  // At the session's end, with idle streams: what no graph frees.
  void free_all(Session& session);

 private:
  struct Entry {
    std::set<Owner> owners;  // graphs and instances with a node that allocates or frees it
    bool allocated = false;  // by a launch, and not freed by the client since
    bool graph_frees = false;
    MemoryCharge charge;
    bool ends() const { return owners.empty() && (graph_frees || !allocated); }
  };
  std::map<CUdeviceptr, Entry> entries_;
};

}  // namespace tube::proxy
