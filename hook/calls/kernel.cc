// Kernels and functions: looking one up brings its parameter layout and attributes along, so that
// everything asked later is answered here. Setting an attribute is posted and updates the copy;
// occupancy is asked once per distinct question.
#include <algorithm>
#include <cstring>
#include <new>
#include <span>

#include "hook/graphs/update_proofs.h"
#include "hook/objects/kernels.h"
#include "hook/objects/support.h"
#include "hook/process/start_trace.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

constexpr uint32_t kMaxParameters = 8192;

Kernel* allocate_kernel(Module* module, const char* name) {
  Slot* slot = objects().allocate(Kind::kKernel);
  if (slot == nullptr) return nullptr;
  auto* k = static_cast<Kernel*>(slot->object);
  if (k == nullptr) k = new (std::nothrow) Kernel;
  if (k == nullptr) return nullptr;
  slot->object = k;
  k->slot = slot;
  k->id = slot->id;
  k->module = module;
  k->name = name;
  for (KernelOn* on = &k->on; on != nullptr; on = on->next.load(std::memory_order_relaxed))
    on->device.store(KernelOn::kNowhere, std::memory_order_relaxed);
  k->occupancy.clear();
  k->old_launch = OldLaunch{};
  return k;
}

Context* context_of(const Kernel* k) {
  return k->module->context != nullptr ? k->module->context : current_context();
}

// Offsets and sizes of the parameters. False when one lies outside of `parameter_bytes`: launches
// copy by it without looking again.
bool take_layout(Kernel* k, std::span<const std::byte> layout, uint32_t parameter_bytes) {
  k->layout.resize(layout.size() / sizeof(wire::KernelParameter));
  if (!layout.empty()) std::memcpy(k->layout.data(), layout.data(), layout.size());
  k->parameter_bytes = parameter_bytes;
  return std::all_of(k->layout.begin(), k->layout.end(), [=](const wire::KernelParameter& p) {
    return p.offset <= parameter_bytes && p.size_bytes <= parameter_bytes - p.offset;
  });
}

// `entry_of(i)` is the attribute with the number i.
template <class EntryOf>
void take_attributes(KernelOn* on, uint32_t device, EntryOf entry_of) {
  for (uint32_t i = 0; i < info::kFunctionAttributeCount; ++i) {
    const wire::KernelAttribute entry = entry_of(i);
    on->attribute_results[i] = entry.result;
    on->attributes[i].store(entry.value, std::memory_order_relaxed);
  }
  on->device.store(device, std::memory_order_release);
}

void take_attributes(KernelOn* on, uint32_t device, std::span<const std::byte> attributes) {
  take_attributes(on, device, [&](uint32_t i) {
    wire::KernelAttribute entry{CUDA_ERROR_INVALID_VALUE, 0};
    if ((i + 1) * sizeof entry <= attributes.size())
      std::memcpy(&entry, attributes.data() + i * sizeof entry, sizeof entry);
    return entry;
  });
}

bool read_reply(Kernel* k, const wire::tubeGetKernel_reply& reply, const ReplyBlobs& blobs) {
  const auto layout = blobs.get(reply.layout);
  if (reply.parameter_count > kMaxParameters ||
      layout.size() != reply.parameter_count * sizeof(wire::KernelParameter))
    return false;
  if (!take_layout(k, layout, reply.parameter_bytes)) return false;
  k->writes = reply.writes;
  const Context* context = context_of(k);
  take_attributes(&k->on, context != nullptr ? context->device : KernelOn::kNowhere,
                  blobs.get(reply.attributes));
  return true;
}

// From the table that came with the module.
bool read_known(Kernel* k, const wire::KnownKernel& known) {
  if (!take_layout(k,
                   {reinterpret_cast<const std::byte*>(&known + 1),
                    known.parameter_count * sizeof(wire::KernelParameter)},
                   known.parameter_bytes))
    return false;
  k->writes = known.writes;
  take_attributes(&k->on, k->module->known_on, [&](uint32_t i) { return known.attributes[i]; });
  return true;
}

KernelOn* find_on(Kernel* k, uint32_t device) {
  for (KernelOn* on = &k->on; on != nullptr; on = on->next.load(std::memory_order_acquire)) {
    if (on->device.load(std::memory_order_acquire) == device) return on;
  }
  return nullptr;
}

