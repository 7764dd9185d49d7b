// Copies of 1D to 3D regions and memsets, checked: for streams (copy.cc) and for graph nodes
// (graph_node.cc).
#pragma once

#include <cstdint>

#include "base/cuda_api.h"
#include "protocol/wire.gen.h"
#include "proxy/session/copy_request.h"

namespace tube::proxy {

class Session;

// One side of a copy, as a client described it: nothing in it is trusted.
struct CopySide {
  wire::SideKind kind;
  uint64_t address;  // or chunk index << 20 | offset, or array id
  uint64_t pitch;
  uint64_t height;
  const uint64_t (&origin)[3];  // bytes, rows, slices
};

// A region as the driver is told it, and where its sides are.
struct CopyRegion {
  CUDA_MEMCPY3D copy;
  CopyEnd dst;
  CopyEnd src;
  uint64_t bytes = 0;
};

// Fills *region, whose ends are new, when both sides lie in what the client owns. Every extent is
// at least 1.
CUresult build_copy(Session& session, const CopySide& src, const CopySide& dst,
                    const uint64_t (&extent)[3], CopyRegion* region);

// `width` elements of `element` bytes in each of `height` rows: sizes sane, memory the client's.
CUresult check_memset(Session& session, uint64_t dst, uint64_t pitch, uint32_t element,
                      uint64_t width, uint64_t height);

}  // namespace tube::proxy
