// The driver's objects, one struct each. Handles are their addresses; the State keeps the set of
// live ones.
//
// Everything here is guarded by State::mutex unless it says otherwise. Contexts are never deleted
// (a few hundred bytes each), because other threads may hold one on their stack after it was
// destroyed and must then get error 709.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/cuda_api.h"
#include "sim/machine/engine.h"
#include "sim/machine/linked_image.h"
#include "sim/machine/topology.h"
#include "sim/ptx/ptx.h"

namespace tube::sim {

struct Graph;
struct GreenContext;
struct Node;
struct Stream;
struct Pool;
struct SharedEvent;
struct Library;
struct Module;

inline constexpr uint64_t kGranularity = 2ull << 20;  // cuMemGetAllocationGranularity
inline constexpr uint64_t kAllocAlign = 512;          // what a real driver rounds cuMemAlloc to
inline constexpr int kMaxDevices = 64;                // access masks are 64 bits
inline constexpr int kDriverVersion = 13000;
inline constexpr unsigned kWideApi =
    3020;  // contexts of an earlier API have 32-bit sizes and addresses (old_calls.h)
inline constexpr uint32_t kMaxParamBytes = 32764;

struct Device {
  int ordinal = 0;   // as the program sees it
  int physical = 0;  // index in the topology
  DeviceSpec spec;
  CUuuid uuid{};
  Context* primary = nullptr;
  CUresult broken =
      CUDA_SUCCESS;  // a fault ended the primary context: this process cannot have it again
  Pool* default_pool = nullptr;
  Pool* current_pool = nullptr;
  std::atomic<uint64_t> used_bytes{0};
};

// What has to be on the GPU for a kernel to run. To print counts for more than any local memory.
struct KernelNeeds {
  bool prints = false;
  uint32_t local_bytes = 0;  // per thread
  // NOLINTNEXTLINE(modernize-use-nullptr): a zero of the compiler's own
  auto operator<=>(const KernelNeeds&) const = default;
};

// Places for streams, which the driver makes anew with an idle context only: so many at first, and
// so many more each time (H200).
inline constexpr size_t kFirstStreams = 36;
inline constexpr size_t kMoreStreams = 86;

struct Context {
  uint64_t id = 0;
  Device* device = nullptr;
  bool primary = false;
  GreenContext* green = nullptr;       // green.cc
  std::vector<Context*> greens;        // primary: the green ones beside it
  std::atomic<bool> destroyed{false};  // both are read at every call, without the lock
  std::atomic<bool> active{false};     // primary: retained by somebody
  int retained = 0;
  unsigned flags = 0;
  unsigned api_version = kWideApi;
  int attach_count = 1;
  std::atomic<CUresult> error{CUDA_SUCCESS};  // sticky
  std::shared_ptr<std::atomic<bool>> cancel =
      std::make_shared<std::atomic<bool>>(false);  // stops running kernels
  std::atomic<uint64_t> peers{0};                  // bit per device: cuCtxEnablePeerAccess
  LanePtr legacy;
  Stream* legacy_stream = nullptr;         // what stream 0 and 1 mean
  std::map<uint64_t, Stream*> per_thread;  // by Thread::id
  std::vector<LanePtr> lanes;              // of streams, living or draining
  std::vector<Stream*> streams;
  std::vector<Module*> modules;
  std::array<std::atomic<size_t>, 10> limits{};
  size_t stream_room = kFirstStreams;
  FencePtr barrier;        // hold.h; this and the next three of a green context are its primary's
  bool unsettled = false;  // the next launch holds
  KernelNeeds loaded;      // the most that a module needed
  KernelNeeds launched;    // the most that a launched kernel needed, each by itself
  int quiescing = 0;       // calls in quiesce()
  bool ending = false;     // primary: a reset or the last release waits for its work
  std::atomic<CUfunc_cache> cache_config = CU_FUNC_CACHE_PREFER_NONE;
  std::mutex print_mutex;    // guards print_buffer and printed; leaf
  std::string print_buffer;  // device printf, shown at the next synchronising call
  bool printed = false;      // since it was made or reset
  std::mutex heap_mutex;     // guards the two below; leaf
  uint64_t heap_used = 0;
  bool heap_in_use = false;  // since it was made or reset: it keeps its size
};

// Stream capture: one per cuStreamBeginCapture, shared by the streams that joined it.
struct Capture {
  uint64_t id = 0;
  Graph* graph = nullptr;
  bool own_graph = true;  // false: cuStreamBeginCaptureToGraph
  Stream* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;
  CUresult invalid = CUDA_SUCCESS;
  std::vector<Stream*> streams;
};
using CapturePtr = std::shared_ptr<Capture>;

// To or from a node.
struct Edge {
  Node* node = nullptr;
  CUgraphEdgeData data{};
};
inline bool is_plain(const CUgraphEdgeData& data) {
  return data.from_port == 0 && data.to_port == 0 && data.type == 0;
}

struct Stream {
  uint64_t id = 0;
  Context* context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  LanePtr lane;
  bool per_thread = false;
  CapturePtr capture;
  std::vector<Edge> capture_tail;              // what the next captured node depends on
  std::vector<CUgraphNode> capture_nodes;      // for cuStreamGetCaptureInfo
  std::vector<CUgraphEdgeData> capture_edges;  // the same
  std::map<int, CUlaunchAttributeValue> attributes;
  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  FencePtr fence;  // null: never recorded
  std::shared_ptr<SharedEvent>
      shared;          // CU_EVENT_INTERPROCESS: the state that all processes see (ipc.h)
  CapturePtr capture;  // recorded into a capture
  std::vector<Edge> capture_deps;
};

struct Function {
  Module* module = nullptr;
  const ptx::Kernel* kernel = nullptr;
  Library* library = nullptr;  // set for a CUkernel
  std::set<Context*> used_in;  // a CUkernel: where it has been asked about
  bool looked_up = false;      // a module's own: by cuModuleGetFunction
  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as it was set, by device.
  std::map<const Device*, int> max_dynamic_shared;
  int carveout = -1;
  int cluster_width = 0, cluster_height = 0, cluster_depth = 0;
  int cluster_must_be_set = 0;
  int non_portable_cluster = 0;
  int cluster_policy = 0;
  // the pre-CUDA-4 launch interface
  std::array<uint32_t, 3> legacy_block{1, 1, 1};
  uint32_t legacy_shared = 0;
  std::vector<std::byte> legacy_params;
};

// A compiled image. Variables in `placed` have their addresses already.
struct Code {
  std::shared_ptr<const ptx::Module> module;
  std::vector<PlacedVariable> placed;