// One that is of no device; under the kernel's lock. nullptr: out of memory.
KernelOn* free_on(Kernel* k) {
  if (KernelOn* on = find_on(k, KernelOn::kNowhere)) return on;
  auto* on = new (std::nothrow) KernelOn;
  if (on == nullptr) return nullptr;
  on->next.store(k->on.next.load(std::memory_order_relaxed), std::memory_order_relaxed);
  k->on.next.store(on, std::memory_order_release);
  return on;
}

CUresult ask_attributes(Kernel* k, Context* context, KernelOn** out) {
  wire::tubeKernelGetAttribute_reply reply{};
  ReplyBlobs blobs;
  CUresult result;
  {
    Request<wire::tubeKernelGetAttribute> r;
    r.in_context(context);
    r->kernel = k->id;
    result = r.call(&reply, &blobs);
  }
  if (result != CUDA_SUCCESS) return result;
  Locked locked(k->lock);
  *out = find_on(k, context->device);  // another thread asked meanwhile, and may have set something
  if (*out == nullptr) {
    *out = free_on(k);
    if (*out == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    take_attributes(*out, context->device, blobs.get(reply.attributes));
  }
  return CUDA_SUCCESS;
}

// For a call that names a device: a module's kernel is on its own.
Context* context_for(const Kernel* k, CUdevice device) {
  if (k->module->context != nullptr) return k->module->context;
  Context* current = current_context();
  return current != nullptr && current->visible_device == static_cast<uint32_t>(device)
             ? current
             : process().primaries[device];
}

// Asks the proxy; what it has told already needs no answer.
CUresult look_up(Kernel* k, const char* name, uint32_t length) {
  const auto known = k->module->known.find(std::string_view(name, length));
  const bool told = known != k->module->known.end();
  tally(told ? Tally::kKnown : Tally::kLookups);
  wire::tubeGetKernel_reply reply{};
  ReplyBlobs blobs;
  CUresult result;
  {
    Request<wire::tubeGetKernel> r(blob_room(length));
    if (Context* context = context_of(k)) r.in_context(context);
    r->library = k->module->id;
    r->kernel = k->id;
    r->kind = k->module->kind;
    r.put(&wire::tubeGetKernel::name, name, length);
    result = told ? r.post() : r.call(&reply, &blobs);
  }
  if (result != CUDA_SUCCESS) return result;
  return (told ? read_known(k, *known->second) : read_reply(k, reply, blobs)) ? CUDA_SUCCESS
                                                                              : CUDA_ERROR_UNKNOWN;
}

bool settable(CUfunction_attribute a) {
  return a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
         a == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ||
         (a >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH &&
          a <= CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
}

// Zero or the code that the driver answers at once.
CUresult check_attribute(const KernelOn& on, const Context& context, CUfunction_attribute attribute,
                         int value) {
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    const int limit =
        context.info().attributes[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN];
    const int fixed =
        on.attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES].load(std::memory_order_relaxed);
    if (value < 0 || (limit > 0 && value > limit - fixed)) return CUDA_ERROR_INVALID_VALUE;
  }
  if (attribute == CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE &&
      (value < 0 || value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT &&
      (value < -1 || value > 100))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult set_attribute(Kernel* k, CUfunction_attribute attribute, int value, CUdevice device) {
  if (!settable(attribute)) return CUDA_ERROR_INVALID_VALUE;
  Context* context = context_for(k, device);
  KernelOn* on = nullptr;
  if (const CUresult r = kernel_on(k, context, &on); r != CUDA_SUCCESS) return r;
  if (const CUresult r = check_attribute(*on, *context, attribute, value); r != CUDA_SUCCESS)
    return r;
  // Libraries set an attribute before every launch; sent, it would wait for kernels that are held.
  std::atomic<int32_t>& known = on->attributes[attribute];
  if (known.load(std::memory_order_relaxed) == value) return sticky_error();
  forget_all_updates();
  CUresult result = CUDA_SUCCESS;
  {
    Request<wire::tubeKernelSetAttribute> r;
    r.in_context(context);
    r->kernel = k->id;
    r->attribute = attribute;
    r->value = value;
    // Noted in the order of the records, of which other threads may send some, too.
    if (known.exchange(value, std::memory_order_relaxed) != value) result = r.post();
  }
  forget_all_updates();  // what another thread's update proved between the two
  if (result != CUDA_SUCCESS) return result;
  Locked locked(k->lock);
  k->occupancy.clear();
  return CUDA_SUCCESS;
}

CUresult get_attribute(int* pi, CUfunction_attribute attribute, Kernel* k, CUdevice device) {
  const auto id = static_cast<uint32_t>(attribute);
  if (id >= static_cast<uint32_t>(CU_FUNC_ATTRIBUTE_MAX) || id >= info::kFunctionAttributeCount)
    return CUDA_ERROR_INVALID_VALUE;
  KernelOn* on = nullptr;
  if (const CUresult r = kernel_on(k, context_for(k, device), &on); r != CUDA_SUCCESS) return r;
  if (on->attribute_results[id] != 0) return static_cast<CUresult>(on->attribute_results[id]);
  *pi = on->attributes[id].load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult parameter_info(const Kernel* k, size_t index, size_t* offset, size_t* size) {
  if (offset == nullptr || index >= k->layout.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = k->layout[index].offset;
  if (size != nullptr) *size = k->layout[index].size_bytes;
  return CUDA_SUCCESS;
}

CUresult set_cache_config(Kernel* k, CUfunc_cache config, CUdevice device) {
  if (static_cast<unsigned>(config) > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  Request<wire::tubeKernelSetCacheConfig> r;
  r.in_context(context_for(k, device));
  r->kernel = k->id;
  r->config = config;
  return r.post();
}

bool same_question(const OccupancyAnswer& a, const OccupancyAnswer& b) {
  return a.what == b.what && a.flags == b.flags && a.a == b.a && a.b == b.b && a.c == b.c &&
         a.device == b.device;
}

CUresult ask_occupancy(Kernel* k, OccupancyAnswer* q) {
  if (const Context* context = current_context()) q->device = context->device;
  {
    Locked locked(k->lock);
    for (const OccupancyAnswer& known : k->occupancy) {
      if (!same_question(known, *q)) continue;
      *q = known;
      return CUDA_SUCCESS;
    }
  }
  wire::tubeOccupancy_reply reply{};
  CUresult result;
  {
    Request<wire::tubeOccupancy> r;
    r->kernel = k->id;
    r->what = q->what;
    r->a = q->a;
    r->b = q->b;
    r->c = q->c;
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return result;
  q->x = reply.x;
  q->y = reply.y;
  Locked locked(k->lock);
  if (k->occupancy.size() < 256) k->occupancy.push_back(*q);
  return CUDA_SUCCESS;
}

constexpr uint32_t kMaxClusterAttributes = 16;

// Cluster questions depend on the launch configuration: grid, block, shared memory and attributes.
CUresult ask_cluster(wire::OccupancyQuestion what, int* answer, CUfunction func,
                     const CUlaunchConfig* config) {
  Kernel* k = find_kernel(func);
  if (answer == nullptr || config == nullptr ||
      (what == wire::OccupancyQuestion::kActiveClusters && func == nullptr) ||
      config->numAttrs > kMaxClusterAttributes)
    return CUDA_ERROR_INVALID_VALUE;
  if (k == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  wire::LaunchAttribute attributes[kMaxClusterAttributes] = {};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    attributes[i].id = config->attrs[i].id;
    std::memcpy(attributes[i].value, &config->attrs[i].value, sizeof attributes[i].value);
  }
  const auto bytes = static_cast<uint32_t>(config->numAttrs * sizeof attributes[0]);
  wire::tubeOccupancy_reply reply{};
  Request<wire::tubeOccupancy> r(blob_room(bytes));
  r->kernel = k->id;
  r->what = what;
  const uint32_t grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const uint32_t block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  std::memcpy(r->grid, grid, sizeof grid);
  std::memcpy(r->block, block, sizeof block);
  r->shared_bytes = config->sharedMemBytes;
  r.put(&wire::tubeOccupancy::attributes, attributes, bytes);
  const CUresult result = r.call(&reply);
  if (result == CUDA_SUCCESS) *answer = static_cast<int>(reply.x);
  return result;
}

}  // namespace

Kernel* find_kernel(const void* handle) {
  const uintptr_t function = reinterpret_cast<uintptr_t>(handle) & ~kLibraryKernelBit;
  Slot* slot = objects().find(Kind::kKernel, reinterpret_cast<const void*>(function));
  return slot == nullptr ? nullptr : static_cast<Kernel*>(slot->object);
}

CUresult kernel_on(Kernel* k, Context* context, KernelOn** on) {
  *on = process().device_count == 1 ? &k->on : find_on(k, context->device);
  return *on != nullptr ? CUDA_SUCCESS : ask_attributes(k, context, on);
}

CUresult get_kernel(Module* module, const char* name, Kernel** kernel) {
  if (*name == 0) return CUDA_ERROR_NOT_FOUND;
  const size_t length = std::strlen(name);
  if (length > wire::kMaxNameBytes) return CUDA_ERROR_NOT_FOUND;
  {
    Locked locked(module->lock);
    const auto found = module->kernels.find(name);
    if (found != module->kernels.end()) {
      *kernel = found->second;
      return CUDA_SUCCESS;
    }
  }
  mark_start(StartMark::kKernel);
  TallyTime time(Tally::kLookupNs);
  Kernel* k = allocate_kernel(module, name);
  if (k == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  objects().publish(k->slot);
  const CUresult result = look_up(k, name, static_cast<uint32_t>(length));
  if (result != CUDA_SUCCESS) {
    objects().remove(k->slot);
    return result;
  }
  Locked locked(module->lock);
  const auto [place, mine] = module->kernels.emplace(name, k);
  if (!mine) module->doubles.push_back(k->slot);  // another thread asked for the same kernel
  *kernel = place->second;
  mark_start(StartMark::kKernelEnd);
  return CUDA_SUCCESS;
}

// ---- kernels ----

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  const Kernel* k = find_kernel(kernel);
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (k == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pFunc = static_cast<CUfunction>(kernel_handle(k));
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  const Kernel* k = find_kernel(kernel);
  if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (k == nullptr || k->module->kind != wire::LoadedAs::kLibrary) return CUDA_ERROR_INVALID_HANDLE;
  *pLib = static_cast<CUlibrary>(objects().handle_of(k->module->slot));
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  const Kernel* k = find_kernel(hfunc);
  if (name == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (k == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = k->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                              size_t* paramSize) {
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Kernel* k = find_kernel(kernel);
  return k == nullptr ? CUDA_ERROR_INVALID_HANDLE
                      : parameter_info(k, paramIndex, paramOffset, paramSize);
}

namespace {
bool no_device(CUdevice device) {
  return device < 0 || static_cast<uint32_t>(device) >= process().device_count;
}
// What a call means that names a function and no device.
CUdevice device_here() {
  const Context* context = current_context();
  return context != nullptr ? static_cast<CUdevice>(context->visible_device) : 0;
}
}  // namespace

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  Kernel* k = find_kernel(kernel);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (no_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return k == nullptr ? CUDA_ERROR_INVALID_HANDLE : get_attribute(pi, attrib, k, dev);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  Kernel* k = find_kernel(kernel);
  if (no_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return k == nullptr ? CUDA_ERROR_INVALID_HANDLE : set_attribute(k, attrib, val, dev);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  Kernel* k = find_kernel(kernel);
  if (no_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return k == nullptr ? CUDA_ERROR_INVALID_HANDLE : set_cache_config(k, config, dev);
}

// ---- functions ----

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  const Kernel* k = find_kernel(hfunc);
  if (hmod == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (k == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  void* handle = objects().handle_of(k->module->slot);
  if (k->module->kind == wire::LoadedAs::kLibrary)
    return hook::cuLibraryGetModule(hmod, static_cast<CUlibrary>(handle));
  *hmod = static_cast<CUmodule>(handle);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  if (name != nullptr && names_library_kernel(hfunc)) return CUDA_ERROR_INVALID_HANDLE;
  return hook::cuKernelGetName(name, reinterpret_cast<CUkernel>(hfunc));
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                            size_t* paramSize) {
  return hook::cuKernelGetParamInfo(reinterpret_cast<CUkernel>(func), paramIndex, paramOffset,
                                    paramSize);
}

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  if (pi != nullptr && names_library_kernel(hfunc)) return CUDA_ERROR_INVALID_HANDLE;
  return hook::cuKernelGetAttribute(pi, attrib, reinterpret_cast<CUkernel>(hfunc), device_here());
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  return hook::cuKernelSetAttribute(attrib, value, reinterpret_cast<CUkernel>(hfunc),
                                    device_here());
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  return hook::cuKernelSetCacheConfig(reinterpret_cast<CUkernel>(hfunc), config, device_here());
}

// The proxy loads a kernel when it is looked up.
CUresult cuFuncLoad(CUfunction function) {
  return find_kernel(function) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (find_kernel(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

// ---- occupancy ----

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags) {
  Kernel* k = find_kernel(func);
  if (numBlocks == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (k == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (blockSize <= 0) return CUDA_ERROR_INVALID_VALUE;
  OccupancyAnswer q{wire::OccupancyQuestion::kActiveBlocks,
                    flags,
                    static_cast<uint64_t>(blockSize),
                    dynamicSMemSize,
                    flags,
                    0,
                    0};
  const CUresult r = ask_occupancy(k, &q);
  if (r == CUDA_SUCCESS) *numBlocks = static_cast<int>(q.x);
  return r;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  return hook::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                                    dynamicSMemSize, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
  Kernel* k = find_kernel(func);
  if (minGridSize == nullptr || blockSize == nullptr || blockSizeLimit < 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (k == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (blockSizeToDynamicSMemSize == nullptr) {
    OccupancyAnswer q{wire::OccupancyQuestion::kPotentialBlockSize,
                      flags,
                      dynamicSMemSize,
                      static_cast<uint64_t>(blockSizeLimit),
                      flags,
                      0,
                      0};
    const CUresult r = ask_occupancy(k, &q);
    if (r == CUDA_SUCCESS) *minGridSize = static_cast<int>(q.x), *blockSize = static_cast<int>(q.y);
    return r;
  }
  // The program's function says how much shared memory a block size needs: try the sizes here.
  const int32_t* device = current_context()->info().attributes;
  const int warp = device[CU_DEVICE_ATTRIBUTE_WARP_SIZE];
  KernelOn* on = nullptr;
  if (const CUresult r = kernel_on(k, current_context(), &on); r != CUDA_SUCCESS) return r;
  int limit =
      on->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK].load(std::memory_order_relaxed);
  if (blockSizeLimit > 0 && blockSizeLimit < limit) limit = blockSizeLimit;
  int best_threads = 0;
  for (int size = limit; size > 0; size = size % warp == 0 ? size - warp : size - size % warp) {
    int blocks = 0;
    const CUresult r = hook::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &blocks, func, size, blockSizeToDynamicSMemSize(size), flags);
    if (r != CUDA_SUCCESS) return r;
    if (blocks * size <= best_threads) continue;
    best_threads = blocks * size;
    *blockSize = size;
    *minGridSize = blocks * device[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  }
  return best_threads == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
  return hook::cuOccupancyMaxPotentialBlockSizeWithFlags(
      minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize) {
  Kernel* k = find_kernel(func);
  if (dynamicSmemSize == nullptr || numBlocks <= 0 || blockSize <= 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (k == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  OccupancyAnswer q{wire::OccupancyQuestion::kAvailableShared,
                    0,
                    static_cast<uint64_t>(numBlocks),
                    static_cast<uint64_t>(blockSize),
                    0,
                    0,
                    0};
  const CUresult r = ask_occupancy(k, &q);
  if (r == CUDA_SUCCESS) *dynamicSmemSize = q.x;
  return r;
}

CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                            const CUlaunchConfig* config) {
  return ask_cluster(wire::OccupancyQuestion::kPotentialClusterSize, clusterSize, func, config);
}
CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                      const CUlaunchConfig* config) {
  return ask_cluster(wire::OccupancyQuestion::kActiveClusters, numClusters, func, config);
}

}  // namespace tube::hook
