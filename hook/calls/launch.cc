// Launches: posted, no allocation, no system call, no answer.
//
// Parameters are packed straight into the record by the kernel's layout. Nothing comes back, so
// grid, block and shared memory are compared with what the device and the kernel take; a launch
// that looks wrong, or that must fit as a whole (cooperative), waits for the driver's own answer,
// so that launch errors stay synchronous and are the driver's.
#include "hook/code/launch.h"
#include "hook/objects/capture.h"

#include <algorithm>
#include <cstring>

#include "hook/objects/context.h"
#include "hook/objects/device_output.h"
#include "hook/objects/kernels.h"
#include "hook/objects/support.h"
#include "hook/process/start_trace.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

constexpr unsigned kMaxLaunchAttributes = 32;

// The attributes of one launch; `recorded` are the events that they name, which the launch records.
struct Attributes {
  wire::LaunchAttribute list[kMaxLaunchAttributes];
  unsigned count = 0;
  struct Recorded {
    Event* event;
    uint64_t id;  // another thread may destroy it meanwhile, and its place be taken
  } recorded[kMaxLaunchAttributes];
  unsigned recorded_count = 0;
};

CUresult pack_event(CUevent handle, Attributes* attributes, uint64_t* id) {
  Event* event = find_event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  attributes->recorded[attributes->recorded_count++] = {event, event->id};
  *id = event->id;
  return CUDA_SUCCESS;
}

// Only attributes known to hold no handle travel as they are.
CUresult pack_attribute(const CUlaunchAttribute& in, Attributes* attributes) {
  wire::LaunchAttribute* out = &attributes->list[attributes->count++];
  out->id = in.id;
  out->reserved0 = 0;
  std::memcpy(out->value, &in.value, sizeof out->value);
  uint64_t event = 0;
  switch (static_cast<uint32_t>(in.id)) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      if (const CUresult r = pack_event(in.value.programmaticEvent.event, attributes, &event);
          r != CUDA_SUCCESS)
        return r;
      std::memcpy(out->value + offsetof(CUlaunchAttributeValue, programmaticEvent.event), &event,
                  sizeof event);
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      if (const CUresult r = pack_event(in.value.launchCompletionEvent.event, attributes, &event);
          r != CUDA_SUCCESS)
        return r;
      std::memcpy(out->value + offsetof(CUlaunchAttributeValue, launchCompletionEvent.event),
                  &event, sizeof event);
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return unsupported("cuLaunchKernelEx with a device-updatable node",
                         "its handle would have to come back");
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING: return CUDA_SUCCESS;
    default:
      if (static_cast<uint32_t>(in.id) >= CU_LAUNCH_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
      return unsupported("cuLaunchKernelEx with an unknown attribute", "it may hold a handle");
  }
}

Context* launch_context(const Kernel* kernel) {
  return kernel->module->context != nullptr ? kernel->module->context : current_context();
}

int32_t known_attribute(const KernelOn& on, int attribute) {
  return on.attributes[attribute].load(std::memory_order_relaxed);
}

// Compiled for clusters of this size, or of none.
bool may_have_clusters(Kernel* kernel, const uint64_t (&size)[3]) {
  Context* context = launch_context(kernel);
  KernelOn* on = nullptr;
  if (context == nullptr || kernel_on(kernel, context, &on) != CUDA_SUCCESS) return false;
  for (int i = 0; i < 3; ++i) {
    const int32_t required = known_attribute(*on, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i);
    if (required != 0 && static_cast<uint64_t>(required) != size[i]) return false;
  }
  return true;
}

// Attributes whose values the driver surely takes; every other one waits for its answer, so that a
// refusal shows at the call.
bool surely_taken(Kernel* kernel, const wire::LaunchAttribute& a, const LaunchShape& shape) {
  CUlaunchAttributeValue value;
  std::memcpy(&value, a.value, sizeof value);
  switch (a.id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY: return true;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: return value.cooperative == 0;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return value.memSyncDomain <= CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return value.clusterSchedulingPolicyPreference <= CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
      constexpr uint64_t kPortable = 8;
      const uint64_t size[3] = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
      for (int i = 0; i < 3; ++i) {
        if (size[i] == 0 || size[i] > kPortable || shape.grid[i] % size[i] != 0) return false;
      }
      return size[0] * size[1] * size[2] <= kPortable && may_have_clusters(kernel, size);
    }
    default: return false;
  }
}

