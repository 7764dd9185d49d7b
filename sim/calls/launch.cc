// Launches: argument packing, the driver's synchronous limit checks, and the run on a worker
// through the interpreter.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/calls/function.h"
#include "sim/calls/occupancy.h"
#include "sim/calls/texture.h"
#include "sim/graphs/capture.h"
#include "sim/graphs/conditional.h"
#include "sim/machine/error_log.h"
#include "sim/machine/heap.h"
#include "sim/machine/hold.h"
#include "sim/machine/state.h"
#include "sim/machine/work.h"

namespace tube::sim {
namespace {

std::atomic<uint64_t> next_grid{1};

// What one grid can touch: the address map as seen by its context. Runs on a worker, without
// State::mutex.
class GridMemory final : public ptx::Memory {
 public:
  explicit GridMemory(Context* context)
      : context_(context), base_(base_context(context)), who_(accessor_of(*context, false)) {}

  std::byte* translate(uint64_t address, uint64_t size, bool write, uint64_t* begin,
                       uint64_t* end) override {
    if (!state().map.accessible(address, size, write, who_, begin, end)) return nullptr;
    return reinterpret_cast<std::byte*>(address);
  }

  uint64_t heap_alloc(uint64_t size) override {
    {
      std::lock_guard guard(base_->heap_mutex);
      base_->heap_in_use = true;
      if (size > base_->limits[CU_LIMIT_MALLOC_HEAP_SIZE] - base_->heap_used) return 0;
      base_->heap_used += size;
    }
    State& s = state();
    Lock lock(s.mutex);
    Range range;
    range.requested = size;
    range.kind = RangeKind::kSymbol;  // not to be freed by cuMemFree
    range.device = context_->device->ordinal;
    range.context = base_;
    uint64_t base = 0;
    return allocate_range(s, range, kAllocAlign, &base) == CUDA_SUCCESS ? base : 0;
  }

  void heap_free(uint64_t address) override {
    State& s = state();
    Lock lock(s.mutex);
    auto gone = s.map.remove(address);
    if (!gone) return;
    {
      std::lock_guard guard(base_->heap_mutex);
      base_->heap_used -= std::min(base_->heap_used, gone->requested);
    }
    release_range(s, *gone);
  }

  void set_conditional(uint64_t handle, uint32_t value) override {
    sim::set_conditional(handle, value);
  }
  std::shared_ptr<const ptx::Texture> texture(uint64_t handle) override {
    return find_texture(base_, handle);
  }

  void print(std::string_view text) override {
    bool full = false;
    {
      Context* owner = base_;
      std::lock_guard guard(owner->print_mutex);
      owner->print_buffer.append(text);
      owner->printed = true;
      full = owner->print_buffer.size() > (1u << 20);
    }
    if (full) flush_prints(context_);
  }

