#include "hook/memory/pool_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "hook/objects/pool.h"
#include "hook/objects/support.h"
#include "hook/objects/thread.h"

namespace tube::hook {
namespace {

constexpr uint32_t kSyncs = 16;
constexpr size_t kMostBlocks = 1024;
constexpr uint64_t kMostBytes = 1ull << 30;
// How long an allocation that finds no memory waits for what its program has freed: as long as the
// proxy would by default (TUBE_MEMORY_WAIT_MS). A stream may wait for what this very thread does
// next.
constexpr uint64_t kLongestWaitNs = 2'000'000'000;

struct Kept {
  uint64_t base = 0;
  uint64_t bytes = 0;
  Context* context = nullptr;
  Stream* stream = nullptr;
  uint64_t stream_id = 0;
  CUmemoryPool pool = nullptr;
  uint32_t sync = 0;  // how many synchronisations there had been
  WorkPoint freed;    // where in its stream
};

struct Cache {
  Lock lock;                 // rank 3
  std::vector<Kept> blocks;  // the latest last
  uint64_t bytes = 0;
  uint32_t syncs = 0;
  std::atomic<uint32_t> count{0};  // of blocks
};
Cache& cache() {
  static Cache* c = new Cache;  // leaked: calls arrive until the very end
  return *c;
}

enum class Back { kGone, kBehindStream, kNow };

// Lock held. False: not now, its stream captures, so that no work of ours may come into it.
bool give_back(const Kept& kept, Back back) {
  if (back == Back::kBehindStream) {
    Request<wire::tubeMemFreeAsync> r(kept.stream);
    if (capturing(kept.stream))
      return false;  // looked at under the producer lock: another thread may be about to begin
    r->stream = kept.stream_id;
    r->dptr = kept.base;
    (void)r.post();
  } else if (back == Back::kNow) {
    Request<wire::tubeMemFree> r;
    r.in_context(kept.context);
    r->dptr = kept.base;
    (void)r.post();
  }
  return true;
}

// Lock held. Takes out what `goes`.
template <class Goes>
uint32_t remove_if(Cache& c, Back back, Goes goes) {
  uint32_t removed = 0;
  std::erase_if(c.blocks, [&](const Kept& kept) {
    if (!goes(kept) || !give_back(kept, back)) return false;
    c.bytes -= kept.bytes;
    ++removed;
    return true;
  });
  c.count.store(static_cast<uint32_t>(c.blocks.size()), std::memory_order_relaxed);
  return removed;
}

uint64_t threshold_of(CUmemoryPool handle) {
  const Pool* pool = find_pool(handle);
  return pool == nullptr ? 0 : pool->release_threshold;
}

// Lock held.
uint64_t kept_of(const Cache& c, CUmemoryPool pool) {
  uint64_t bytes = 0;
  for (const Kept& kept : c.blocks) bytes += kept.pool == pool ? kept.bytes : 0;
  return bytes;
}

struct Beyond {
  CUmemoryPool pool = nullptr;
  uint32_t device = 0;  // the proxy's number
  uint64_t bytes = 0;
};

// Lock held. What each pool keeps beyond its threshold.
std::vector<Beyond> beyond_thresholds(const Cache& c) {
  std::vector<Beyond> over;
  for (const Kept& kept : c.blocks) {
    const auto known = std::find_if(over.begin(), over.end(),
                                    [&](const Beyond& entry) { return entry.pool == kept.pool; });
    if (known != over.end()) continue;
    const uint64_t bytes = kept_of(c, kept.pool), threshold = threshold_of(kept.pool);
    over.push_back({kept.pool, kept.context->device, bytes > threshold ? bytes - threshold : 0});
  }
  return over;
}

// Lock held. Gives back the pool's oldest until it keeps `keep` bytes; how many it keeps then, more
// only where streams capture.
uint64_t trim(Cache& c, CUmemoryPool pool, uint64_t keep) {
  uint64_t kept_bytes = kept_of(c, pool);
  if (kept_bytes <= keep) return kept_bytes;
  remove_if(c, Back::kBehindStream, [&](const Kept& kept) {
    if (kept.pool != pool || kept_bytes <= keep || capturing(kept.stream)) return false;
    kept_bytes -= kept.bytes;
    return true;
  });
  return kept_bytes;
}

}  // namespace

bool keep_in_pool(Stream* stream, const Allocation& allocation, uint64_t most) {
  const Pool* pool = find_pool(allocation.pool);
  if (pool == nullptr || pool->shareable || allocation.context == nullptr) return false;
  const uint64_t bytes = pool_bytes(allocation.size_bytes);
  Cache& c = cache();
  Locked locked(c.lock);
  if (bytes > most) return false;
  if (c.bytes + bytes > most && trim(c, allocation.pool, most - bytes) > most - bytes) return false;
  if (c.blocks.size() >= kMostBlocks) return false;
  if (c.bytes + bytes > kMostBytes && kept_of(c, allocation.pool) + bytes > pool->release_threshold)
    return false;
  c.blocks.push_back({allocation.base, bytes, allocation.context, stream, stream->id,
                      allocation.pool, c.syncs, work_so_far(stream)});
  c.bytes += bytes;
  c.count.store(static_cast<uint32_t>(c.blocks.size()), std::memory_order_relaxed);
  return true;
}

bool take_from_pool(const Stream* stream, const Context* context, CUmemoryPool pool, uint64_t bytes,
                    uint64_t* address) {
  Cache& c = cache();
  if (c.count.load(std::memory_order_relaxed) == 0) return false;
  const uint64_t wanted = pool_bytes(bytes);
  Locked locked(c.lock);
  for (size_t i = c.blocks.size(); i-- != 0;) {
    const Kept& kept = c.blocks[i];
    if (kept.bytes != wanted || kept.stream != stream || kept.stream_id != stream->id ||
        kept.context != context || kept.pool != pool)
      continue;
    *address = kept.base;
    c.bytes -= wanted;
    c.blocks.erase(c.blocks.begin() + static_cast<std::ptrdiff_t>(i));
    c.count.store(static_cast<uint32_t>(c.blocks.size()), std::memory_order_relaxed);
    return true;
  }
  return false;
}

void pools_synchronised() {
  Cache& c = cache();
  if (c.count.load(std::memory_order_relaxed) == 0) return;
  Locked locked(c.lock);
  ++c.syncs;
  const bool any_old = std::any_of(c.blocks.begin(), c.blocks.end(),
                                   [&](const Kept& kept) { return c.syncs - kept.sync > kSyncs; });
  if (!any_old) return;
  // The oldest first, until a pool is down to its threshold.
  std::vector<Beyond> over = beyond_thresholds(c);
  remove_if(c, Back::kBehindStream, [&](const Kept& kept) {
    if (c.syncs - kept.sync <= kSyncs || capturing(kept.stream)) return false;
    uint64_t& beyond = std::find_if(over.begin(), over.end(), [&](const Beyond& entry) {
                         return entry.pool == kept.pool;
                       })->bytes;
    if (beyond == 0) return false;
    beyond -= std::min(beyond, kept.bytes);
    return true;
  });
}

namespace {

// Lock held. At once, where nothing of the GPU's work concerns the memory any more. So a stream may
// capture meanwhile, or wait for whatever came behind the free.
uint32_t release_ended(Cache& c) {
  if (!uploads_ended()) return 0;
  return remove_if(c, Back::kNow,
                   [](const Kept& kept) { return work_ended(kept.stream, kept.freed); });
}

// Lock held. The rest goes behind its streams; `*marks`: when it has gone, and when what stays with
// a capturing stream can.
uint32_t release_behind_streams(Cache& c, std::vector<std::pair<Stream*, Mark>>* marks) {
  std::vector<Stream*> streams;
  const uint32_t gone = remove_if(c, Back::kBehindStream, [&](const Kept& kept) {
    if (std::find(streams.begin(), streams.end(), kept.stream) == streams.end())
      streams.push_back(kept.stream);
    return !capturing(kept.stream);
  });
  for (Stream* stream : streams) {
    Mark mark;
    if (mark_stream(stream, &mark) == CUDA_SUCCESS) marks->emplace_back(stream, mark);
  }
  return gone;
}

}  // namespace

bool release_kept_memory() {
  Cache& c = cache();
  if (c.count.load(std::memory_order_relaxed) == 0) return false;
  const uint64_t deadline = now_ns() + kLongestWaitNs;
  settle_uploads(deadline);
  std::vector<std::pair<Stream*, Mark>> marks;
  uint32_t gone = 0;
  {
    Locked locked(c.lock);  // as long as it keeps memory of a stream, that has not ended
    gone += release_ended(c);
    gone += release_behind_streams(c, &marks);
  }
  for (const auto& [stream, mark] : marks) (void)reach_mark_by(mark, stream, deadline);
  Locked locked(c.lock);
  if (!marks.empty()) gone += release_ended(c);  // of streams that capture
  return gone != 0;
}

uint64_t kept_memory_of(uint32_t device) {
  Cache& c = cache();
  if (c.count.load(std::memory_order_relaxed) == 0) return 0;
  Locked locked(c.lock);
  uint64_t bytes = 0;
  for (const Beyond& of : beyond_thresholds(c)) {
    if (of.device != device) continue;
    uint64_t synchronised = 0;
    for (const Kept& kept : c.blocks)
      synchronised += kept.pool == of.pool && kept.sync != c.syncs ? kept.bytes : 0;
    bytes += std::min(of.bytes, synchronised);
  }
  return bytes;
}

void trim_kept_memory(CUmemoryPool pool, uint64_t keep) {
  Cache& c = cache();
  if (c.count.load(std::memory_order_relaxed) == 0) return;
  Locked locked(c.lock);
  trim(c, pool, keep);
}

void release_kept_of(const Stream* stream) {
  Cache& c = cache();
  if (c.count.load(std::memory_order_relaxed) == 0) return;
  Locked locked(c.lock);
  // A stream that captures takes no work of ours; what was put into it before, a free waits for as
  // well.
  const Back back = capturing(stream) ? Back::kNow : Back::kBehindStream;
  remove_if(c, back, [=](const Kept& kept) {
    return kept.stream == stream && kept.stream_id == stream->id;
  });
}

void forget_kept_of(const Context* context) {
  Cache& c = cache();
  if (c.count.load(std::memory_order_relaxed) == 0) return;
  Locked locked(c.lock);
  remove_if(c, Back::kGone, [=](const Kept& kept) { return kept.context == context; });
  remove_if(c, Back::kNow, [=](const Kept& kept) {
    return kept.stream->context == context;
  });  // its streams have ended
}

}  // namespace tube::hook
