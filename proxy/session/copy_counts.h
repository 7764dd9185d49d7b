// What one client's copies between host and GPU did, by direction and by why they went the way they
// went. Written by the session thread, read by the control socket's thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "policies/copy_way.h"
#include "proxy/common/stats.h"

namespace tube::proxy {

struct CopyCounts {
  struct Cell {
    std::atomic<uint64_t> copies{0}, bytes{0};
  };
  using Reasons = std::array<Cell, static_cast<size_t>(policies::CopyReason::kCount)>;

  Reasons up, down;

  void add(bool to_gpu, policies::CopyReason why, uint64_t moved) {
    Cell& cell = (to_gpu ? up : down)[static_cast<size_t>(why)];
    Stats::add(cell.copies);
    Stats::add(cell.bytes, moved);
  }
};

}  // namespace tube::proxy