  const PlacedVariable* placed_as(const std::string& name) const {
    for (const PlacedVariable& p : placed)
      if (p.name == name) return &p;
    return nullptr;
  }
};

// A compiled image loaded into one context: its variables have addresses.
struct Module {
  Context* context = nullptr;
  Code code;
  std::vector<std::unique_ptr<Function>> functions;
  std::vector<uint64_t> variables;  // device address of each ptx variable
  Library* library = nullptr;
};

// cuLibrary: an image that gets a module in each context on first use.
struct Library {
  Code code;
  CUresult unusable =
      CUDA_SUCCESS;  // what its first use answers: an image that loading did not look into
  std::vector<std::unique_ptr<Function>>
      kernels;  // CUkernel handles; .kernel and .library set, .module null
  std::unordered_map<Context*, Module*> modules;
  std::vector<std::byte> image;
};

struct Pool {
  Device* device = nullptr;
  CUmemPoolProps props{};
  bool is_default = false;
  uint64_t release_threshold = 0;
  int reuse_event = 1, reuse_opportunistic = 1, reuse_internal = 1;
  uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  uint64_t readable = 0, writable = 0;
};

struct Mipmap;
struct Array {
  Context* context = nullptr;
  Mipmap* mipmap = nullptr;  // set for a level, which ends with it
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  uint64_t element_bytes = 0;
  uint64_t row_bytes = 0;
  uint64_t rows = 1, slices = 1;
  uint64_t base = 0;  // in the address map
};
// Bytes of the whole array.
inline uint64_t array_bytes(const Array& a) { return a.row_bytes * a.rows * a.slices; }

// Per thread; allocated on first use, freed by a pthread key (never for the main thread, whose
// atexit handlers call us).
struct Thread {
  uint64_t id = 0;
  std::vector<Context*> stack;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool per_thread_default =
      false;  // inside a _ptsz/_ptds entry: stream 0 means CU_STREAM_PER_THREAD
  bool in_old_call =
      false;  // inside a call of before kWideApi, which does its work with a later one
  bool in_callback = false;  // a host function may not call CUDA
};

}  // namespace tube::sim
