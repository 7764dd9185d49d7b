// Launches and occupancy.
//
// Parameters arrive packed as the kernel's layout says and go to the driver as `extra`: one
// pointer, one size, no per-parameter work. Grid, block and shared memory were checked by the
// client for its own sake (launch errors stay synchronous); the driver checks them again, so
// nothing rests on it here. Launch attributes are taken from a list: an unknown one could hold a
// handle. A kernel that needs more local memory than any before it makes the driver wait for the
// whole context, and the first on a GPU that prints or allocates holds what comes behind it: both
// pass the context gate (context_gate.h).
#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "base/hash.h"
#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/calls/modules.h"
#include "proxy/common/client_limits.h"
#include "proxy/gpu/capture.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"
#include "proxy/launch/plain_launch.h"
#include "proxy/session/session.h"

namespace tube::proxy {

namespace {

// CUlaunchAttribute values whose first word is an event.
CUresult resolve_event(Session& session, const wire::LaunchAttribute& untrusted,
                       CUlaunchAttribute& out) {
  uint64_t id = 0;
  std::memcpy(&id, untrusted.value, sizeof(id));
  auto event = session.resolve<CUevent>(wire::Kind::kEvent, id);
  if (event.error != CUDA_SUCCESS) return event.error;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): of the handle
  std::memcpy(&out.value, &event.handle, sizeof(event.handle));
  return CUDA_SUCCESS;
}

CUresult take_attribute(Session& session, const wire::LaunchAttribute& untrusted,
                        CUlaunchAttribute& out) {
  out = {};
  out.id = static_cast<CUlaunchAttributeID>(untrusted.id);
  static_assert(sizeof(out.value) == sizeof(untrusted.value));
  std::memcpy(&out.value, untrusted.value, sizeof(out.value));
  const policies::LaunchPriority priority = session.client().priority;
  if (out.id == CU_LAUNCH_ATTRIBUTE_PRIORITY && priority != policies::LaunchPriority::kNormal)
    out.value.priority = policies::stream_priority(priority, out.value.priority);
  switch (untrusted.id) {
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
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT: return resolve_event(session, untrusted, out);
    default:  // not our enum; may hold a handle
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

struct Attributes {
  CUlaunchAttribute list[limits::kLaunchAttributes + 1];
  unsigned int count = 0;
};

CUresult take_attributes(Session& session, std::span<const wire::LaunchAttribute> untrusted,
                         bool cooperative, Attributes& out) {
  if (untrusted.size() > limits::kLaunchAttributes) return CUDA_ERROR_INVALID_VALUE;
  for (const wire::LaunchAttribute& attribute : untrusted) {
    if (!wire::is_valid(attribute)) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = take_attribute(session, attribute, out.list[out.count]);
        error != CUDA_SUCCESS)
      return error;
    ++out.count;
  }
  if (cooperative) {
    CUlaunchAttribute& last = out.list[out.count++];
    last = {};
    last.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    last.value.cooperative = 1;
  }
  return CUDA_SUCCESS;
}

CUlaunchConfig config_of(const uint32_t (&grid)[3], const uint32_t (&block)[3],
                         uint32_t shared_bytes, CUstream stream, Attributes& attributes) {
  CUlaunchConfig config{};
  config.gridDimX = grid[0];
  config.gridDimY = grid[1];
  config.gridDimZ = grid[2];
  config.blockDimX = block[0];
  config.blockDimY = block[1];
  config.blockDimZ = block[2];
  config.sharedMemBytes = shared_bytes;
  config.hStream = stream;
  config.attrs = attributes.list;
  config.numAttrs = attributes.count;
  return config;
}

Gpu& gpu_of(Session& session) { return session.shared().gpus[session.context()->gpu]; }

// By the most local memory of a kernel, and what kernels use of the device runtime.
LaunchGate gate_for(const Gpu& gpu, uint32_t local_bytes, uint32_t runtime) {
  if (local_bytes > gpu.local_bytes.load(std::memory_order_relaxed))
    return LaunchGate::kContextWide;
  const uint32_t used = gpu.runtime_used.load(std::memory_order_relaxed);
  return (runtime & ~used) == 0 ? LaunchGate::kNone : LaunchGate::kFirstUse;
}

}  // namespace

LaunchGate launch_gate(Session& session, const Object& object) {
  const auto& kernel = static_cast<const KernelState&>(*object.state);
  const LaunchGate gate = gate_for(gpu_of(session), kernel.local_bytes, kernel.runtime.possible);
  const bool again =
      gate == LaunchGate::kFirstUse && (kernel.used_on & bit_of(session.context()->gpu)) != 0;
  return again ? LaunchGate::kNone : gate;
}

void note_launched(Session& session, const Object& object) {
  auto& kernel = static_cast<KernelState&>(*object.state);
  Gpu& gpu = gpu_of(session);
  kernel.used_on |= bit_of(session.context()->gpu);
  gpu.runtime_used.fetch_or(kernel.runtime.certain, std::memory_order_relaxed);
  for (uint32_t before = gpu.local_bytes.load();
       before < kernel.local_bytes &&
       !gpu.local_bytes.compare_exchange_weak(before, kernel.local_bytes);) {
  }
}

void graph_gains_kernel(Session& session, const Object& object) {
  if (launch_gate(session, object) == LaunchGate::kNone) return;
  const auto& kernel = static_cast<const KernelState&>(*object.state);
  Session::GraphNeeds& needs = session.graph_needs();
  needs.runtime |= kernel.runtime.possible;
  needs.local_bytes = std::max(needs.local_bytes, kernel.local_bytes);
}

// Which of the kernels an instance has is not known here: while one of them needs more local memory
// than any launched kernel, each one may.
LaunchGate update_gate(Session& session) {
  const Session::GraphNeeds& needs = session.graph_needs();
  return gate_for(gpu_of(session), needs.local_bytes, needs.runtime);
}

void note_update(Session& session) { session.graph_needs().runtime = 0; }

namespace {

CUresult launch_now(Session& session, const Decoded<wire::tubeLaunch>& call, CUfunction function,
                    CUstream stream, PackedParameters& packed) {
  const auto& grid = call->grid;
  const auto& block = call->block;
  const auto untrusted_attributes = call.array<wire::LaunchAttribute>(call->attributes);
  if (untrusted_attributes.empty() && call->cooperative == 0) {
    return session.driver().cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1],
                                           block[2], call->shared_bytes, stream, nullptr,
                                           packed.extra());
  }
  Attributes attributes;
  CUresult error =
      take_attributes(session, untrusted_attributes, call->cooperative != 0, attributes);
  if (error != CUDA_SUCCESS) return error;
  const CUlaunchConfig config = config_of(grid, block, call->shared_bytes, stream, attributes);
  return session.driver().cuLaunchKernelEx(&config, function, nullptr, packed.extra());
}

