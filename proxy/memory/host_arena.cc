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

// Takes runs of free granules until nothing is missing or nothing is free.
void HostArena::fill(HostCopy& copy, uint64_t* missing) {
  std::lock_guard lock(mutex_);
  for (Chunk& chunk : chunks_) {
    while (*missing != 0 && (~chunk.used & chunk.all()) != 0) {
      const uint64_t free = ~chunk.used & chunk.all();
      const auto first = static_cast<unsigned>(std::countr_zero(free));
      const auto run = static_cast<uint64_t>(std::countr_one(free >> first));
      const uint64_t granules = std::min(run, *missing / kGranule);
      const uint64_t mask = granules == 64 ? ~uint64_t{0} : (uint64_t{1} << granules) - 1;
      chunk.used |= mask << first;
      copy.pieces_.push_back(
          {reinterpret_cast<CUdeviceptr>(chunk.at + first * kGranule), granules * kGranule});
      *missing -= granules * kGranule;
      used_ += granules * kGranule;
    }
    if (*missing == 0) return;
  }
}

void HostArena::give(const HostCopy& copy) {
  std::lock_guard lock(mutex_);
  for (const HostCopy::Piece& piece : copy.pieces_) {
    for (Chunk& chunk : chunks_) {
      const auto base = reinterpret_cast<CUdeviceptr>(chunk.at);
      if (piece.address < base || piece.address - base >= chunk.bytes) continue;
      const uint64_t granules = piece.bytes / kGranule;
      const uint64_t mask = granules == 64 ? ~uint64_t{0} : (uint64_t{1} << granules) - 1;
      chunk.used &= ~(mask << ((piece.address - base) / kGranule));
      used_ -= piece.bytes;
      break;
    }
  }
}

// False: the bound, or the machine.
bool HostArena::grow(uint64_t wanted) {
  uint64_t bytes = 0;
  {
    std::lock_guard lock(mutex_);
    if (wanted > most_ - std::min(most_, used_)) return false;
    bytes = std::min(kChunk, most_ - held_);
    if (bytes == 0) return false;
    held_ += bytes;
  }
  Chunk chunk;
  const bool made = make(bytes, &chunk);
  std::lock_guard lock(mutex_);
  if (made) chunks_.push_back(chunk);
  else held_ -= bytes;
  return made;
}

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
  // A kernel without it (before 5.14) makes them when they are registered.
  if (madvise(chunk, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL) return chunk;
  munmap(chunk, bytes);
  return nullptr;
}

}  // namespace

bool HostArena::make(uint64_t bytes, Chunk* chunk) {
  if (!take_host(host_, HostUse::kEvicted, bytes)) return false;
  void* const at = map_chunk(bytes);
  if (at != nullptr &&
      driver_.cuMemHostRegister_v2(at, bytes, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS) {
    *chunk = {static_cast<std::byte*>(at), bytes, 0};
    return true;
  }
  if (at != nullptr) munmap(at, bytes);
  give_host(host_, HostUse::kEvicted, bytes);
  log_warn("%lu bytes of pinned memory for what leaves the GPUs are not to be had: %s", bytes,
           "moving memory off the GPUs stops here");
  return false;
}

void HostArena::unmake(const Chunk& chunk) {
  if (driver_.cuMemHostUnregister(chunk.at) != CUDA_SUCCESS) return;  // it may still be written to
  munmap(chunk.at, chunk.bytes);
  give_host(host_, HostUse::kEvicted, chunk.bytes);
}

void HostArena::drop_idle() {
  std::list<Chunk> gone;
  {
    std::lock_guard lock(mutex_);
    for (auto it = chunks_.begin(); it != chunks_.end();) {
      const auto each = it++;
      if (each->used != 0) continue;
      held_ -= each->bytes;
      gone.splice(gone.end(), chunks_, each);
    }
  }
  for (const Chunk& chunk : gone) unmake(chunk);
}

HostArena::Counts HostArena::counts() const {
  std::lock_guard lock(mutex_);
  return {held_, used_};
}

}  // namespace tube::proxy
