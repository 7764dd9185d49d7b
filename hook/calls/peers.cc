// Peer access: which context of this program has enabled which other one.
//
// The proxy enables every pair of its GPUs when it starts, so nothing has to be done; what the
// program asked for decides the codes of the next calls, of memsets and of texture objects.
// Natively a kernel that reaches for a peer's memory before cuCtxEnablePeerAccess faults, here it
// works (docs/limits.md).
#include <set>
#include <utility>

#include "hook/objects/context.h"
#include "hook/objects/peers.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

struct Peers {
  Lock lock;  // rank 3
  std::set<std::pair<uint64_t, uint64_t>>
      enabled;  // unique numbers: of the reaching context, of the owner
};

Peers& peers() {
  static Peers* p = new Peers;  // leaked: calls arrive until the very end
  return *p;
}

std::pair<uint64_t, uint64_t> pair_of(const Context* from, const Context* to) {
  return {base_context(from)->unique, base_context(to)->unique};
}

}  // namespace

bool reaches(const Context* from, const Context* owner) {
  if (owner == nullptr || owner->device == from->device) return true;
  Locked locked(peers().lock);
  return peers().enabled.contains(pair_of(from, owner));
}

void let_reach(const Context* from, const Context* owner) {
  Locked locked(peers().lock);
  peers().enabled.insert(pair_of(from, owner));
}

void forget_peers(const Context* context) {
  Locked locked(peers().lock);
  std::erase_if(peers().enabled, [id = context->unique](const auto& pair) {
    return pair.first == id || pair.second == id;
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  const Context* here = current_context();
  const Context* peer = find_context(peerContext);
  if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (peer->device == here->device || here->info().can_access_peer[peer->device] == 0)
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  Locked locked(peers().lock);
  return peers().enabled.insert(pair_of(here, peer)).second
             ? CUDA_SUCCESS
             : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  const Context* here = current_context();
  const Context* peer = find_context(peerContext);
  if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->primary && !peer->live.load(std::memory_order_acquire))
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  Locked locked(peers().lock);
  return peers().enabled.erase(pair_of(here, peer)) != 0 ? CUDA_SUCCESS
                                                         : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace tube::hook