// Only the driver knows where between the kernel's start and end an attribute's event is recorded:
// its state is asked of the driver.
void note_recorded(const Attributes& attributes, Stream* stream) {
  if (attributes.recorded_count == 0) return;
  Locked locked(connection().producer);
  for (unsigned i = 0; i < attributes.recorded_count; ++i) {
    const auto& [event, id] = attributes.recorded[i];
    if (event->id != id) continue;
    event->of_launch = true;
    capture_saw_record(stream, event);
  }
}

CUresult launch(const void* f, const LaunchShape& shape, CUstream hStream, void** params,
                void** extra, bool cooperative, const Attributes* attributes) {
  Kernel* kernel = find_kernel(f);
  if (kernel == nullptr)
    return current_context() == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  // A module's function belongs to its context; a library's kernel goes along with the stream.
  if (kernel->module->kind == wire::LoadedAs::kModule &&
      base_context(kernel->module->context) != base_context(stream->context))
    return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult r = admit_operation(stream); r != CUDA_SUCCESS) return r;
  uint32_t bytes = 0;
  // The driver says if it may.
  const bool elsewhere = kernel->module->context != nullptr &&
                         base_context(kernel->module->context) != base_context(stream->context);
  bool sure = surely_launchable(kernel, shape) && !cooperative && !elsewhere;
  const unsigned attribute_count = attributes == nullptr ? 0 : attributes->count;
  for (unsigned i = 0; i < attribute_count; ++i)
    sure = sure && surely_taken(kernel, attributes->list[i], shape);
  if (const CUresult r = parameter_bytes(kernel, params, extra, &bytes); r != CUDA_SUCCESS)
    return r;
  sure = sure && bytes == kernel->parameter_bytes;  // `extra` may hold more than it takes
  const uint32_t attribute_bytes =
      attribute_count * static_cast<uint32_t>(sizeof(wire::LaunchAttribute));

  Request<wire::tubeLaunch> r(stream, blob_room(attribute_bytes) + blob_room(bytes));
  // Under the producer lock no other thread can ask the proxy for text: asked before the launch, it
  // would take the mark and find nothing.
  if (kernel->writes != 0) expect_output(kernel->writes, capturing(stream), stream->context);
  r->stream = stream->id;
  r->kernel = kernel->id;
  std::memcpy(r->grid, shape.grid, sizeof shape.grid);
  std::memcpy(r->block, shape.block, sizeof shape.block);
  r->shared_bytes = shape.shared_bytes;
  r->cooperative = cooperative ? 1 : 0;
  if (attribute_bytes != 0) r.put(&wire::tubeLaunch::attributes, attributes->list, attribute_bytes);
  if (bytes != 0) {
    auto* room = static_cast<std::byte*>(r.room(&wire::tubeLaunch::parameters, bytes));
    pack_parameters(kernel, params, extra, bytes, room);
  }
  const CUresult result = sure ? r.post() : r.call();
  if (result != CUDA_SUCCESS) operation_refused(stream);
  if (result == CUDA_SUCCESS && attributes != nullptr) note_recorded(*attributes, stream);
  mark_start(StartMark::kLaunch);
  if (result != CUDA_SUCCESS || !process().launch_blocking || capturing(stream)) return result;
  return sync_stream(stream);
}

// A launch's `extra`: the parameters as the caller packed them.
struct PackedByCaller {
  const void* buffer = nullptr;
  size_t size_bytes = 0;
};

