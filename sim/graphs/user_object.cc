// cuUserObject*: reference-counted program objects that graphs can keep alive.
//
// The destructor callback runs on a thread of its own, since the last reference may go while
// State::mutex is held.
#include <thread>

#include "sim/graphs/graph.h"

namespace tube::sim {

void release_user_object(UserObject* object, uint64_t count) {
  object->count -= std::min(object->count, count);
  if (object->count > 0) return;
  state().live.erase(object);
  std::thread([fn = object->destroy, ptr = object->ptr] { fn(ptr); }).detach();
  delete object;
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                                    unsigned int initialRefcount, unsigned int flags) {
  SIM_ENTER(kInit);
  if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  auto* object = new UserObject{ptr, destroy, initialRefcount};
  s.live.emplace(object, Kind::kUserObject);
  *object_out = reinterpret_cast<CUuserObject>(object);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  auto* o = live<UserObject>(s, object, Kind::kUserObject);
  if (o == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  o->count += count;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  auto* o = live<UserObject>(s, object, Kind::kUserObject);
  if (o == nullptr || count == 0 || count > o->count) return CUDA_ERROR_INVALID_VALUE;
  release_user_object(o, count);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                         unsigned int flags) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  Graph* g = live_graph(s, graph);
  auto* o = live<UserObject>(s, object, Kind::kUserObject);
  if (g == nullptr || o == nullptr || count == 0 || flags > CU_GRAPH_USER_OBJECT_MOVE)
    return CUDA_ERROR_INVALID_VALUE;
  g->objects[o] += count;
  if (flags != CU_GRAPH_USER_OBJECT_MOVE) o->count += count;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  Graph* g = live_graph(s, graph);
  auto* o = live<UserObject>(s, object, Kind::kUserObject);
  if (g == nullptr || o == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  auto it = g->objects.find(o);
  if (it == g->objects.end() || it->second < count) return CUDA_ERROR_INVALID_VALUE;
  it->second -= count;
  if (it->second == 0) g->objects.erase(it);
  release_user_object(o, count);
  return CUDA_SUCCESS;
}
