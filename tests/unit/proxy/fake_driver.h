// A driver that does nothing and remembers what it was asked: every entry point of the table
// answers CUDA_ERROR_NOT_SUPPORTED, except the few below, which hand out numbered handles and write
// down their calls.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "protocol/driver_table.gen.h"

namespace tube::proxy::test {

struct FakeState {
  std::vector<std::string> calls;  // "record e1 s2", "wait s3 e1", ...
  uint64_t next_handle = 1;
  int live_streams = 0;
  int live_arrays = 0, live_mipmaps = 0, live_textures = 0, live_surfaces = 0;
  int live_events = 0;
  int live_memory = 0;        // cuMemCreate or an import without cuMemRelease
  int mappings = 0;           // cuMemMap without cuMemUnmap
  std::set<uint64_t> memory;  // handles that live; a call with another one fails
  CUresult next_map = CUDA_SUCCESS;
  CUresult next_memory = CUDA_SUCCESS;  // of cuMemCreate and arrays
  CUresult next_access = CUDA_SUCCESS;  // of cuMemSetAccess
  uint64_t memory_bytes = 1ull << 30;   // of which cuMemCreate takes, and cuMemGetInfo tells
  std::map<uint64_t, uint64_t> sizes;   // of what cuMemCreate made, by handle
  uint64_t taken() const;
  int event_queries = 0;
  std::vector<CUevent> recorded;
  std::set<CUevent> reached;  // events that are over; all of them unless `events_wait`
  bool events_wait = false;
  int registered = 0;  // cuMemHostRegister without Unregister
  int launches = 0;
  CUresult next_launch = CUDA_SUCCESS;
  bool stream_busy = false;
  CUstream capturing = nullptr;  // answers no query
};

FakeState& fake();          // of the current test
Driver make_fake_driver();  // resets fake()

}  // namespace tube::proxy::test
