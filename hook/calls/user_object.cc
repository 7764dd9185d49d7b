// User objects. The driver in the proxy counts references; this process keeps the destructor and a
// bit of a word per object, which the proxy sets when the last reference has gone. The callbacks
// thread then runs the destructor (callback.cc).
//
// A collective library makes one for each collective of a captured graph: 32 share a word. A word
// goes back when it has given out all of its bits and the last of these objects has ended.
//
// Nothing wakes the thread for such a word: it looks often after a call that may have released
// something, rarely else.
#include <algorithm>
#include <vector>

#include "hook/graphs/graph_steps.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

struct UserObject {
  uint64_t id = 0;
  uint32_t word = 0;
  uint32_t bit = 0;
  CUhostFn destroy = nullptr;
  void* data = nullptr;
};
struct Word {
  uint32_t number = 0;
  uint32_t given = 0;  // bits, the lowest first
  uint32_t alive = 0;  // objects
};
struct UserObjects {
  Lock lock;  // rank 2
  std::vector<UserObject> alive;
  std::vector<Word> words;  // the last one has bits to give, or none has
};
UserObjects& user_objects() {
  static UserObjects* u = new UserObjects;
  return *u;
}

// A bit that no other living object has. False: there is no word left.
bool take_bit(UserObject* object) {
  UserObjects& u = user_objects();
  Locked locked(u.lock);
  if (u.words.empty() || u.words.back().given == shared::kMailboxBits) {
    const uint32_t number = connection().words.allocate_mailbox(0);
    if (number == shared::kNoWord) return false;
    u.words.push_back({number, 0, 0});
  }
  Word& word = u.words.back();
  object->word = word.number;
  object->bit = word.given++;
  ++word.alive;
  return true;
}

// The proxy does not write it any more.
void give_bit_back(const UserObject& object) {
  UserObjects& u = user_objects();
  Locked locked(u.lock);
  const auto word = std::find_if(u.words.begin(), u.words.end(),
                                 [&](const Word& one) { return one.number == object.word; });
  if (--word->alive != 0 || word->given != shared::kMailboxBits) return;
  connection().words.release_mailbox(word->number);
  u.words.erase(word);
}

bool has_ended(const UserObject& object) {
  const uint64_t value = connection().words.load(object.word);
  return value != abi::kWordReleased && (value >> object.bit & 1) != 0;
}

CUresult count(CUuserObject object, CUgraph graph, bool of_graph, wire::ReferenceOp op,
               unsigned count, unsigned flags) {
  uint64_t object_id = 0, graph_id = 0;
  if (const CUresult r = id_of(Kind::kUserObject, object, &object_id); r != CUDA_SUCCESS) return r;
  if (of_graph) {
    if (const CUresult r = id_of(Kind::kGraph, graph, &graph_id); r != CUDA_SUCCESS) return r;
  }
  CUresult result;
  {
    Request<wire::tubeUserObjectCount> r;
    r->object = object_id;
    r->graph = graph_id;
    r->op = op;
    r->count = count;
    r->flags = flags;
    result = r.call();
  }
  if (op == wire::ReferenceOp::kRelease) wake_callbacks();
  return result;
}

}  // namespace

bool run_due_destructor(bool* waiting) {
  UserObject due;
  {
    UserObjects& u = user_objects();
    Locked locked(u.lock);
    for (size_t i = 0; i < u.alive.size() && due.word == 0; ++i) {
      if (!has_ended(u.alive[i])) continue;
      due = u.alive[i];
      u.alive.erase(u.alive.begin() + static_cast<ptrdiff_t>(i));
    }
    *waiting = !u.alive.empty();
  }
  if (due.word == 0) return false;
  give_bit_back(due);
  drop(Kind::kUserObject, due.id);
  due.destroy(due.data);
  return true;
}

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
  if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 ||
      initialRefcount > 0x7fffffffu)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  if (!start_callbacks()) return CUDA_ERROR_OUT_OF_MEMORY;
  UserObject made;
  made.destroy = destroy;
  made.data = ptr;
  if (!take_bit(&made)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* handle = nullptr;
  made.id = new_id(Kind::kUserObject, &handle);
  if (made.id == 0) {
    give_bit_back(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result;
  {
    Request<wire::tubeUserObjectCreate> r;
    r->object = made.id;
    r->references = initialRefcount;
    r->word = made.word;
    r->bit = made.bit;
    result = r.call();
  }
  if (result != CUDA_SUCCESS) {
    drop(Kind::kUserObject, made.id);
    give_bit_back(made);
    return result;
  }
  {
    UserObjects& u = user_objects();
    Locked locked(u.lock);
    u.alive.push_back(made);
  }
  wake_callbacks();
  *object_out = static_cast<CUuserObject>(handle);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int n) {
  return count(object, nullptr, false, wire::ReferenceOp::kRetain, n, 0);
}
CUresult cuUserObjectRelease(CUuserObject object, unsigned int n) {
  return count(object, nullptr, false, wire::ReferenceOp::kRelease, n, 0);
}
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int n,
                                 unsigned int flags) {
  if (flags > CU_GRAPH_USER_OBJECT_MOVE) return CUDA_ERROR_INVALID_VALUE;
  return count(object, graph, true, wire::ReferenceOp::kRetain, n, flags);
}
CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int n) {
  return count(object, graph, true, wire::ReferenceOp::kRelease, n, 0);
}

}  // namespace tube::hook
