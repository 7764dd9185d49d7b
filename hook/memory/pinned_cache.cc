#include "hook/memory/pinned_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "hook/objects/support.h"

namespace tube::hook {
namespace {

constexpr size_t kMostPinnedBlocks = 256;
constexpr uint64_t kMostPinnedBytes = 128ull << 20;

struct KeptPinned {
  uint64_t base = 0;
  uint64_t bytes = 0;
  Context* context = nullptr;
  std::vector<Mark> others;  // of other contexts, which may use it until then
};

bool unused(const KeptPinned& kept) {
  return std::all_of(kept.others.begin(), kept.others.end(), mark_reached);
}

struct PinnedCache {
  Lock lock;                       // rank 3
  std::vector<KeptPinned> blocks;  // the latest last
  uint64_t bytes = 0;
};
PinnedCache& pinned_cache() {
  static PinnedCache* c = new PinnedCache;  // leaked: calls arrive until the very end
  return *c;
}

}  // namespace

bool keep_pinned(const Allocation& allocation, std::vector<Mark> others) {
  const uint64_t bytes = pinned_bytes(allocation.size_bytes);
  PinnedCache& c = pinned_cache();
  Locked locked(c.lock);
  if (allocation.context == nullptr || c.blocks.size() >= kMostPinnedBlocks ||
      bytes > kMostPinnedBytes - c.bytes)
    return false;
  c.blocks.push_back({allocation.base, bytes, allocation.context, std::move(others)});
  c.bytes += bytes;
  return true;
}

bool take_pinned(const Context* context, uint64_t bytes, uint64_t* address) {
  const uint64_t wanted = pinned_bytes(bytes);
  PinnedCache& c = pinned_cache();
  Locked locked(c.lock);
  for (size_t i = c.blocks.size(); i-- != 0;) {
    if (c.blocks[i].bytes != wanted || c.blocks[i].context != context || !unused(c.blocks[i]))
      continue;
    *address = c.blocks[i].base;
    c.bytes -= wanted;
    c.blocks.erase(c.blocks.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  }
  return false;
}

bool release_kept_pinned() {
  PinnedCache& c = pinned_cache();
  Locked locked(c.lock);
  return std::erase_if(c.blocks, [&](const KeptPinned& kept) {
           if (!unused(kept)) return false;
           Request<wire::tubePinnedFree> r;
           r.in_context(kept.context);
           r->address = kept.base;
           (void)r.post();
           c.bytes -= kept.bytes;
           return true;
         }) != 0;
}

void forget_kept_pinned(const Context* context) {
  PinnedCache& c = pinned_cache();
  Locked locked(c.lock);
  std::erase_if(c.blocks, [&](const KeptPinned& kept) {
    if (kept.context != context) return false;
    c.bytes -= kept.bytes;
    return true;
  });
}

}  // namespace tube::hook
