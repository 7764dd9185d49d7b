// The list of caches that hear of ends, in the order in which they are told.
#include "hook/objects/listeners.h"

#include "hook/graphs/update_proofs.h"
#include "hook/memory/pinned_cache.h"
#include "hook/memory/pool_cache.h"
#include "hook/memory/slab_leases.h"

namespace tube::hook {

std::span<const Listener> listeners() {
  static constexpr Listener kListeners[] = {
      {.stream_ends = release_kept_of,
       .context_ends = forget_kept_of,
       .synchronised = pools_synchronised},
      {.context_ends = forget_kept_pinned},
      {.context_ends = context_ends_leases},
      {.posted_call_failed = forget_all_updates},
  };
  return kListeners;
}

}  // namespace tube::hook
