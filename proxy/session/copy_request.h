// One copy as its handler has checked it: what the door of all copies (copies.h) is told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Range;
struct StreamState;

// How the bytes travel. An address is host memory where the client has pinned or registered it, and
// device memory everywhere else; mapped memory counts as device memory wherever it is.
enum class CopyKind : uint32_t {
  kUpload,      // host memory of the client -> device
  kDownload,    // device -> host memory of the client
  kDevice,      // within one GPU, arrays included
  kPeer,        // from one GPU to another
  kHost,        // host memory to host memory
  kInline,      // the record's own bytes -> device
  kStagedUp,    // a staging chunk -> device
  kStagedDown,  // device -> a staging chunk
  kCount
};

// One end of a copy: an address as the GPU sees it, host memory of this process, or an array.
struct CopyEnd {
  CUdeviceptr address = 0;
  // Where the address lies (the first of several ranges in a row): it stays the client's until the
  // copy is over. nullptr: the end is no address.
  const Range* range = nullptr;
  std::byte* host = nullptr;  // a staging chunk
  CUarray array = nullptr;
  uint32_t gpu = 0;  // of the array
};

// What becomes of the copy's end. A chunk is handed on by the GPU's own write behind the copy; when
// the copy cannot be issued the session does it (Session::settle).
struct CopyCompletion {
  static constexpr uint32_t kNoChunk = 0xffffffffu;
  uint32_t chunk = kNoChunk;
  uint64_t chunk_state = 0;  // what the chunk's state is then
  // The client's call has returned: what comes later on any stream of the client waits for the
  // copy.
  bool call_returned = false;
};

struct CopyRequest {
  CopyKind kind = CopyKind::kDevice;
  CUstream stream = nullptr;  // from Session::stream_op, asked right before
  StreamState* state = nullptr;
  CopyEnd dst{};
  CopyEnd src{};
  const std::byte* data = nullptr;  // kInline: in the record, gone when it is consumed
  uint64_t bytes = 0;               // all that move; 0: nothing is copied, the completion stands
  // A 2D or 3D region, or one with an array; nullptr: the bytes stand in a row.
  const CUDA_MEMCPY3D* region = nullptr;
  uint32_t gpu = 0;  // region: of the record's context, where arrays need no context of their own
  CopyCompletion completion{};
  uint64_t holds = 0;  // a key (ParkKeys) beside the stream's that is held while the copy waits
  // The client's call returns the driver's answer to this copy: it is asked now.
  bool awaited = false;
  // It need not come behind its stream's work: `stream` is another one, whose work all ends, and in
  // a lane nothing is before the copy. What comes later on `state`'s stream comes behind a lane's.
  bool beside = false;
  // Of a copy that waits in a lane: the stream waits for it now, and for `end`, which is the link's
  // (nullptr: the copy has ended). Without a stream: it failed, and nothing of it is in flight.
  std::function<void(StreamState*, CUevent end)> behind{};
};

}  // namespace tube::proxy