bool read_extra(void** extra, PackedByCaller* out) {
  for (void** e = extra; *e != CU_LAUNCH_PARAM_END; e += 2) {
    if (e[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) out->buffer = e[1];
    else if (e[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && e[1] != nullptr)
      out->size_bytes = *static_cast<const size_t*>(e[1]);
    else return false;
  }
  return true;
}

}  // namespace

bool surely_launchable(Kernel* kernel, const LaunchShape& shape) {
  Context* context = launch_context(kernel);
  if (context == nullptr) return false;
  const int32_t* device = context->info().attributes;
  bool fits = true;
  for (int i = 0; i < 3; ++i) {  // without a branch: 0 - 1 is beyond every limit
    fits &=
        shape.grid[i] - 1 < static_cast<uint32_t>(device[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i]);
    fits &=
        shape.block[i] - 1 < static_cast<uint32_t>(device[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i]);
  }
  if (!fits) return false;
  const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  KernelOn* on = nullptr;
  if (kernel_on(kernel, context, &on) != CUDA_SUCCESS) return false;
  const int32_t kernel_threads = known_attribute(*on, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  const int32_t dynamic = known_attribute(*on, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  for (int i = 0; i < 3; ++i) {  // whole clusters, of a kernel compiled for them
    const int32_t required = known_attribute(*on, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i);
    if (required > 1 && shape.grid[i] % static_cast<uint32_t>(required) != 0) return false;
  }
  return kernel_threads > 0 && threads <= static_cast<uint32_t>(kernel_threads) &&
         (shape.shared_bytes == 0 ||
          (dynamic >= 0 && shape.shared_bytes <= static_cast<uint32_t>(dynamic)));
}

CUresult parameter_bytes(const Kernel* kernel, void** params, void** extra, uint32_t* bytes) {
  if (params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) {
    PackedByCaller given;
    *bytes = 0;
    if (!read_extra(extra, &given)) return CUDA_ERROR_INVALID_VALUE;
    if (given.size_bytes == 0)
      return kernel->parameter_bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (given.buffer == nullptr || given.size_bytes > kMaxParameterBytes)
      return CUDA_ERROR_INVALID_VALUE;
    // NCCL hands over the used part of its kernels' 4 KiB and nothing more; the driver takes that,
    // the proxy wants all of them.
    *bytes = std::max(static_cast<uint32_t>(given.size_bytes), kernel->parameter_bytes);
    return *bytes > kMaxParameterBytes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
  if (!kernel->layout.empty() && params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = kernel->parameter_bytes;
  return *bytes > kMaxParameterBytes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

namespace {

// Most are pointers and integers: two instructions instead of a call.
inline void copy_parameter(std::byte* out, const void* parameter, uint32_t bytes) {
  switch (bytes) {
    case 8: std::memcpy(out, parameter, 8); return;
    case 4: std::memcpy(out, parameter, 4); return;
    default: std::memcpy(out, parameter, bytes);
  }
}

}  // namespace

void pack_parameters(const Kernel* kernel, void** params, void** extra, uint32_t bytes,
                     std::byte* out) {
  if (extra != nullptr) {
    PackedByCaller given;
    if (!read_extra(extra, &given) || given.size_bytes > bytes)
      return;  // parameter_bytes() has looked already
    std::memcpy(out, given.buffer, given.size_bytes);
    std::memset(out + given.size_bytes, 0, bytes - given.size_bytes);
    return;
  }
  uint32_t filled = 0;
  for (const wire::KernelParameter& p : kernel->layout) {
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): parameter_bytes() has looked already
    const void* parameter = *params++;
    if (p.offset > filled) [[unlikely]]
      std::memset(out + filled, 0, p.offset - filled);
    copy_parameter(out + p.offset, parameter, p.size_bytes);
    filled = p.offset + p.size_bytes;
  }
  if (filled < bytes) std::memset(out + filled, 0, bytes - filled);
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  const LaunchShape shape{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  return launch(f, shape, hStream, kernelParams, extra, false, nullptr);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  const LaunchShape shape{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  return launch(f, shape, hStream, kernelParams, nullptr, true, nullptr);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  if (config->numAttrs > kMaxLaunchAttributes) return CUDA_ERROR_INVALID_VALUE;
  Attributes attributes;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (const CUresult r = pack_attribute(config->attrs[i], &attributes); r != CUDA_SUCCESS)
      return r;
  }
  const LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                          {config->blockDimX, config->blockDimY, config->blockDimZ},
                          config->sharedMemBytes};
  return launch(f, shape, config->hStream, kernelParams, extra, false, &attributes);
}

}  // namespace tube::hook
