// What a stream can be asked to do, as plain values: the common form of stream calls, captured
// nodes and graph nodes.
//
// A stream call builds one Work and hands it to issue(), which either appends it to the stream (an
// Op of the engine) or, while the stream is capturing, adds it to the captured graph. A graph
// launch turns each node's Work into an Op.
#pragma once

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "sim/machine/objects.h"
#include "sim/machine/state.h"

namespace tube::sim {

struct KernelWork {
  Function* function = nullptr;  // of the node's context
  CUkernel kernel = nullptr;     // where it was given as one
  std::array<uint32_t, 3> grid{1, 1, 1};
  std::array<uint32_t, 3> block{1, 1, 1};
  std::array<uint32_t, 3> cluster{1, 1, 1};
  uint32_t shared_bytes = 0;
  bool cooperative = false;
  std::vector<std::byte> params;
  std::vector<void*> param_pointers;  // into params, for cuGraphKernelNodeGetParams
  std::vector<CUlaunchAttribute> attributes;
};

// Every copy is a 3D copy; `staging` holds the bytes of a pageable source taken at the call.
struct CopyWork {
  CUDA_MEMCPY3D copy{};
  std::shared_ptr<std::vector<std::byte>> staging;
};

struct MemsetWork {
  CUDA_MEMSET_NODE_PARAMS params{};
};

struct HostWork {
  CUhostFn function = nullptr;
  void* data = nullptr;
  CUstreamCallback callback = nullptr;  // cuStreamAddCallback instead
  CUstream stream = nullptr;            // as the program named it
};

struct EventRecordWork {
  Event* event = nullptr;
};
struct EventWaitWork {
  Event* event = nullptr;
};
struct MemOpWork {
  std::vector<CUstreamBatchMemOpParams> ops;
  unsigned flags = 0;
};
struct EmptyWork {};
struct ChildWork {
  Graph* graph = nullptr;
};
// A node that chooses among graphs of its own (conditional.h).
struct ConditionalWork {
  uint64_t handle = 0;
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
  std::vector<Graph*> bodies;
  std::shared_ptr<std::vector<CUgraph>> listed;  // what the program got at the node's creation
};
// Memory nodes: the address exists from node creation on, the pool accounts for it.
struct GraphAllocation;
struct AllocWork {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  std::shared_ptr<GraphAllocation>
      memory;  // keeps the address alive as long as any graph has the node
};
struct FreeWork {
  CUdeviceptr address = 0;
  bool return_to_pool = false;  // cuMemFreeAsync outside a graph
};

using Work =
    std::variant<EmptyWork, KernelWork, CopyWork, MemsetWork, HostWork, EventRecordWork,
                 EventWaitWork, MemOpWork, ChildWork, AllocWork, FreeWork, ConditionalWork>;

// Stream 0, 1, 2 or a handle, in the given current context. CUDA_ERROR_INVALID_HANDLE (400), a
// context's error, or 906 for a legacy stream that would depend on a capturing stream, whose
// capture is broken by that; look_at_stream() finds it all the same.
CUresult resolve_stream(Lock& lock, Context* current, CUstream handle, Stream** stream);
CUresult look_at_stream(Lock& lock, Context* current, CUstream handle, Stream** stream);

// A stream of the program's own. With the lock held.
Stream* add_stream(State& s, Context* context, unsigned flags, int priority);

// cuCtxRecordEvent and cuCtxWaitEvent (event.cc). With the lock held.
CUresult record_context_event(Lock& lock, Context* context, CUevent handle);
CUresult wait_context_event(Lock& lock, Context* context, CUevent handle);

// Appends the work or captures it. `fence`, when given, receives the fence (null when captured).
CUresult issue(Lock& lock, Stream* stream, Work work, FencePtr* fence = nullptr);

// Appends to the stream with the implicit ordering of the legacy stream. No capture.
FencePtr append(Lock& lock, Stream* stream, Op op);

// The operations of a piece of work, to be run in order on one lane (not for events, graphs of
// graphs).
std::vector<Op> make_ops(Context* context, const Work& work);

CUresult run_kernel(Context* context, const KernelWork& work);
CUresult run_copy(Context* context, const CopyWork& work);
// What a copy engine has to do for it; nothing when it uses none, or when there are none
// (copy_engines.h). With the lock held.
std::optional<Transfer> engine_transfer(const Context& context, const CopyWork& work);
CUresult run_memset(Context* context, const MemsetWork& work);
// The stream reached a cuMemFreeAsync: the address goes back. Takes the lock.
CUresult finish_pool_free(CUdeviceptr address);

// Checks of launch and copy arguments, as the driver does them at the call. With the lock held.
CUresult check_kernel(Lock& lock, Context* context, const KernelWork& work);
// Takes the arguments as the kernel of the work lays them out.
CUresult pack_params(KernelWork& work, void** params, void** extra);
// How many bytes of arguments the caller packed.
size_t packed_bytes(void** extra);
CUresult check_copy(Context* context, CUDA_MEMCPY3D& copy);
CUresult check_memset(Context* context, const CUDA_MEMSET_NODE_PARAMS& params);
CUresult check_mem_ops(Context* context, const CUstreamBatchMemOpParams* ops, unsigned count);

// The function of a CUfunction or CUkernel handle, loaded in the context; null when the handle is
// neither.
Function* resolve_function(Lock& lock, Context* context, CUfunction handle);

}  // namespace tube::sim