 private:
  Context* context_;
  Context* base_;  // whose heap it is
  Accessor who_;
};

CUresult fault_code(ptx::Fault::Kind kind) {
  switch (kind) {
    case ptx::Fault::Kind::kNone:
    case ptx::Fault::Kind::kCancelled: return CUDA_SUCCESS;
    case ptx::Fault::Kind::kIllegalAddress: return CUDA_ERROR_ILLEGAL_ADDRESS;
    case ptx::Fault::Kind::kMisalignedAddress: return CUDA_ERROR_MISALIGNED_ADDRESS;
    case ptx::Fault::Kind::kIllegalInstruction: return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case ptx::Fault::Kind::kInvalidAddressSpace: return CUDA_ERROR_INVALID_ADDRESS_SPACE;
    case ptx::Fault::Kind::kInvalidPc: return CUDA_ERROR_INVALID_PC;
    case ptx::Fault::Kind::kAssert: return CUDA_ERROR_ASSERT;
    case ptx::Fault::Kind::kTrap:
    case ptx::Fault::Kind::kBarrierDeadlock: return CUDA_ERROR_LAUNCH_FAILED;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

// extra = {BUFFER_POINTER, p, BUFFER_SIZE, &n, END}, in any order.
CUresult unpack_extra(void** extra, const void** buffer, size_t* size) {
  for (int i = 0; i < 16; i += 2) {
    auto key = reinterpret_cast<uintptr_t>(extra[i]);
    if (key == 0) return *buffer != nullptr || *size == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (key == 1) *buffer = extra[i + 1];
    else if (key == 2) *size = *static_cast<size_t*>(extra[i + 1]);
    else return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult check_geometry(const KernelWork& w, const Device& device) {
  static constexpr uint64_t kGrid[3] = {2147483647, 65535, 65535};
  static constexpr uint32_t kBlock[3] = {1024, 1024, 64};
  for (int i = 0; i < 3; ++i) {
    size_t n = static_cast<size_t>(i);
    if (w.grid[n] == 0 || w.grid[n] > kGrid[i] || w.block[n] == 0 || w.block[n] > kBlock[i])
      return CUDA_ERROR_INVALID_VALUE;
  }
  const Function& f = *w.function;
  uint64_t threads = uint64_t{w.block[0]} * w.block[1] * w.block[2];
  if (threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  if (f.kernel->max_threads != 0 && threads > f.kernel->max_threads)
    return CUDA_ERROR_INVALID_VALUE;
  if (threads > max_threads_of(*f.kernel)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const auto& required = f.kernel->required_block;
  if (required[0] != 0 && (w.block[0] != required[0] || w.block[1] != std::max(required[1], 1u) ||
                           w.block[2] != std::max(required[2], 1u)))
    return CUDA_ERROR_INVALID_VALUE;
  if (w.shared_bytes > max_dynamic_shared(f, device)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult check_cluster(const KernelWork& w, const Device& device) {
  uint64_t size = uint64_t{w.cluster[0]} * w.cluster[1] * w.cluster[2];
  if (size == 1) return CUDA_SUCCESS;
  if (device.spec.sm < 90 || size == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t limit = w.function->non_portable_cluster != 0 ? 16 : 8;
  if (size > limit) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  for (size_t i = 0; i < 3; ++i)
    if (w.grid[i] % w.cluster[i] != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  return CUDA_SUCCESS;
}

// What a kernel is compiled for holds when the launch says nothing.
void require_clusters(KernelWork& w) {
  const Function& f = *w.function;
  if (f.cluster_width <= 0 || f.cluster_height <= 0 || f.cluster_depth <= 0) return;
  if (w.cluster != decltype(w.cluster){1, 1, 1}) return;
  w.cluster = {static_cast<unsigned>(f.cluster_width), static_cast<unsigned>(f.cluster_height),
               static_cast<unsigned>(f.cluster_depth)};
}

CUresult check_window(const CUaccessPolicyWindow& w) {
  const bool hit =
      w.hitProp >= CU_ACCESS_PROPERTY_NORMAL && w.hitProp <= CU_ACCESS_PROPERTY_PERSISTING;
  const bool miss =
      w.missProp == CU_ACCESS_PROPERTY_NORMAL || w.missProp == CU_ACCESS_PROPERTY_STREAMING;
  return hit && miss && w.hitRatio >= 0.0f && w.hitRatio <= 1.0f ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_event(CUevent handle) {
  Lock lock(state().mutex);
  auto* event = live<Event>(state(), handle, Kind::kEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return (event->flags & CU_EVENT_DISABLE_TIMING) != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

// What the driver refuses of an attribute's value, whatever the kernel.
CUresult check_attribute(const CUlaunchAttribute& a) {
  constexpr unsigned kDomains = 4;
  switch (static_cast<int>(a.id)) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      return CUDA_ERROR_INVALID_VALUE;  // a stream's, not a launch's
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: return check_window(a.value.accessPolicyWindow);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return a.value.clusterSchedulingPolicyPreference > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING
                 ? CUDA_ERROR_INVALID_VALUE
                 : CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return check_event(a.value.programmaticEvent.event);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return check_event(a.value.launchCompletionEvent.event);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return a.value.memSyncDomain > CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE ? CUDA_ERROR_INVALID_VALUE
                                                                      : CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      return a.value.memSyncDomainMap.default_ >= kDomains ||
                     a.value.memSyncDomainMap.remote >= kDomains
                 ? CUDA_ERROR_INVALID_VALUE
                 : CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return a.value.sharedMemCarveout > 100 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    default: return CUDA_SUCCESS;
  }
}

CUresult apply_attributes(KernelWork& w, const CUlaunchAttribute* attrs, unsigned count) {
  if (count > 0 && attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const CUlaunchAttribute& a = attrs[i];
    if (CUresult r = check_attribute(a)) return r;
    switch (static_cast<int>(a.id)) {
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        w.cluster = {a.value.clusterDim.x, a.value.clusterDim.y, a.value.clusterDim.z};
        if (w.cluster == decltype(w.cluster){0, 0, 0}) w.cluster = {1, 1, 1};  // none
        break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: w.cooperative = a.value.cooperative != 0; break;
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        if (a.value.deviceUpdatableKernelNode.deviceUpdatable != 0) return CUDA_ERROR_NOT_SUPPORTED;
        break;
      default:
        if (a.id < 0 || a.id > CU_LAUNCH_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    }
    w.attributes.push_back(a);
  }
  return CUDA_SUCCESS;
}

// Events named by launch attributes are recorded behind the kernel: later than a GPU may, never
// earlier.
void record_attribute_events(Lock& lock, Stream* stream,
                             const std::vector<CUlaunchAttribute>& attributes) {
  for (const CUlaunchAttribute& a : attributes) {
    CUevent handle = nullptr;
    CUgraphEdgeData edge{};
    if (a.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
      handle = a.value.programmaticEvent.event;
      edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
      edge.from_port = a.value.programmaticEvent.triggerAtBlockStart != 0
                           ? CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER
                           : CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    } else if (a.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
      handle = a.value.launchCompletionEvent.event;
      edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
    }
    auto* event = live<Event>(state(), handle, Kind::kEvent);
    if (event == nullptr) continue;
    if (stream->capture) capture_event(stream, event, &edge);
    else issue(lock, stream, EventRecordWork{event});
  }
}

CUresult launch(Context* context, CUfunction handle, KernelWork work, CUstream stream_handle,
                void** params, void** extra) {
  Lock lock(state().mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, stream_handle, &stream)) return r;
  wait_for_quiescing(lock, stream->context);
  work.function = resolve_function(lock, stream->context, handle);
  if (work.function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult r = pack_params(work, params, extra)) return r;
  if (extra != nullptr && packed_bytes(extra) > work.function->kernel->param_bytes)
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  require_clusters(work);
  if (CUresult r = check_kernel(lock, stream->context, work)) return refuse_in_capture(stream, r);
  if (!stream->capture) prepare_launch(lock, stream->context, *work.function->kernel);
  if (live<Function>(state(), work.function, Kind::kFunction) == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;  // unloaded meanwhile
  auto attributes = work.attributes;
  if (CUresult r = issue(lock, stream, std::move(work))) return r;
  record_attribute_events(lock, stream, attributes);
  return CUDA_SUCCESS;
}

}  // namespace

size_t packed_bytes(void** extra) {
  const void* buffer = nullptr;
  size_t size = 0;
  return unpack_extra(extra, &buffer, &size) == CUDA_SUCCESS ? size : 0;
}

CUresult pack_params(KernelWork& work, void** params, void** extra) {
  const ptx::Kernel& kernel = *work.function->kernel;
  std::vector<std::byte>* out = &work.params;
  out->assign(kernel.param_bytes, std::byte{0});
  if (params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) {
    const void* buffer = nullptr;
    size_t size = 0;
    if (CUresult r = unpack_extra(extra, &buffer, &size)) return r;
    // Fewer bytes than the kernel takes are enough for the driver; the rest is not defined.
    if ((size == 0 && kernel.param_bytes > 0) || size > kMaxParamBytes ||
        (size > 0 && buffer == nullptr))
      return CUDA_ERROR_INVALID_VALUE;
    if (kernel.param_bytes > 0)
      std::memcpy(out->data(), buffer, std::min<size_t>(size, kernel.param_bytes));
    return CUDA_SUCCESS;
  }
  if (kernel.params.empty()) return CUDA_SUCCESS;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    if (params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(out->data() + kernel.params[i].offset, params[i], kernel.params[i].size);
  }
  return CUDA_SUCCESS;
}

CUresult check_kernel(Lock&, Context* context, const KernelWork& w) {
  const Device& device = *context->device;
  if (base_context(w.function->module->context) != base_context(context))
    return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult r = check_geometry(w, device)) return r;
  if (CUresult r = check_cluster(w, device)) return r;
  if (w.cooperative) {
    uint32_t threads = w.block[0] * w.block[1] * w.block[2];
    int64_t fit =
        int64_t{blocks_per_sm(*w.function, device, threads, w.shared_bytes)} * device.spec.sm_count;
    if (static_cast<int64_t>(uint64_t{w.grid[0]} * w.grid[1] * w.grid[2]) > fit)
      return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return CUDA_SUCCESS;
}

CUresult run_kernel(Context* context, const KernelWork& w) {
  State& s = state();
  std::shared_ptr<const ptx::Module> code;
  const ptx::Kernel* kernel = nullptr;
  std::vector<uint64_t> variables;
  std::shared_ptr<std::atomic<bool>> cancel;
  {
    Lock lock(s.mutex);
    if (live<Function>(s, w.function, Kind::kFunction) == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;  // module unloaded
    code = w.function->module->code.module;
    kernel = w.function->kernel;
    variables = w.function->module->variables;
    cancel = context->cancel;
  }
  ptx::LaunchConfig config;
  config.grid = w.grid;
  config.block = w.block;
  config.cluster = w.cluster;
  config.dynamic_shared_bytes = w.shared_bytes;
  config.params = w.params.data();
  config.params_size = w.params.size();
  config.variable_addresses = variables.data();
  config.sm_count = static_cast<uint32_t>(context->device->spec.sm_count);
  config.grid_id = next_grid.fetch_add(1);
  config.cancel = cancel.get();
  GridMemory memory(context);
  MemoryScope scope;
  ptx::Fault fault = ptx::launch(*code, *kernel, config, memory);
  if (fault.kind == ptx::Fault::Kind::kNone || fault.kind == ptx::Fault::Kind::kCancelled)
    return CUDA_SUCCESS;
  flush_prints(context);  // no call on a failed context does it any more
  // An assertion's line is the driver's own; everything else is the simulator's to explain.
  if (fault.kind == ptx::Fault::Kind::kAssert) {
    std::fprintf(stderr, "%s\n", fault.message.c_str());
    return fault_code(fault.kind);
  }
  const std::string said = "kernel " + kernel->name + ": " + fault.message;
  std::fprintf(stderr, "tube sim: %s\n", said.c_str());
  char address[32];
  std::snprintf(address, sizeof address, " at 0x%lx", fault.address);
  tell_log(said + address);
  return fault_code(fault.kind);
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                unsigned int gridDimZ, unsigned int blockDimX,
                                unsigned int blockDimY, unsigned int blockDimZ,
                                unsigned int sharedMemBytes, CUstream hStream, void** kernelParams,
                                void** extra) {
  SIM_ENTER_STREAM(context, hStream);
  KernelWork work;
  work.grid = {gridDimX, gridDimY, gridDimZ};
  work.block = {blockDimX, blockDimY, blockDimZ};
  work.shared_bytes = sharedMemBytes;
  return launch(context, f, std::move(work), hStream, kernelParams, extra);
}

SIM_API CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                                  void** extra) {
  SIM_ENTER_STREAM(context, config != nullptr ? config->hStream : nullptr);
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelWork work;
  work.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
  work.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  work.shared_bytes = config->sharedMemBytes;
  if (CUresult r = apply_attributes(work, config->attrs, config->numAttrs)) return r;
  return launch(context, f, std::move(work), config->hStream, kernelParams, extra);
}

SIM_API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX,
                                           unsigned int gridDimY, unsigned int gridDimZ,
                                           unsigned int blockDimX, unsigned int blockDimY,
                                           unsigned int blockDimZ, unsigned int sharedMemBytes,
                                           CUstream hStream, void** kernelParams) {
  SIM_ENTER_STREAM(context, hStream);
  KernelWork work;
  work.grid = {gridDimX, gridDimY, gridDimZ};
  work.block = {blockDimX, blockDimY, blockDimZ};
  work.shared_bytes = sharedMemBytes;
  work.cooperative = true;
  return launch(context, f, std::move(work), hStream, kernelParams, nullptr);
}

// The pre-CUDA-4 interface keeps its state in the function.
static CUresult legacy_function(CUfunction handle, Context* context, Function** f) {
  Lock lock(state().mutex);
  *f = resolve_function(lock, context, handle);
  return *f == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

SIM_API CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  SIM_ENTER_CONTEXT(context);
  Function* f = nullptr;
  if (CUresult r = legacy_function(hfunc, context, &f)) return r;
  if (x <= 0 || y <= 0 || z <= 0 || x > 1024 || y > 1024 || z > 64 || int64_t{x} * y * z > 1024)
    return CUDA_ERROR_INVALID_VALUE;
  f->legacy_block = {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
  return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  SIM_ENTER_CONTEXT(context);
  Function* f = nullptr;
  if (CUresult r = legacy_function(hfunc, context, &f)) return r;
  f->legacy_shared = bytes;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  SIM_ENTER_CONTEXT(context);
  Function* f = nullptr;
  if (CUresult r = legacy_function(hfunc, context, &f)) return r;
  if (numbytes > kMaxParamBytes) return CUDA_ERROR_INVALID_VALUE;
  f->legacy_params.resize(numbytes);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  SIM_ENTER_CONTEXT(context);
  Function* f = nullptr;
  if (CUresult r = legacy_function(hfunc, context, &f)) return r;
  if (offset < 0 || ptr == nullptr || numbytes > kMaxParamBytes ||
      static_cast<unsigned>(offset) > kMaxParamBytes - numbytes)
    return CUDA_ERROR_INVALID_VALUE;
  size_t end = static_cast<size_t>(offset) + numbytes;
  if (f->legacy_params.size() < end) f->legacy_params.resize(end);
  if (numbytes != 0) std::memcpy(f->legacy_params.data() + offset, ptr, numbytes);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return cuParamSetv(hfunc, offset, &value, sizeof value);
}
SIM_API CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return cuParamSetv(hfunc, offset, &value, sizeof value);
}

static CUresult legacy_launch(CUfunction hfunc, int width, int height, CUstream stream,
                              Context* context) {
  Function* f = nullptr;
  if (CUresult r = legacy_function(hfunc, context, &f)) return r;
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  KernelWork work;
  work.grid = {static_cast<uint32_t>(width), static_cast<uint32_t>(height), 1};
  work.block = f->legacy_block;
  work.shared_bytes = f->legacy_shared;
  size_t size = f->legacy_params.size();
  if (size > f->kernel->param_bytes) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, f->legacy_params.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  return launch(context, hfunc, std::move(work), stream, nullptr, extra);
}

SIM_API CUresult cuLaunch(CUfunction f) {
  SIM_ENTER_CONTEXT(context);
  return legacy_launch(f, 1, 1, nullptr, context);
}
SIM_API CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  SIM_ENTER_CONTEXT(context);
  return legacy_launch(f, grid_width, grid_height, nullptr, context);
}
SIM_API CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height,
                                   CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return legacy_launch(f, grid_width, grid_height, hStream, context);
}

// The deprecated launch over several devices: an ordinary cooperative launch on each.
static CUresult check_devices(Context* context, const CUDA_LAUNCH_PARAMS* list, unsigned count) {
  Lock lock(state().mutex);
  uint64_t seen = 0;
  for (unsigned i = 0; i < count; ++i) {
    const CUDA_LAUNCH_PARAMS& p = list[i];
    if (p.hStream == nullptr || p.hStream == CU_STREAM_LEGACY || p.hStream == CU_STREAM_PER_THREAD)
      return CUDA_ERROR_INVALID_HANDLE;
    Stream* stream = nullptr;
    if (CUresult r = resolve_stream(lock, context, p.hStream, &stream)) return r;
    uint64_t bit = 1ull << stream->context->device->ordinal;
    if ((seen & bit) != 0) return CUDA_ERROR_INVALID_DEVICE;
    seen |= bit;
    if (p.gridDimX != list->gridDimX || p.gridDimY != list->gridDimY ||
        p.gridDimZ != list->gridDimZ || p.blockDimX != list->blockDimX ||
        p.blockDimY != list->blockDimY || p.blockDimZ != list->blockDimZ ||
        p.sharedMemBytes != list->sharedMemBytes)
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

SIM_API CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launchParamsList,
                                                      unsigned int numDevices, unsigned int flags) {
  SIM_ENTER_CONTEXT(context);
  if (launchParamsList == nullptr || numDevices == 0 || (flags & ~3u) != 0 ||
      numDevices > state().devices.size())
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check_devices(context, launchParamsList, numDevices)) return r;
  for (unsigned i = 0; i < numDevices; ++i) {
    const CUDA_LAUNCH_PARAMS& p = launchParamsList[i];
    if (CUresult r = cuLaunchCooperativeKernel(p.function, p.gridDimX, p.gridDimY, p.gridDimZ,
                                               p.blockDimX, p.blockDimY, p.blockDimZ,
                                               p.sharedMemBytes, p.hStream, p.kernelParams))
      return r;
  }
  return CUDA_SUCCESS;
}

SIM_API CUresult cuParamSetTexRef(CUfunction hfunc, int texunit, CUtexref hTexRef) {
  SIM_ENTER_CONTEXT(context);
  Function* f = nullptr;
  if (CUresult r = legacy_function(hfunc, context, &f)) return r;
  if (hTexRef == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return texunit != CU_PARAM_TR_DEFAULT ? CUDA_ERROR_INVALID_VALUE
                                        : CUDA_SUCCESS;  // binding happens through the module
}
