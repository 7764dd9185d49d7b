// cuMemHostRegister: the caller's own memory for the GPU, at its own address (CUDA's device pointer
// equals the host's, and so it does here). The pages become a file that the proxy maps at the same
// address and registers with the driver (host_pages.h, proxy/ host_pages.h); when that address is
// taken in the proxy the call is refused, as for memory that cannot be locked.
//
// Ranges are registered by the byte and pinned by the page: neighbours may share a page, which then
// counts its registrations. One at a time: `calls` is held over the exchange of pages and the
// proxy's answer; `pages`, which fork() needs, only over the exchange (host_fork.h). Costs a copy
// of the bytes and two round trips at most.
#include <vector>

#include "base/log.h"
#include "hook/memory/allocator.h"
#include "hook/memory/host_fork.h"
#include "hook/memory/host_pages.h"
#include "hook/memory/memory_map.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"
#include "protocol/host_segment.h"

namespace tube::hook {
namespace {

constexpr uint64_t kPage = wire::kHostPageBytes;
constexpr unsigned kKnownFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                 CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

struct Span {
  uint64_t first, last;  // whole pages
};

Span pages_of(uint64_t base, uint64_t bytes) {
  return {base & ~(kPage - 1), (base + bytes + kPage - 1) & ~(kPage - 1)};
}

// Calls f(address, range) for the known ranges in the span. `pages` held, as for all that follow.
template <class F>
void each_range(const Span& span, F f) {
  auto& ranges = registered_pages().ranges;
  auto it = ranges.upper_bound(span.first);
  if (it != ranges.begin() && std::prev(it)->first + std::prev(it)->second.bytes > span.first) --it;
  while (it != ranges.end() && it->first < span.last) {
    const auto here = it++;
    f(here);
  }
}

// Makes the pages that no registration has yet, and enters them.
CUresult share_gaps(const Span& span, bool read_only, SharedRange* made) {
  std::vector<Span> gaps;
  uint64_t at = span.first;
  each_range(span, [&](auto it) {
    if (it->first > at) gaps.push_back({at, it->first});
    at = it->first + it->second.bytes;
  });
  if (at < span.last) gaps.push_back({at, span.last});
  CUresult result = CUDA_SUCCESS;
  for (const Span& gap : gaps) {
    result = share_pages(gap.first, gap.last, read_only, made);
    if (result != CUDA_SUCCESS) break;
  }
  for (const SharedPages& pages : made->pages) {
    registered_pages().ranges[pages.address] =
        PageRange{pages.bytes, pages.offset, 0, pages.replaced};
  }
  if (result != CUDA_SUCCESS) return result;
  return made->pages.size() > wire::kMaxHostSegments ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult tell_proxy(uint64_t base, uint64_t bytes, unsigned flags, const SharedRange& made) {
  const auto blob_bytes = static_cast<uint32_t>(made.pages.size() * sizeof(wire::HostSegment));
  Request<wire::tubeHostRegister> r(blob_room(blob_bytes));
  r.in_context(making_context());
  r->base = base;
  r->bytes = bytes;
  r->flags = flags;
  uint64_t own_token = 0;
  std::vector<uint64_t> tokens(made.files.size());
  for (size_t i = 0; i < made.files.size(); ++i)
    r.send_file(made.files[i].get(), &tokens[i], CUDA_ERROR_OPERATING_SYSTEM);
  std::vector<wire::HostSegment> segments;
  for (const SharedPages& pages : made.pages) {
    const bool own = pages.file < 0;
    if (own && own_token == 0)
      r.send_file(own_pages_file(), &own_token, CUDA_ERROR_OPERATING_SYSTEM);
    segments.push_back({pages.address, pages.bytes, pages.offset,
                        own ? own_token : tokens[static_cast<size_t>(pages.file)]});
  }
  r.put(&wire::tubeHostRegister::segments, segments.data(), blob_bytes);
  return r.call();
}

void give_back(const SharedRange& made) {
  for (const SharedPages& pages : made.pages) {
    if (pages.replaced) unshare_pages(pages.address, pages.bytes);
    registered_pages().ranges.erase(pages.address);
  }
}

// Takes one registration off every page of the span; pages without any are the program's alone
// again.
void release_pages(const Span& span) {
  each_range(span, [](auto it) {
    if (--it->second.references != 0) return;
    if (it->second.replaced) unshare_pages(it->first, it->second.bytes);
    registered_pages().ranges.erase(it);
  });
}

CUresult register_range(uint64_t base, uint64_t bytes, unsigned flags) {
  const Span span = pages_of(base, bytes);
  Locked locked(registered_pages().calls);
  MemoryKind there;
  if (memory_map().overlaps(base, bytes, &there)) {
    return there == MemoryKind::kRegistered ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                            : CUDA_ERROR_INVALID_VALUE;
  }
  watch_forks();
  SharedRange made;
  CUresult result;
  {
    Locked exchange(registered_pages().pages);
    result = share_gaps(span, (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0, &made);
  }
  if (result == CUDA_SUCCESS) result = tell_proxy(base, bytes, flags, made);
  Locked exchange(registered_pages().pages);
  if (result != CUDA_SUCCESS) {
    give_back(made);
    return result;
  }
  each_range(span, [](auto it) { ++it->second.references; });
  memory_map().insert(
      {base, bytes, next_unique(), making_context(), MemoryKind::kRegistered, flags});
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  const auto base = reinterpret_cast<uint64_t>(p);
  if (p == nullptr || bytesize == 0 || (Flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (base + bytesize < base || base + bytesize > UINT64_MAX - kPage)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  if ((Flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0 &&
      current_context()->info().attributes[CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED] ==
          0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if ((Flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0)
    return CUDA_ERROR_INVALID_VALUE;  // a device's memory cannot be passed on
  return register_range(base, bytesize, Flags);
}

CUresult cuMemHostUnregister(void* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  const auto base = reinterpret_cast<uint64_t>(p);
  Allocation a;
  if (!memory_map().find(base, &a)) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (a.kind != MemoryKind::kRegistered || a.base != base) return CUDA_ERROR_INVALID_VALUE;
  const CUresult finished = finish_work_on(a);
  Locked locked(registered_pages().calls);
  if (!memory_map().remove(base, MemoryKind::kRegistered, &a))
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  CUresult result;
  {
    Request<wire::tubeHostUnregister> r;
    r.in_context(a.context);
    r->base = base;
    result = r.call();
  }
  Locked exchange(registered_pages().pages);
  release_pages(pages_of(base, a.size_bytes));
  return finished != CUDA_SUCCESS ? finished : result;
}

void forget_registrations(const Context* context) {
  for (const uint64_t base : memory_map().bases_of(context, MemoryKind::kRegistered)) {
    Locked locked(registered_pages().calls);
    Locked exchange(registered_pages().pages);
    Allocation a;
    if (memory_map().remove(base, MemoryKind::kRegistered, &a))
      release_pages(pages_of(base, a.size_bytes));
  }
}

}  // namespace tube::hook
