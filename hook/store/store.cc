#include "hook/store/store.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/log.h"
#include "hook/memory/memory_map.h"
#include "sharedmem/store_accessors.h"
#include "sharedmem/window_reservation.h"
#include "sharedmem/windows.h"

namespace tube::hook {
namespace {

Context* context_of(int32_t visible) {
  const Process& p = process();
  if (visible < 0) return p.device_count != 0 ? p.primaries[0] : nullptr;
  return static_cast<uint32_t>(visible) < p.device_count ? p.primaries[visible] : nullptr;
}

Status map_host(UniqueFd file) {
  const Connection& c = connection();
  // Over our own reservation of the window.
  const bool mapped = shared::map_pinned_slot(
      windows::pinned_base(c.welcome.window, windows::kStoreSlot), file.get());
  return mapped ? Status{} : Status(errno_error(errno, "mmap"));
}

Status attach(Store& s, const wire::tubeStoreOpen_reply& reply) {
  Result<UniqueFd> index = take_file(reply.index);
  if (!index) return index.error();
  Result<UniqueFd> pins = take_file(reply.pins);
  if (!pins) return pins.error();
  if (Status attached = s.index.attach(index.take(), pins.take()); !attached) return attached;
  s.held.resize(abi::kStoreSlots);
  if (reply.host == 0) return {};
  Result<UniqueFd> host = take_file(reply.host);
  if (!host) return host.error();
  if (Status mapped = map_host(host.take()); !mapped) return mapped;
  s.host = true;
  return {};
}

CUresult usable() {
  const Process& p = process();
  const State state = p.state();
  if (state != State::kReady && state != State::kNoDevice) return not_ready(process());
  return this_thread().in_callback ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

// The program ends, in order: what it has put is put, what it took is released. (One that is
// killed right behind a seal may have lost it.) Comes before the hook's own handler, which was
// registered earlier.
void settle_at_exit() {
  Store& s = store();
  if (usable() != CUDA_SUCCESS) return;
  if (s.told_behind.exchange(false)) (void)sync_all_contexts();
  if (!s.told.exchange(false)) return;
  Request<wire::tubeStoreWaiting> r;  // an answer comes behind everything that was posted
  (void)r.call();
}

}  // namespace

int32_t visible_device(int32_t device) {
  const Process& p = process();
  for (uint32_t i = 0; i < p.device_count && device >= 0; ++i) {
    if (p.devices[i] == static_cast<uint32_t>(device)) return static_cast<int32_t>(i);
  }
  return -1;
}

Store& store() {
  static Store* s = new Store;
  return *s;
}

int open_store() {
  Store& s = store();
  if (process().state() == State::kUninit) {
    const CUresult r = initialise();
    if (r != CUDA_SUCCESS && process().state() != State::kNoDevice) return store_error(r);
  }
  if (const CUresult r = usable(); r != CUDA_SUCCESS) return store_error(r);
  if (s.open.load(std::memory_order_acquire)) {
    if (s.some_leave.load(std::memory_order_acquire)) let_leaving_go();
    return 0;
  }
  Locked opening(s.opening);
  if (s.open.load(std::memory_order_relaxed)) return 0;
  wire::tubeStoreOpen_reply reply{};
  CUresult result;
  {
    Request<wire::tubeStoreOpen> r;
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return store_error(result);
  if (Status attached = attach(s, reply); !attached) {
    log_error("the workflow's store cannot be used: %s", attached.error().message.c_str());
    return store_error(CUDA_ERROR_OPERATING_SYSTEM);
  }
  std::atexit(settle_at_exit);
  s.open.store(true, std::memory_order_release);
  return 0;
}

void describe(const shared::StoreSight& sight, StoreObject* object) {
  const abi::StoreBody& body = sight.body;
  *object = StoreObject{};
  object->address = body.address;
  object->bytes = body.bytes;
  object->generation = sight.generation();
  object->slot = sight.slot;
  object->home = body.place;
  object->place =
      static_cast<uint32_t>(body.device < 0 ? wire::StorePlace::kHost : wire::StorePlace::kGpu);
  object->device = visible_device(body.device);
  object->dtype = body.dtype;
  object->ndim = body.ndim;
  object->sealed = sight.state() == abi::StoreState::kSealed;
  std::memcpy(object->shape, body.shape, sizeof body.shape);
  std::memcpy(object->strides, body.strides, sizeof body.strides);
  object->created_ns = body.created_ns;
  object->expires_ns = body.expires_ns;
  std::memcpy(object->name, body.name, sizeof body.name);
  std::memcpy(object->group, body.group, sizeof body.group);
  object->name[sizeof object->name - 1] = 0;
  object->group[sizeof object->group - 1] = 0;
}

namespace {
MemoryKind kind_of(const StoreObject& object) {
  const bool gpu = object.place == static_cast<uint32_t>(wire::StorePlace::kGpu);
  return gpu ? MemoryKind::kOpened : MemoryKind::kRegistered;
}
}  // namespace

void show_memory(const StoreObject& object) {
  if (object.device < 0 && kind_of(object) == MemoryKind::kOpened) return;  // of a GPU not seen
  Context* context = context_of(object.device);
  if (context == nullptr) return;
  memory_map().insert({object.address, object.bytes, next_unique(), context, kind_of(object), 0});
}

void hide_memory(const StoreObject& object) {
  Allocation removed;
  (void)memory_map().remove(object.address, kind_of(object), &removed);
}

void know(uint32_t slot, uint64_t generation) {
  StoreHeld& held = store().held[slot];
  Context* context = current_context();
  if (held.known != generation || context != nullptr) held.context = context;
  held.known = generation;
}

namespace {

bool there(Context* context) {
  const auto& lives = context->primary ? context->live : context->alive;
  return lives.load(std::memory_order_acquire);
}

// In which this object was got or reserved; nullptr: it has ended, or nobody knows.
Context* context_of_get(const StoreObject& object) {
  Context* found = nullptr;
  if (object.context == 0) return nullptr;
  for_each_context([&](Context* context) {
    if (context->unique == object.context && there(context)) found = context;
  });
  return found;
}

// For threads without a context: that, or where the process got the object last, or its GPU's.
Context* context_known(const StoreObject& object) {
  if (object.context != 0) return context_of_get(object);
  Context* context = nullptr;
  if (object.slot < abi::kStoreSlots) {
    const Locked locked(store().lock);
    const StoreHeld& held = store().held[object.slot];
    if (held.known == object.generation) context = held.context;
  }
  if (context == nullptr) context = context_of(object.device);
  return context != nullptr && there(context) ? context : nullptr;
}

}  // namespace

int stream_behind(const StoreObject& object, void* handle, bool ends, Stream** stream) {
  CUresult error = CUDA_SUCCESS;
  Context* context = current_context();
  if (reinterpret_cast<uintptr_t>(handle) <= 2) {
    Context* got_in = ends ? context_of_get(object) : nullptr;
    if (got_in != nullptr) context = got_in;
    if (context == nullptr) context = context_known(object);
    if (context == nullptr) return 0;
  }
  *stream = find_stream_in(context, static_cast<CUstream>(handle), &error);
  if (*stream == nullptr) return store_error(error);
  if (legacy_would_wait(*stream, false)) return store_error(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  return capturing(*stream) ? store_error(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : 0;
}

bool stop_making(const StoreObject& object) {
  if (object.slot >= abi::kStoreSlots || object.generation == 0) return false;
  uint64_t& making = store().held[object.slot].making;
  if (making != object.generation) return false;
  making = 0;
  return true;
}

namespace {

// ---- putting ----

int reserve(const StoreSpec* spec, StoreObject* object) {
  if (const int error = open_store(); error != 0) return error;
  const Process& p = process();
  const bool gpu = spec->place == static_cast<uint32_t>(wire::StorePlace::kGpu);
  int32_t device = spec->device;
  if (device < 0 && current_context() != nullptr)
    device = static_cast<int32_t>(current_context()->visible_device);
  if (device < 0) device = 0;
  if (gpu && static_cast<uint32_t>(device) >= p.device_count)
    return store_error(CUDA_ERROR_INVALID_DEVICE);
  const size_t name_bytes = strnlen(spec->name, abi::kStoreNameBytes);
  const char* group = spec->group == nullptr ? "" : spec->group;
  const size_t group_bytes = strnlen(group, abi::kStoreGroupBytes);
  if (name_bytes == 0 || name_bytes >= abi::kStoreNameBytes ||
      group_bytes >= abi::kStoreGroupBytes || spec->ndim > abi::kStoreDims)
    return static_cast<int>(wire::StoreAnswer::kInvalid);
  wire::tubeStoreReserve_reply reply{};
  CUresult result;
  {
    Request<wire::tubeStoreReserve> r(blob_room(name_bytes) + blob_room(group_bytes));
    r->place = static_cast<wire::StorePlace>(spec->place);
    r->device = gpu ? p.devices[device] : 0;
    r->bytes = spec->bytes;
    r->dtype = spec->dtype;
    r->ndim = spec->ndim;
    r->consumers = spec->consumers;
    r->ttl_ms = spec->ttl_ms;
    for (uint32_t i = 0; i < spec->ndim; ++i) {
      r->shape[i] = static_cast<uint64_t>(spec->shape[i]);
      r->strides[i] = static_cast<uint64_t>(spec->strides[i]);
    }
    r.put(&wire::tubeStoreReserve::name, spec->name, static_cast<uint32_t>(name_bytes));
    r.put(&wire::tubeStoreReserve::group, group, static_cast<uint32_t>(group_bytes));
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return store_error(result);
  if (reply.answer != 0) return static_cast<int>(reply.answer);
  *object = StoreObject{};
  object->address = reply.address;
  object->bytes = spec->bytes;
  object->generation = reply.generation;
  object->slot = reply.slot;
  object->place = object->home = spec->place;
  object->device = gpu ? device : -1;
  object->dtype = spec->dtype;
  object->ndim = spec->ndim;
  for (uint32_t i = 0; i < spec->ndim; ++i) {
    object->shape[i] = spec->shape[i];
    object->strides[i] = spec->strides[i];
  }
  std::memcpy(object->name, spec->name, name_bytes);
  std::memcpy(object->group, group, group_bytes);
  if (const Context* current = current_context()) object->context = current->unique;
  show_memory(*object);
  const Locked locked(store().lock);
  store().held[object->slot].making = object->generation;
  know(object->slot, object->generation);
  return 0;
}

int seal(const StoreObject* object, void* handle, int behind) {
  if (const int error = open_store(); error != 0) return error;
  Stream* stream = nullptr;
  const int unfit = behind != 0 ? stream_behind(*object, handle, false, &stream) : 0;
  if (unfit != 0) return unfit;
  Locked locked(store().lock);
  if (!stop_making(*object)) return static_cast<int>(wire::StoreAnswer::kInvalid);
  hide_memory(*object);
  store().told.store(true, std::memory_order_relaxed);
  if (stream != nullptr) store().told_behind.store(true, std::memory_order_relaxed);
  store().held[object->slot].sealing = object->generation;
  if (stream == nullptr) {
    Request<wire::tubeStoreSeal> r;
    r->slot = object->slot;
    r->generation = object->generation;
    return store_error(r.post());
  }
  Request<wire::tubeStoreSealBehind> r(stream);
  r->stream = stream->id;
  r->slot = object->slot;
  r->generation = object->generation;
  return store_error(r.post());
}

// ---- looking ----

int peek(const char* name, StoreObject* object) {
  if (const int error = open_store(); error != 0) return error;
  shared::StoreSight sight;
  const int answer = look_up(name, true, 0, &sight);
  if (answer == 0) describe(sight, object);
  return answer;
}

int remove(const char* name, int group, uint32_t* count) {
  if (const int error = open_store(); error != 0) return error;
  const size_t bytes = strnlen(name, abi::kStoreNameBytes);
  wire::tubeStoreDelete_reply reply{};
  CUresult result;
  {
    Request<wire::tubeStoreDelete> r(blob_room(bytes));
    r->group = group != 0 ? 1 : 0;
    r.put(&wire::tubeStoreDelete::name, name, static_cast<uint32_t>(bytes));
    result = r.call(&reply);
  }
  if (count != nullptr) *count = reply.count;
  return result != CUDA_SUCCESS ? store_error(result) : static_cast<int>(reply.answer);
}

int list(int (*visit)(void* data, const StoreObject* object), void* data) {
  if (const int error = open_store(); error != 0) return error;
  for (uint32_t slot = 0; slot < abi::kStoreSlots; ++slot) {
    shared::StoreSight sight;
    if (!store().index.look(slot, &sight) || sight.state() == abi::StoreState::kDoomed) continue;
    StoreObject object;
    describe(sight, &object);
    if (visit(data, &object) == 0) break;
  }
  return 0;
}

constexpr size_t kQueueBytes = 48 * 1024;

// What does not fit into one record has no turn.
int queue(const char* const* names, uint64_t count) {
  if (const int error = open_store(); error != 0) return error;
  std::string all;
  for (uint64_t i = 0; i < count; ++i) {
    const size_t bytes = strnlen(names[i], abi::kStoreNameBytes);
    if (bytes == 0 || bytes == abi::kStoreNameBytes)
      return static_cast<int>(wire::StoreAnswer::kInvalid);
    if (all.size() + bytes + 1 > kQueueBytes) break;
    all.append(names[i], bytes + 1);
  }
  Request<wire::tubeStoreQueue> r(blob_room(all.size()));
  r.put(&wire::tubeStoreQueue::names, all.data(), static_cast<uint32_t>(all.size()));
  return store_error(r.call());
}

int export_memory(const StoreObject* object, int* fd, uint64_t* bytes, uint64_t* offset) {
  if (const int error = open_store(); error != 0) return error;
  if (object->slot >= abi::kStoreSlots || object->sealed == 0)
    return static_cast<int>(wire::StoreAnswer::kInvalid);
  {
    const Locked locked(store().lock);
    const StoreHeld& held = store().held[object->slot];
    if (held.gets == 0 || held.generation != object->generation)
      return static_cast<int>(wire::StoreAnswer::kInvalid);
  }
  wire::tubeStoreExport_reply reply{};
  CUresult result;
  {
    Request<wire::tubeStoreExport> r;
    r->slot = object->slot;
    r->generation = object->generation;
    r->address = object->address;
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return store_error(result);
  *bytes = reply.bytes;
  *offset = reply.offset;
  return store_error(hand_over_file(reply.fd, "the memory of an object", fd));
}

uint64_t store_id() { return store().index.header().store_id; }
uint64_t session_id() { return connection().welcome.session_id; }

constinit const StoreTable kTable = {sizeof(StoreTable),
                                     kStoreTableVersion,
                                     0,
                                     open_store,
                                     store_id,
                                     session_id,
                                     reserve,
                                     seal,
                                     get_object,
                                     release_object,
                                     peek,
                                     remove,
                                     list,
                                     queue,
                                     export_memory};

}  // namespace

const void* store_table() { return &kTable; }

}  // namespace tube::hook
