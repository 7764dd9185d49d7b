#include "hook/memory/slab_leases.h"

#include <atomic>
#include <new>

#include "hook/memory/unit_map.h"
#include "hook/objects/support.h"
#include "sharedmem/abi.h"

namespace tube::hook {
namespace {

struct Lease {
  uint64_t base = 0;  // 0: none
  uint32_t device = 0;
  UnitMap units;
};
static_assert(abi::kBlockUnit / abi::kPieceUnit == UnitMap::kUnits);

struct Leases {
  Lock lock;                       // rank 3
  std::atomic<uint32_t> count{0};  // changed under the lock
  uint32_t last = 0;               // where a piece was found
  Lease leases[abi::kMostLeases];
};

// Made with the first lease, and leaked: calls arrive until the very end.
std::atomic<Leases*> all{nullptr};

constexpr uint64_t slab_of(uint64_t address) { return address & ~(abi::kBlockUnit - 1); }
constexpr uint32_t unit_of(uint64_t address) {
  return static_cast<uint32_t>((address & (abi::kBlockUnit - 1)) / abi::kPieceUnit);
}
constexpr uint32_t units_of(uint64_t bytes) {
  return static_cast<uint32_t>((bytes + abi::kPieceUnit - 1) / abi::kPieceUnit);
}

// nullptr: no slab is leased.
Leases* any() {
  Leases* leases = all.load(std::memory_order_acquire);
  return leases != nullptr && leases->count.load(std::memory_order_relaxed) != 0 ? leases : nullptr;
}

Leases* make() {
  if (Leases* leases = all.load(std::memory_order_acquire)) return leases;
  auto* fresh = new (std::nothrow) Leases;
  Leases* before = nullptr;
  if (fresh == nullptr || all.compare_exchange_strong(before, fresh, std::memory_order_acq_rel))
    return fresh;
  delete fresh;
  return before;
}

void post_end(uint64_t base) {
  Request<wire::tubeMemLeaseEnd> r;
  r->slab = base;
  (void)r.post();
}

// Lock held by the following.

Lease* find(Leases& l, uint64_t base) {
  for (Lease& lease : l.leases)
    if (lease.base == base && base != 0) return &lease;
  return nullptr;
}

void end(Leases& l, Lease& lease) {
  post_end(lease.base);
  lease.base = 0;
  l.count.fetch_sub(1, std::memory_order_relaxed);
}

bool other_empty(const Leases& l, const Lease& lease) {
  for (const Lease& other : l.leases) {
    if (&other != &lease && other.base != 0 && other.device == lease.device && other.units.empty())
      return true;
  }
  return false;
}

template <class Which>
bool end_all(Leases& l, Which which) {
  bool any = false;
  for (Lease& lease : l.leases) {
    if (lease.base == 0 || !which(lease)) continue;
    end(l, lease);
    any = true;
  }
  return any;
}

uint64_t cut_of(Lease& lease, Context* context, uint64_t bytes) {
  if (lease.base == 0 || lease.device != context->device) return 0;
  const uint32_t unit = lease.units.take(units_of(bytes));
  if (unit == UnitMap::kNone) return 0;
  const uint64_t address = lease.base + unit * abi::kPieceUnit;
  Request<wire::tubeMemCut> r;
  r.in_context(context);
  r->dptr = address;
  r->bytes = bytes;
  (void)r.post();  // a proxy that is gone says so at the next call
  return address;
}

}  // namespace

uint64_t cut_piece(Context* context, uint64_t bytes) {
  Leases* l = any();
  if (l == nullptr || bytes > abi::kLargestInSlab) return 0;
  Locked locked(l->lock);
  for (uint32_t i = 0; i < abi::kMostLeases; ++i) {
    const uint32_t index = (l->last + i) % abi::kMostLeases;
    const uint64_t address = cut_of(l->leases[index], context, bytes);
    if (address == 0) continue;
    l->last = index;
    return address;
  }
  return 0;
}

void slab_was_leased(const Context* context, uint64_t address, uint64_t bytes) {
  const uint64_t base = slab_of(address);
  Leases* l = make();
  if (l == nullptr) return post_end(base);
  Locked locked(l->lock);
  for (Lease& lease : l->leases) {
    if (lease.base != 0) continue;
    lease.base = base;
    lease.device = context->device;
    lease.units = {};
    lease.units.take_at(unit_of(address), units_of(bytes));
    l->count.fetch_add(1, std::memory_order_relaxed);
    l->last = static_cast<uint32_t>(&lease - l->leases);
    return;
  }
  post_end(base);
}

// Record and place under one lock: a lease that ended and began again in between would lose the
// piece that somebody else has cut there.
bool free_piece(Context* context, uint64_t address, uint64_t bytes, CUresult* result) {
  Leases* l = any();
  if (l == nullptr || bytes > abi::kLargestInSlab) return false;
  Locked locked(l->lock);
  Lease* lease = find(*l, slab_of(address));
  if (lease == nullptr) return false;
  {
    Request<wire::tubeMemFree> r;  // holds the producer's lock: gone before the lease may end
    r.in_context(context);
    r->dptr = address;
    r->offer = abi::kCutAgain;
    *result = r.post();
  }
  lease->units.free(unit_of(address), units_of(bytes));
  if (lease->units.empty() && other_empty(*l, *lease)) end(*l, *lease);
  return true;
}

void end_lease_of(uint64_t address) {
  Leases* l = any();
  if (l == nullptr) return;
  Locked locked(l->lock);
  if (Lease* lease = find(*l, slab_of(address))) end(*l, *lease);
}

bool end_empty_leases() {
  Leases* l = any();
  if (l == nullptr) return false;
  Locked locked(l->lock);
  return end_all(*l, [](const Lease& lease) { return lease.units.empty(); });
}

void context_ends_leases(const Context* context) {
  Leases* l = any();
  if (l == nullptr) return;
  Locked locked(l->lock);
  (void)end_all(*l, [&](const Lease& lease) { return lease.device == context->device; });
}

}  // namespace tube::hook