bool has_attribute(std::span<const wire::LaunchAttribute> attributes, CUlaunchAttributeID id) {
  return std::any_of(attributes.begin(), attributes.end(), [id](const wire::LaunchAttribute& each) {
    return each.id == static_cast<uint32_t>(id);
  });
}

// Whether the launch is measured, and has its turn if it is a long one. What overlaps with the work
// before it is not measured: events would part them. Launches in a capture are none.
LaunchPass look_at(Session& session, const Decoded<wire::tubeLaunch>& call, LaunchWatch& watch,
                   uint64_t blocks) {
  LongLaunches& launches = session.long_launches();
  if (!launches.on()) {
    watch.look_in(UINT32_MAX);
    watch.most_blocks = UINT64_MAX;
    return {};
  }
  const auto not_now = [&watch] {
    watch.look_in(1);
    return LaunchPass();
  };
  const auto attributes = call.array<wire::LaunchAttribute>(call->attributes);
  if (has_attribute(attributes, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION))
    return not_now();
  CUresult error = CUDA_SUCCESS;
  StreamState* stream = session.contexts().stream(call->stream, session.record().context, &error);
  if (stream == nullptr || (session.captures() && is_capturing(session.driver(), stream->stream)))
    return not_now();
  const uint64_t shape[] = {call->kernel, uint64_t{call->grid[0]} << 32 | call->grid[1],
                            uint64_t{call->grid[2]} << 32 | call->block[0],
                            uint64_t{call->block[1]} << 32 | call->block[2]};
  return launches.look({.key = hash64(shape, sizeof shape) | 1,
                        .blocks = blocks,
                        .stream = stream,
                        .record = session.record().sequence,
                        .may_wait = call->cooperative == 0 &&
                                    !has_attribute(attributes, CU_LAUNCH_ATTRIBUTE_COOPERATIVE)},
                       watch);
}

