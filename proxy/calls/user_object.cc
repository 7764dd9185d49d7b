// User objects (user_objects.h).
#include <algorithm>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/session/graph_objects.h"
#include "proxy/session/session.h"
#include "proxy/session/user_objects.h"
#include "sharedmem/accessors.h"
#include "sharedmem/words.h"

namespace tube::proxy {

namespace {

bool fired(UserObjectEnd& end) {
  std::lock_guard locked(end.mutex);
  return end.fired;
}

// The driver's own thread.
void on_last_reference(void* data) {
  auto* end = static_cast<std::shared_ptr<UserObjectEnd>*>(data);
  {
    std::lock_guard locked((*end)->mutex);
    (*end)->fired = true;
    if ((*end)->word != nullptr) shared::proxy_sets_bits(*(*end)->word, (*end)->bit);
    (*end)->ends->fetch_add(1, std::memory_order_release);
  }
  delete end;
}

UserObjectState& state_of(Object& object) { return static_cast<UserObjectState&>(*object.state); }

// Objects whose destructor has run: the client may use their ids again.
void sweep(Session& session) {
  for (uint64_t id : session.objects().ids(wire::Kind::kUserObject)) {
    if (fired(*state_of(*session.objects().find(wire::Kind::kUserObject, id)).end))
      session.objects().erase(wire::Kind::kUserObject, id);
  }
}

uint64_t held_by(Session& session, const UserObjectState& state, uint64_t graph) {
  auto held = state.graphs.find(graph);
  return held == state.graphs.end() || session.objects().find(wire::Kind::kGraph, graph) == nullptr
             ? 0
             : held->second;
}

bool surely_alive(Session& session, const UserObjectState& state) {
  return state.own != 0 ||
         std::any_of(state.graphs.begin(), state.graphs.end(),
                     [&](const auto& graph) { return held_by(session, state, graph.first) != 0; });
}

CUresult count_own(Session& session, Object& object, bool release, uint32_t count) {
  UserObjectState& state = state_of(object);
  if (release ? count > state.own : !surely_alive(session, state)) return CUDA_ERROR_INVALID_VALUE;
  const auto raw = object.handle<CUuserObject>();
  const CUresult error = release ? session.driver().cuUserObjectRelease(raw, count)
                                 : session.driver().cuUserObjectRetain(raw, count);
  if (error == CUDA_SUCCESS) state.own = release ? state.own - count : state.own + count;
  return error;
}

CUresult count_of_graph(Session& session, Object& object, uint64_t graph, bool release,
                        uint32_t count, uint32_t flags) {
  UserObjectState& state = state_of(object);
  auto holder = session.resolve<CUgraph>(wire::Kind::kGraph, graph);
  if (holder.error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  const auto raw = object.handle<CUuserObject>();
  const uint64_t held = held_by(session, state, graph);
  if (release) {
    if (count > held) return CUDA_ERROR_INVALID_VALUE;
    const CUresult error = session.driver().cuGraphReleaseUserObject(holder.handle, raw, count);
    if (error == CUDA_SUCCESS) state.graphs[graph] = held - count;
    return error;
  }
  const bool moves = flags == CU_GRAPH_USER_OBJECT_MOVE;
  if (moves ? count > state.own : !surely_alive(session, state)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult error = session.driver().cuGraphRetainUserObject(holder.handle, raw, count, flags);
  if (error != CUDA_SUCCESS) return error;
  state.graphs[graph] = held + count;
  if (moves) state.own -= count;
  return CUDA_SUCCESS;
}

}  // namespace

UserObjectEnds::UserObjectEnds() = default;
UserObjectEnds::~UserObjectEnds() { close(); }

bool UserObjectEnds::news() {
  const uint64_t now = fired_->load(std::memory_order_acquire);
  if (now == seen_) return false;
  seen_ = now;
  std::erase_if(ends_, [](const std::shared_ptr<UserObjectEnd>& end) { return fired(*end); });
  return true;
}

std::shared_ptr<UserObjectEnd> UserObjectEnds::add(uint64_t* word, uint32_t bit) {
  auto end = std::make_shared<UserObjectEnd>();
  end->word = word;
  end->bit = uint64_t{1} << bit;
  end->ends = fired_;
  ends_.push_back(end);
  return end;
}

void UserObjectEnds::close() {
  for (auto& end : ends_) {
    std::lock_guard locked(end->mutex);
    end->word = nullptr;
  }
  ends_.clear();
}

void clone_user_objects(Session& session, uint64_t original, uint64_t clone) {
  for (uint64_t id : session.objects().ids(wire::Kind::kUserObject)) {
    UserObjectState& state = state_of(*session.objects().find(wire::Kind::kUserObject, id));
    if (const uint64_t held = held_by(session, state, original); held != 0)
      state.graphs[clone] = held;
  }
}

CUresult handle(Session& session, const Decoded<wire::tubeUserObjectCreate>& call,
                Reply<wire::tubeUserObjectCreate>&) {
  if (call->word == 0 || !shared::valid_word(call->word) || call->bit >= shared::kMailboxBits)
    return CUDA_ERROR_INVALID_VALUE;
  if (session.user_object_ends().news()) sweep(session);
  if (CUresult error = session.objects().admit(wire::Kind::kUserObject, call->object);
      error != CUDA_SUCCESS)
    return error;
  auto state = std::make_unique<UserObjectState>();
  state->end = session.user_object_ends().add(&session.word(call->word), call->bit);
  state->own = call->references;
  auto* for_driver = new std::shared_ptr<UserObjectEnd>(state->end);
  CUuserObject object = nullptr;
  const CUresult error = session.driver().cuUserObjectCreate(
      &object, for_driver, on_last_reference, call->references, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  if (error != CUDA_SUCCESS) {
    delete for_driver;
    return error;
  }
  // It belongs to no context: a reset leaves it alone.
  return session.objects().insert(wire::Kind::kUserObject, call->object, object, 0,
                                  std::move(state));
}

CUresult handle(Session& session, const Decoded<wire::tubeUserObjectCount>& call,
                Reply<wire::tubeUserObjectCount>&) {
  Object* object = session.objects().find(wire::Kind::kUserObject, call->object);
  if (object == nullptr || call->count == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool release = call->op == wire::ReferenceOp::kRelease;
  if (call->graph == 0) return count_own(session, *object, release, call->count);
  return count_of_graph(session, *object, call->graph, release, call->count, call->flags);
}

}  // namespace tube::proxy
