// Initialisation, the entry check, and what happens to contexts as a whole.
#include "sim/machine/state.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/tube_note.h"
#include "sim/machine/copy_engines.h"
#include "sim/machine/devices.h"
#include "sim/machine/fault.h"
#include "sim/machine/hardware_queues.h"
#include "sim/machine/heap.h"

TUBE_IDENTITY_NOTE();

namespace tube::sim {
namespace {

std::atomic<State*> the_state{nullptr};
std::atomic<bool> forked{false};
std::atomic<uint64_t> next_thread{1};
thread_local Thread* this_thread =
    nullptr;  // a plain pointer: no thread_local destructor runs before atexit handlers
pthread_key_t thread_key;

void free_thread(void* p) { delete static_cast<Thread*>(p); }

}  // namespace

State::State() = default;
State::~State() = default;

State& state() { return *the_state.load(std::memory_order_acquire); }
bool initialized() {
  return the_state.load(std::memory_order_acquire) != nullptr &&
         !forked.load(std::memory_order_relaxed);
}

Thread& thread() {
  if (this_thread == nullptr) {
    this_thread = new Thread;
    this_thread->id = next_thread.fetch_add(1);
    if (the_state.load() != nullptr) pthread_setspecific(thread_key, this_thread);
  }
  return *this_thread;
}

CUresult initialize() {
  static std::mutex once;
  std::lock_guard guard(once);
  if (forked.load()) return CUDA_ERROR_NOT_INITIALIZED;
  if (the_state.load() != nullptr) return state().init_result;
  auto* s = new State;
  std::string error;
  TopologySpec spec = load_topology(&error);
  s->fabric = std::make_unique<Fabric>(spec);
  s->hardware_queues = HardwareQueues::load();
  s->copy_engines = CopyEngines::load(spec, s->fabric.get(), &error);
  make_devices(*s, spec, &error);
  load_faults(std::getenv("TUBE_SIM_FAULT"), s->fabric.get(), &error);
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  s->launch_blocking = blocking != nullptr && std::strcmp(blocking, "0") != 0 && *blocking != '\0';
  const char* loading = std::getenv("CUDA_MODULE_LOADING");
  if (loading != nullptr && strcasecmp(loading, "EAGER") == 0)
    s->loading_mode = CU_MODULE_EAGER_LOADING;
  if (!error.empty()) std::fprintf(stderr, "tube sim: %s\n", error.c_str());
  pthread_key_create(&thread_key, &free_thread);
  pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
  the_state.store(s, std::memory_order_release);
  return s->init_result;
}

Context* current_context() {
  Thread& t = thread();
  return t.stack.empty() ? nullptr : t.stack.back();
}

// Calls that cuda.h 3.2 made wide, in the form that it gave them.
static bool is_wide_form(const char* call) {
  // A table.
  // clang-format off
  static constexpr const char* kCalls[] = {
      "cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemFree_v2", "cuMemAllocHost_v2", "cuMemGetAddressRange_v2",
      "cuMemHostGetDevicePointer_v2", "cuModuleGetGlobal_v2", "cuMemcpyAtoA_v2", "cuMemcpyAtoD_v2", "cuMemcpyAtoH_v2", "cuMemcpyAtoHAsync_v2",
      "cuMemcpyDtoA_v2", "cuMemcpyDtoD_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoA_v2",
      "cuMemcpyHtoAAsync_v2", "cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DAsync_v2",
      "cuMemcpy3D_v2", "cuMemcpy3DAsync_v2", "cuMemsetD8_v2", "cuMemsetD16_v2", "cuMemsetD32_v2", "cuMemsetD2D8_v2", "cuMemsetD2D16_v2",
      "cuMemsetD2D32_v2", "cuArrayCreate_v2", "cuArray3DCreate_v2", "cuArrayGetDescriptor_v2", "cuArray3DGetDescriptor_v2",
      "cuTexRefSetAddress_v2", "cuTexRefSetAddress2D_v2", "cuTexRefSetAddress2D_v3", "cuTexRefGetAddress_v2",
  };
  // clang-format on
  return std::any_of(std::begin(kCalls), std::end(kCalls),
                     [call](const char* wide) { return std::strcmp(call, wide) == 0; });
}

CUresult enter(const char* call, Need need, Context** current) {
  if (need != Need::kNothing && !initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  Injected injected = count_call(call);
  if (injected.error != CUDA_SUCCESS) return injected.error;
  if (need != Need::kNothing && state().init_result != CUDA_SUCCESS)
    return CUDA_ERROR_NOT_INITIALIZED;
  if (need != Need::kNothing && thread().in_callback) return CUDA_ERROR_NOT_PERMITTED;
  if (need == Need::kNothing || need == Need::kInit) return CUDA_SUCCESS;
  Context* context = current_context();
  if (context == nullptr) return need == Need::kHandle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  if (context->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (context->primary && !context->active) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (injected.fault != CUDA_SUCCESS) {
    CUresult none = CUDA_SUCCESS;
    context->error.compare_exchange_strong(none, injected.fault);
  }
  if (current != nullptr) *current = context;
  if (context->api_version < kWideApi && !thread().in_old_call && is_wide_form(call))
    return CUDA_ERROR_INVALID_CONTEXT;
  return context->error.load();
}

CUresult enter_to_free(const char* call, Context** current) {
  const bool without = initialized() && current_context() == nullptr && !thread().in_callback;
  return without ? enter(call, Need::kInit) : enter(call, Need::kContext, current);
}

Device* device_at(CUdevice ordinal) {
  State& s = state();
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= s.devices.size()) return nullptr;
  return s.devices[static_cast<size_t>(ordinal)].get();
}

Accessor accessor_of(const Context& context, bool dma) {
  const Context& owner = context.green == nullptr ? context : *context.device->primary;
  return {context.device->ordinal, owner.peers.load(std::memory_order_relaxed), dma};
}

// A look at all of them costs much beside thousands of streams that are made or destroyed one by
// one.
void drop_drained_lanes(Context* context) {
  constexpr size_t kFew = 16;
  if (context->lanes.size() <= 2 * context->streams.size() + kFew) return;
  std::erase_if(context->lanes,
                [](const LanePtr& l) { return l->queue.empty() && l.use_count() == 1; });
}

CUresult synchronize(Lock& lock, Context* context) {
  if (context == nullptr) return CUDA_SUCCESS;
  std::vector<FencePtr> tails;
  for (auto& lane : context->lanes)
    if (lane->tail && !lane->tail->done) tails.push_back(lane->tail);
  if (context->legacy->tail) tails.push_back(context->legacy->tail);
  for (auto& fence : tails) wait(lock, fence);
  drop_drained_lanes(context);
  lock.unlock();
  flush_prints(context);
  lock.lock();
  return context->error.load();
}

namespace {
std::condition_variable quiesced;
}

CUresult quiesce(Lock& lock, Context* of) {
  if (of == nullptr) return CUDA_SUCCESS;
  Context* context = base_context(of);
  ++context->quiescing;
  CUresult error = synchronize(lock, context);
  if (context != of) error = synchronize(lock, of);
  for (Context* green : std::vector<Context*>(context->greens))
    if (green != of) (void)synchronize(lock, green);
  --context->quiescing;
  quiesced.notify_all();
  return error;
}

bool reaches(const Context& from, const Context* owner) {
  if (owner == nullptr || owner->device == from.device) return true;
  return (base_context(const_cast<Context*>(&from))->peers.load() >> owner->device->ordinal & 1) !=
         0;
}

void wait_for_quiescing(Lock& lock, Context* of) {
  Context* context = base_context(of);
  quiesced.wait(lock, [context] { return context->quiescing == 0; });
}

void flush_prints(Context* of) {
  Context* context = base_context(of);
  // Held until the text is out: a caller that finds none left returns behind it.
  static std::mutex writing;
  std::lock_guard one_writer(writing);
  std::string text;
  {
    std::lock_guard guard(context->print_mutex);
    text.swap(context->print_buffer);
  }
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void reset_context(State& s, Context* context) {
  context->legacy = std::make_shared<Lane>();
  context->legacy->context = context;
  context->legacy_stream = new Stream;
  context->legacy_stream->id = s.new_id();
  context->legacy_stream->context = context;
  context->legacy_stream->lane = context->legacy;
  context->legacy->stream = context->legacy_stream->id;
  context->error.store(CUDA_SUCCESS);
  context->cancel = std::make_shared<std::atomic<bool>>(false);
  context->peers.store(0);
  context->heap_used = 0;
  context->heap_in_use = false;
  context->stream_room = kFirstStreams;
  context->barrier = nullptr;
  context->unsettled = false;
  context->loaded = context->launched = {};
}

CUresult check_capture_unsafe(State& s) {
  Thread& t = thread();
  if (t.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (auto& capture : s.captures) {
    bool own = capture->thread == t.id && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    bool global = t.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                  capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!own && !global) continue;
    if (capture->invalid == CUDA_SUCCESS) capture->invalid = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult check_context_idle_of_captures(State& s, const Context* context) {
  CUresult result = CUDA_SUCCESS;
  for (auto& capture : s.captures) {
    if (capture->origin->context != context) continue;
    if (capture->invalid == CUDA_SUCCESS) capture->invalid = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

}  // namespace tube::sim