// By itself or as a part of a run (launch/coalescer.h); measured in the first case.
CUresult launch_in_run(Session& session, const Decoded<wire::tubeLaunch>& call,
                       const KernelState& kernel, const StreamOp& op, LaunchPass& pass) {
  const auto& grid = call->grid;
  const auto& block = call->block;
  const auto parameters = call.blob(call->parameters);
  if ((kernel.writes & wire::kKernelAsserts) != 0)
    op.state->last_assert = session.record().sequence;
  const PlainLaunch launch{kernel.function,
                           kernel.is_library_kernel,
                           {grid[0], grid[1], grid[2]},
                           {block[0], block[1], block[2]},
                           call->shared_bytes};
  if (!pass.measures())
    return session.runs().launch(*op.state, launch, parameters, session.record().sequence);
  const Coalescer::Around around = [&pass](CUstream stream, const auto& make) {
    return pass.around(stream, make);
  };
  return session.runs().launch(*op.state, launch, parameters, session.record().sequence, &around);
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeLaunch>& call, Reply<wire::tubeLaunch>&) {
  Object* object = session.objects().find(wire::Kind::kKernel, call->kernel);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto& kernel = static_cast<KernelState&>(*object->state);
  const auto parameters = call.blob(call->parameters);
  // The driver reads as many bytes as the layout has; `extra` of a client may be padded, never
  // shorter.
  if (parameters.size() < kernel.parameter_bytes || parameters.size() > limits::kParameterBytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (load_stays(session, *object)) return CUDA_SUCCESS;
  if (CUresult error = load_here(session, *object); error != CUDA_SUCCESS) return error;
  if (CUresult error = keep_own_limit(session, call->kernel, kernel, call->shared_bytes);
      error != CUDA_SUCCESS)
    return error;
  const auto untrusted_attributes = call.array<wire::LaunchAttribute>(call->attributes);
  // A caller that waits for the answer wants this launch's own error.
  const bool prints = (kernel.writes & wire::kKernelPrints) != 0;
  LaunchGate gate = launch_gate(session, *object);
  const auto& grid = call->grid;
  const uint64_t blocks = uint64_t{grid[0]} * grid[1] * grid[2];
  if (gate != LaunchGate::kNone && !session.captures() && session.waits_for_own())
    return CUDA_SUCCESS;
  LaunchPass pass = gate == LaunchGate::kNone && kernel.watch.due(blocks)
                        ? look_at(session, call, kernel.watch, blocks)
                        : LaunchPass();
  if (pass.held()) {
    session.come_again();
    return CUDA_SUCCESS;
  }
  const bool plain = gate == LaunchGate::kNone && untrusted_attributes.empty() &&
                     call->cooperative == 0 && !prints && !pass.is_long() &&
                     session.record().reply_slot == abi::kNoReply;
  if (gate != LaunchGate::kNone)
    session.runs().end();  // what is held for other streams may be what the others wait for
  StreamOp op = session.launch_op(call->stream, plain);
  if (op.error != CUDA_SUCCESS) return op.error;
  PackedParameters packed(parameters);
  session.launched(*op.state, kernel.name.get());
  if (op.in_run) return launch_in_run(session, call, kernel, op, pass);
  const auto launch = [&] {
    return pass.around(
        op.stream, [&] { return launch_now(session, call, kernel.function, op.stream, packed); });
  };
  const bool captured =
      gate != LaunchGate::kNone && session.captures() && is_capturing(session.driver(), op.stream);
  if (captured) {  // its instance is the first one
    graph_gains_kernel(session, *object);
    gate = LaunchGate::kNone;
  }
  const auto write = [&] {
    return session.output().launch(op, kernel.writes, session.record().sequence, std::cref(launch),
                                   gate);
  };
  if (gate == LaunchGate::kNone) return kernel.writes == 0 ? launch() : write();
  const CUresult error = kernel.writes == 0 ? session.shared().gpus.gate().launch(
                                                  this_caller(), gate, std::cref(launch))
                                            : write();
  if (error == CUDA_SUCCESS) note_launched(session, *object);
  return error;
}

namespace {

// Of dynamic shared memory, that the question is about.
uint32_t dynamic_bytes(const Decoded<wire::tubeOccupancy>& call) {
  const uint64_t bytes = call->what == wire::OccupancyQuestion::kActiveBlocks ? call->b
                         : call->what == wire::OccupancyQuestion::kPotentialBlockSize
                             ? call->a
                             : call->shared_bytes;
  return static_cast<uint32_t>(std::min<uint64_t>(bytes, std::numeric_limits<int32_t>::max()));
}

CUresult cluster_question(Session& session, const Decoded<wire::tubeOccupancy>& call,
                          CUfunction function, Reply<wire::tubeOccupancy>& reply) {
  Attributes attributes;
  const auto untrusted_attributes = call.array<wire::LaunchAttribute>(call->attributes);
  if (CUresult error = take_attributes(session, untrusted_attributes, false, attributes);
      error != CUDA_SUCCESS)
    return error;
  const CUlaunchConfig config =
      config_of(call->grid, call->block, call->shared_bytes, nullptr, attributes);
  int answer = 0;
  CUresult error =
      call->what == wire::OccupancyQuestion::kPotentialClusterSize
          ? session.driver().cuOccupancyMaxPotentialClusterSize(&answer, function, &config)
          : session.driver().cuOccupancyMaxActiveClusters(&answer, function, &config);
  reply->x = static_cast<uint64_t>(answer);
  return error;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeOccupancy>& call,
                Reply<wire::tubeOccupancy>& reply) {
  Object* object = session.objects().find(wire::Kind::kKernel, call->kernel);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto& kernel = static_cast<const KernelState&>(*object->state);
  if (load_stays(session, *object)) return CUDA_SUCCESS;
  if (CUresult error = load_here(session, *object); error != CUDA_SUCCESS) return error;
  if (CUresult error = keep_own_limit(session, call->kernel, kernel, dynamic_bytes(call));
      error != CUDA_SUCCESS)
    return error;
  const CUfunction function = kernel.function;
  const Driver& driver = session.driver();
  int x = 0;
  int y = 0;
  size_t bytes = 0;
  CUresult error = CUDA_ERROR_INVALID_VALUE;
  switch (call->what) {
    case wire::OccupancyQuestion::kActiveBlocks:
      error = driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
          &x, function, static_cast<int>(call->a), call->b, static_cast<unsigned int>(call->c));
      break;
    case wire::OccupancyQuestion::kPotentialBlockSize:  // a callback that computes shared memory
                                                        // per block size stays with the client
      error = driver.cuOccupancyMaxPotentialBlockSizeWithFlags(&x, &y, function, nullptr, call->a,
                                                               static_cast<int>(call->b),
                                                               static_cast<unsigned int>(call->c));
      break;
    case wire::OccupancyQuestion::kAvailableShared:
      error = driver.cuOccupancyAvailableDynamicSMemPerBlock(
          &bytes, function, static_cast<int>(call->a), static_cast<int>(call->b));
      reply->x = bytes;
      return error;
    case wire::OccupancyQuestion::kPotentialClusterSize:
    case wire::OccupancyQuestion::kActiveClusters:
      return cluster_question(session, call, function, reply);
  }
  reply->x = static_cast<uint64_t>(x);
  reply->y = static_cast<uint64_t>(y);
  return error;
}

}  // namespace tube::proxy
