#include "proxy/memory/host_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/memory/host_budget.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tube::proxy {

HostCopy::~HostCopy() { arena_.give(*this); }

void HostCopy::join(HostCopy& next) {
  pieces_.reserve(pieces_.size() + next.pieces_.size());
  chunks_.reserve(chunks_.size() + next.pieces_.size());
  for (size_t i = 0; i < next.pieces_.size(); ++i) {
    pieces_.push_back(next.pieces_[i]);
    chunks_.push_back(next.chunks_[i]);
  }
  bytes_ += std::exchange(next.bytes_, 0);
  next.pieces_.clear();
  next.chunks_.clear();
}

std::unique_ptr<HostCopy> HostArena::take(uint64_t bytes) {
  bytes = (bytes + kGranule - 1) / kGranule * kGranule;
  if (bytes == 0 || bytes > most_) return nullptr;
  auto copy = std::make_unique<HostCopy>(*this, bytes);
  uint64_t missing = bytes;
  while (true) {
    fill(*copy, &missing);
    if (missing == 0) return copy;
    if (!grow(missing)) return nullptr;
  }
}

namespace {

constexpr uint64_t all_granules(const HostChunk& chunk) {
  const uint64_t granules = chunk.bytes / HostArena::kGranule;
  return granules == 64 ? ~uint64_t{0} : (uint64_t{1} << granules) - 1;
}

constexpr uint64_t mask_of(uint64_t granules, uint64_t first) {
  return (granules == 64 ? ~uint64_t{0} : (uint64_t{1} << granules) - 1) << first;
}

}  // namespace

// Takes runs of free granules until nothing is missing or nothing is free.
void HostArena::fill(HostCopy& copy, uint64_t* missing) {
  std::lock_guard lock(mutex_);
  while (*missing != 0 && !room_.empty()) {
    const auto chunk = room_.begin();
    const uint64_t free = ~chunk->used & all_granules(*chunk);
    const auto first = static_cast<unsigned>(std::countr_zero(free));
    const auto run = static_cast<uint64_t>(std::countr_one(free >> first));
    const uint64_t granules = std::min(run, *missing / kGranule);
    // First the places, which may not be had: what is taken must be known to the copy.
    copy.chunks_.push_back(chunk);
    copy.pieces_.push_back(
        {reinterpret_cast<CUdeviceptr>(chunk->at + first * kGranule), granules * kGranule});
    chunk->used |= mask_of(granules, first);
    *missing -= granules * kGranule;
    used_ += granules * kGranule;
    if (chunk->used == all_granules(*chunk)) full_.splice(full_.end(), room_, chunk);
  }
}

// What was used last is used next.
void HostArena::give(const HostCopy& copy) {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < copy.pieces_.size(); ++i) {
    const auto chunk = copy.chunks_[i];
    const HostCopy::Piece& piece = copy.pieces_[i];
    if (chunk->used == all_granules(*chunk)) room_.splice(room_.begin(), full_, chunk);
    const uint64_t first = (piece.address - reinterpret_cast<CUdeviceptr>(chunk->at)) / kGranule;
    chunk->used &= ~mask_of(piece.bytes / kGranule, first);
    used_ -= piece.bytes;
  }
}

// The size of the next chunk, if no more than `most` are to be held; counted as held.
bool HostArena::reserve(uint64_t most, uint64_t* bytes) {
  most = std::min(most, most_);
  std::lock_guard lock(mutex_);
  if (held_ >= most) return false;
  *bytes = std::min(kChunk, most_ - held_);
  held_ += *bytes;
  return true;
}

// False: the bound, or the machine.
bool HostArena::grow(uint64_t wanted) {
  return wanted <= most_ - std::min(most_, counts().used_bytes) && make(most_, Need::kNow);
}

bool HostArena::make_ahead(uint64_t until_bytes) { return make(until_bytes, Need::kAhead); }

namespace {

// Memory with its pages, large ones where there are any. nullptr: there is none.
void* map_chunk(uint64_t bytes) {
  constexpr uint64_t kPage = HostArena::kGranule;
  void* all =
      mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uint64_t>(all);
  const uint64_t at = (begin + kPage - 1) / kPage * kPage, end = begin + bytes + kPage;
  if (at != begin) munmap(all, at - begin);
  if (at + bytes != end) munmap(reinterpret_cast<void*>(at + bytes), end - at - bytes);
  void* const chunk = reinterpret_cast<void*>(at);
  (void)madvise(chunk, bytes, MADV_HUGEPAGE);
  (void)madvise(chunk, bytes, MADV_DONTDUMP);  // what functions have on their GPUs
  // A kernel without it (before 5.14) makes them when they are registered.
  if (madvise(chunk, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL) return chunk;
  munmap(chunk, bytes);
  return nullptr;
}

}  // namespace

bool HostArena::make(uint64_t most, Need need) {
  std::list<HostChunk> one(1);  // its place first, then what must not be lost
  uint64_t bytes = 0;
  if (!reserve(most, &bytes)) return false;
  const bool made = map(bytes, need, &one.front());
  std::lock_guard lock(mutex_);
  if (!made) held_ -= bytes;
  if (!made) return false;
  (need == Need::kAhead ? ahead_ : on_request_) += bytes;
  room_.splice(room_.end(), one);
  return true;
}

bool HostArena::map(uint64_t bytes, Need need, HostChunk* chunk) {
  if (!take_host(host_, HostUse::kEvicted, bytes)) return false;
  void* const at = map_chunk(bytes);
  if (at != nullptr && add_registration(registrations_, driver_, Registrant::kEvicted, 0, at, bytes,
                                        CU_MEMHOSTREGISTER_PORTABLE, need) == CUDA_SUCCESS) {
    chunk->at = static_cast<std::byte*>(at);
    chunk->bytes = bytes;
    return true;
  }
  if (at != nullptr) munmap(at, bytes);
  give_host(host_, HostUse::kEvicted, bytes);
  log_warn("%lu bytes of pinned memory for what leaves the GPUs are not to be had: %s", bytes,
           need == Need::kNow ? "moving memory off the GPUs stops here" : "none is made ahead");
  return false;
}

void HostArena::unmake(const HostChunk& chunk) {
  if (remove_registration(registrations_, driver_, Registrant::kEvicted, chunk.at) != CUDA_SUCCESS)
    return;  // it may still be written to
  munmap(chunk.at, chunk.bytes);
  give_host(host_, HostUse::kEvicted, chunk.bytes);
}

void HostArena::drop_idle() {
  std::list<HostChunk> gone;
  {
    std::lock_guard lock(mutex_);
    for (auto it = room_.begin(); it != room_.end();) {
      const auto each = it++;
      if (each->used != 0) continue;
      held_ -= each->bytes;
      gone.splice(gone.end(), room_, each);
    }
  }
  for (const HostChunk& chunk : gone) unmake(chunk);
}

HostArena::Counts HostArena::counts() const {
  std::lock_guard lock(mutex_);
  return {held_, used_, ahead_, on_request_};
}

}  // namespace tube::proxy
