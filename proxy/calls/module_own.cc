// A client leaves a module that it shared with others: it gets one of its own from the same image,
// and nothing that it holds changes its name. Rare: an attribute that decides whether launches are
// valid, a variable's address, a launch beyond the client's own limit.
//
// The shared module is given back at once, so that a program which loads, changes and unloads in a
// loop holds no more than natively; only if the client has graphs, whose nodes may have the
// functions of before, it stays theirs until the client unloads its own. Either way the next load
// of the image finds it again.
#include <algorithm>
#include <vector>

#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/calls/modules.h"
#include "proxy/code/jit_options.h"
#include "proxy/common/owner.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"

namespace tube::proxy {

namespace {

CUresult load_again(Session& session, bool library, const Image& image, uint64_t* raw) {
  Stats::add(session.stats().images_loaded);
  JitOptions none;
  return library ? load_library(session, image, none, 0, {}, {}, raw)
                 : load_module(session, image, none, 0, raw);
}

// A kernel of the client's, and what it becomes.
struct Move {
  Object* object;
  LoadedKernel* loaded;
};

KernelState& state_of(const Move& move) { return static_cast<KernelState&>(*move.object->state); }

constexpr auto kDynamicLimit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

// Looks the kernel up in the client's own module, with the limits of dynamic shared memory that the
// client had set.
CUresult prepare(Session& session, LoadedModule& own, LoadedModule& before, uint32_t gpu,
                 Move& move) {
  const KernelState& kernel = state_of(move);
  const Driver& driver = session.driver();
  const Gpus& gpus = session.shared().gpus;
  bool fresh = false;
  CUresult error = own.kernel(driver, gpus, gpu, *kernel.name, &move.loaded, &fresh);
  const CUfunction function = error == CUDA_SUCCESS ? move.loaded->function : nullptr;
  for (uint32_t on = 0; on < kernel.dynamic_limits.size() && error == CUDA_SUCCESS; ++on) {
    const int32_t limit = kernel.dynamic_limit(on);
    const int32_t has =
        on == gpu ? own.limit(*move.loaded, gpu) : first_limit(before, *kernel.loaded, on);
    if (limit == KernelState::kNoLimit || limit == has) continue;
    error = own.library()
                ? driver.cuKernelSetAttribute(kDynamicLimit, limit,
                                              reinterpret_cast<CUkernel>(function), gpus[on].device)
                : driver.cuFuncSetAttribute(function, kDynamicLimit, limit);
  }
  return error;
}

// `in_graphs`: nodes of the client's graphs may have the function of before.
void carry_out(const Move& move, LoadedModule& own, uint32_t gpu, bool in_graphs) {
  KernelState& kernel = state_of(move);
  const KernelState before = kernel;
  describe(kernel, own, *move.loaded, gpu);
  kernel.former = in_graphs ? before.function : nullptr;
  kernel.writes = before.writes;
  kernel.runtime = before.runtime;
  kernel.used_on = before.used_on;
  kernel.dynamic_limits = before.dynamic_limits;
  move.object->raw = reinterpret_cast<uint64_t>(kernel.function);
}

}  // namespace

int32_t first_limit(LoadedModule& module, const LoadedKernel& kernel, uint32_t gpu) {
  const auto seen = module.seen(kernel, gpu);
  return seen.has_value() && seen->attributes[kDynamicLimit].result == CUDA_SUCCESS
             ? seen->attributes[kDynamicLimit].value
             : KernelState::kNoLimit;
}

void describe(KernelState& kernel, LoadedModule& module, LoadedKernel& loaded, uint32_t gpu) {
  const LoadedKernel::OnGpu on = module.seen(loaded, gpu).value_or(LoadedKernel::OnGpu{});
  kernel.function = loaded.function;
  kernel.is_library_kernel = module.library();
  kernel.shared = module.shared();
  kernel.set_dynamic_limit(gpu, first_limit(module, loaded, gpu));
  kernel.local_bytes =
      static_cast<uint32_t>(std::max(0, on.attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES].value));
  kernel.loaded = &loaded;
  kernel.on_gpus = on.loaded ? bit_of(gpu) : 0;
  kernel.name = loaded.name;
  kernel.parameter_count = static_cast<uint32_t>(loaded.layout.size());
  kernel.parameter_bytes = loaded.parameter_bytes;
}

CUresult take_own_module(Session& session, wire::Kind kind, uint64_t id) {
  Object* object = session.objects().find(kind, id);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto& state = static_cast<ModuleState&>(*object->state);
  if (!state.module->shared()) return CUDA_SUCCESS;
  session.runs().forget();
  ModuleCache& modules = session.shared().modules;
  std::shared_ptr<LoadedModule> before = state.module;
  const bool library = before->library();
  const uint32_t gpu = session.context()->gpu;
  std::shared_ptr<LoadedModule> own;
  bool fresh = false;
  const auto load = [&](std::shared_ptr<const Image>* image, uint64_t* raw) {
    return load_again(session, library, **image, raw);
  };
  CUresult error = modules.get({session.client().id, library, gpu, false}, before->image(), {},
                               load, &own, &fresh);
  if (error != CUDA_SUCCESS) return error;
  std::vector<Move> moves;
  for (uint64_t kernel : session.objects().ids(wire::Kind::kKernel)) {
    Object& one = *session.objects().find(wire::Kind::kKernel, kernel);
    if (one.owner != owner_key(kind, id)) continue;
    moves.push_back({&one, nullptr});
    if (error = prepare(session, *own, *before, gpu, moves.back()); error == CUDA_SUCCESS) continue;
    modules.give_back(session.client().id, std::move(own));
    return error;
  }
  const bool in_graphs = session.has_graphs();
  for (const Move& move : moves) carry_out(move, *own, gpu, in_graphs);
  object->raw = own->raw();
  state.module = std::move(own);
  if (in_graphs) state.before = before;
  else modules.give_back(session.client().id, std::move(before));
  log_debug("function '%s' leaves a shared module", session.client().name.c_str());
  return CUDA_SUCCESS;
}

CUresult take_own_module_of(Session& session, uint64_t kernel_id) {
  const Object* kernel = session.objects().find(wire::Kind::kKernel, kernel_id);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return take_own_module(session, owner_kind(kernel->owner), owner_id(kernel->owner));
}

CUresult keep_own_limit(Session& session, uint64_t kernel_id, const KernelState& kernel,
                        uint32_t shared_bytes) {
  const uint32_t gpu = session.context()->gpu;
  if (!kernel.shared || static_cast<int64_t>(shared_bytes) <= kernel.dynamic_limit(gpu))
    return CUDA_SUCCESS;
  // Beyond what the client may: the driver's answer is right as long as nobody raised the limit.
  const Object* object = session.objects().find(wire::Kind::kKernel, kernel_id);
  auto& owner = static_cast<ModuleState&>(
      *session.objects().find(owner_kind(object->owner), owner_id(object->owner))->state);
  if (owner.module->limit(*kernel.loaded, gpu) <= kernel.dynamic_limit(gpu)) return CUDA_SUCCESS;
  return take_own_module_of(session, kernel_id);
}

}  // namespace tube::proxy
