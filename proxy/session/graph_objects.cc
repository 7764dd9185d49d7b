#include "proxy/session/graph_objects.h"

#include <utility>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"

namespace tube::proxy {

namespace {

// Graphs for which `match(object, inner state)` holds; looks at every graph, of which a client has
// few.
template <class Match>
std::vector<uint64_t> inner_graphs(Session& session, Match match) {
  std::vector<uint64_t> found;
  for (uint64_t id : session.objects().ids(wire::Kind::kGraph)) {
    const Object* object = session.objects().find(wire::Kind::kGraph, id);
    if (object->state != nullptr && match(*object, static_cast<const InnerGraph&>(*object->state)))
      found.push_back(id);
  }
  return found;
}

}  // namespace

void forget_graph(Session& session, uint64_t graph) {
  forget_nodes(session, graph);
  session.objects().erase(wire::Kind::kGraph, graph);
}

uint64_t adopt_inner(Session& session, CUgraph graph, uint64_t parent, uint64_t node) {
  const uint64_t moved = find_id(session, wire::Kind::kGraph, reinterpret_cast<uint64_t>(graph));
  if (moved != 0) return moved;
  const uint64_t id =
      session.objects().adopt(wire::Kind::kGraph, graph, session.record().context, parent);
  if (id != 0) move_inside(session, id, parent, node);
  return id;
}

void move_inside(Session& session, uint64_t id, uint64_t parent, uint64_t node) {
  Object* object = session.objects().find(wire::Kind::kGraph, id);
  auto inner = std::make_unique<InnerGraph>();
  inner->node = node;
  object->owner = parent;
  object->state = std::move(inner);
}

void forget_inside(Session& session, uint64_t node) {
  for (uint64_t id : inner_graphs(
           session, [&](const Object&, const InnerGraph& inner) { return inner.node == node; })) {
    forget_graph(session, id);
  }
}

void forget_nodes(Session& session, uint64_t graph) {
  for (uint64_t id : inner_graphs(session, [&](const Object&object, const InnerGraph&inner) {
         return inner.node != 0 && object.owner == graph;
       })) {
    forget_graph(session, id);
  }
  session.objects().erase_owned(wire::Kind::kGraphNode, graph);
  session.graph_memory().drop_owner(session, {wire::Kind::kGraph, graph});
}

void forget_capture(Session& session, uint64_t capture, CUgraph graph) {
  const auto raw = reinterpret_cast<uint64_t>(graph);
  for (uint64_t id : inner_graphs(session, [&](const Object&, const InnerGraph& inner) {
         return inner.capture == capture && inner.node == 0;
       })) {
    forget_graph(session, id);
  }
  const GraphMemory::Owner captured{wire::Kind::kCount, raw};
  // One of the client's own keeps the nodes that came into it.
  if (const uint64_t own = find_id(session, wire::Kind::kGraph, raw); own != 0)
    session.graph_memory().change_owner(captured, {wire::Kind::kGraph, own});
  else session.graph_memory().drop_owner(session, captured);
}

uint64_t find_id(Session& session, wire::Kind kind, uint64_t raw) {
  if (raw == 0) return 0;
  if (const uint64_t id = session.objects().adopted(kind, raw); id != 0) return id;
  for (uint64_t id : session.objects().ids(kind)) {
    if (session.objects().find(kind, id)->raw == raw) return id;
  }
  return 0;
}

GraphMemory::GraphMemory() = default;
GraphMemory::~GraphMemory() = default;

bool GraphMemory::knows(CUdeviceptr untrusted_address) const {
  return entries_.contains(untrusted_address);
}

CUresult GraphMemory::made(Session& session, CUdeviceptr address, uint64_t bytes, Owner owner,
                           MemoryCharge charge) {
  Range range;
  range.base = address;
  range.bytes = bytes;
  range.kind = RangeKind::kGraph;
  range.context = session.record().context;
  if (entries_.contains(
          address)) {  // freed and given out again by the driver before we heard of it
    session.ranges().erase(address);
    entries_.erase(address);
  }
  if (!session.ranges().insert(range)) return CUDA_ERROR_INVALID_VALUE;
  Entry& entry = entries_[address];
  entry.owners.insert(owner);
  entry.charge = std::move(charge);
  return CUDA_SUCCESS;
}

void GraphMemory::launched(Owner exec) {
  for (auto& [address, entry] : entries_) entry.allocated |= entry.owners.contains(exec);
}

void GraphMemory::freed_by_graph(CUdeviceptr address, Owner owner) {
  auto entry = entries_.find(address);
  if (entry == entries_.end()) return;
  entry->second.graph_frees = true;
  entry->second.owners.insert(owner);
}

void GraphMemory::freed(Session& session, CUdeviceptr address) {
  auto entry = entries_.find(address);
  if (entry == entries_.end()) return;
  entry->second.allocated = false;
  if (!entry->second.ends()) return;
  session.ranges().erase(address);
  entries_.erase(entry);
}

void GraphMemory::share(Owner owner, Owner other) {
  for (auto& [address, entry] : entries_) {
    if (entry.owners.contains(owner)) entry.owners.insert(other);
  }
}

void GraphMemory::change_owner(Owner owner, Owner heir) {
  for (auto& [address, entry] : entries_) {
    if (entry.owners.erase(owner) != 0) entry.owners.insert(heir);
  }
}

void GraphMemory::drop_owner(Session& session, Owner owner) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    Entry& entry = it->second;
    const bool ends = entry.owners.erase(owner) != 0 && entry.ends();
    if (ends) session.ranges().erase(it->first);
    it = ends ? entries_.erase(it) : std::next(it);
  }
}

void GraphMemory::free_all(Session& session) {
  for (auto& [address, entry] : entries_) {
    if (entry.allocated && !entry.graph_frees) (void)session.driver().cuMemFree_v2(address);
    session.ranges().erase(address);
  }
  entries_.clear();
}

}  // namespace tube::proxy
