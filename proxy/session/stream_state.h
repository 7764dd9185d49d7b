// What a session keeps about one stream of its client, the stand-in for the legacy stream included.
// Session thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "base/cuda_api.h"
#include "proxy/gpu/placement.h"
#include "proxy/session/objects.h"

namespace tube::proxy {

class Coalescer;
struct ContextShare;
class CopyLink;
class LaunchNote;
class ParkKeys;

// What an operation means for the order. A marker (progress word, query) on a blocking stream
// orders nothing.
enum class StreamUse : uint32_t { kWork, kMarker };

// A client's stream, and how to make it again.
struct StreamState final : ObjectState, PlacedStream {
  StreamState();
  ~StreamState() override;

  uint64_t id = 0;
  uint32_t context = 0;
  uint32_t flags = 0;   // as the client gave them; ours is always CU_STREAM_NON_BLOCKING
  bool legacy = false;  // the stand-in for handle 0
  bool blocking() const { return !legacy && (flags & CU_STREAM_NON_BLOCKING) == 0; }
  // What a record that names the stream is kept back by (parked_records.h). `works`: it puts work
  // there; `ends`: it ends the stream, and the legacy stream, or who waits for the context, waits
  // for what that has left to do.
  void add_keys(ParkKeys& keys, bool works, bool ends = false) const;
  // The same for a stream that is not made yet, since its making is kept back, or is none, which
  // the record's handler says. `made`: the record makes it.
  static void add_keys_unmade(ParkKeys& keys, uint64_t id, const ContextShare* share, bool made);
  // The same for the legacy stream of a context, whether there is a stand-in for it or not.
  static void add_legacy_keys(ParkKeys& keys, uint32_t context, bool works);
  // Of a record that marks a point behind what ended streams have left to do.
  static void add_ended_keys(ParkKeys& keys, uint32_t context);

  std::unique_ptr<Coalescer> runs;  // of plain launches; made with the first one
  bool run_open = false;            // there was one since all runs ended last
  bool attributes =
      false;  // the client set some, which a graph's kernels would not take from the stream
  uint64_t capture =
      0;  // the driver's number of the capture that began on it and has not ended; 0: none
  CUgraph captured = nullptr;  // what it makes

  // The link of its last direct copy, behind which its words stand; nullptr: it was led out.
  CopyLink* crossed = nullptr;
  bool word_counts = false;  // that copy has its mark, and no word came since
  CUevent uploaded =
      nullptr;  // legacy: behind its last upload (Session::uploaded); made when first needed
  uint64_t uploads_seen = 0;  // of the client's uploads, how many its work already comes behind

  // stream_order
  bool dirty = false;
  uint64_t dirty_since = 0;  // the sequence of the record
  uint64_t seen_epoch = 0;
  CUevent join = nullptr;  // made when first needed

  std::shared_ptr<LaunchNote> note;  // of its launches; made with the first one

  CUevent printed = nullptr;  // device_output.h; made when first needed
  // The last record that may make an assertion fail, and the last one behind whose work the GPU
  // writes a progress word.
  uint64_t last_assert = 0;  // sequences
  uint64_t marked = 0;
  uint32_t mark_word = 0;
  uint64_t mark_value = 0;
  void mark(uint64_t sequence, uint32_t word, uint64_t value) {
    marked = sequence;
    mark_word = word;
    mark_value = value;
  }
};

// Where an operation of a record goes, once Session::stream_op has been asked.
struct StreamOp {
  CUresult error = CUDA_SUCCESS;
  CUstream stream = nullptr;
  StreamState* state = nullptr;
  bool in_run = false;
};

}  // namespace tube::proxy
