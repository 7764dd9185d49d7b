#include "hook/objects/handles.h"

#include <unordered_map>

#include "hook/objects/thread.h"

namespace tube::hook {

namespace {

// Proxy-made ids by kind and index, so that the same object gets the same handle again
// (cuGraphGetNodes twice). The proxy uses an index again when its object is gone (nodes go with
// their graph): then the newer generation takes the older one's place.
struct Adopted {
  Lock lock;  // rank 2
  std::unordered_map<uint32_t, Slot*> by_index[static_cast<size_t>(Kind::kCount)];
};
Adopted& adopted() {
  static Adopted* a = new Adopted;
  return *a;
}

}  // namespace

CUresult id_of(wire::Kind kind, const void* handle, uint64_t* id) {
  if (kind == Kind::kStream) {
    CUresult error = CUDA_SUCCESS;
    Stream* stream = find_stream(static_cast<CUstream>(const_cast<void*>(handle)), &error);
    if (stream == nullptr) return error;
    *id = stream->id;
    this_thread().operation_stream = stream;
    return CUDA_SUCCESS;
  }
  if (kind == Kind::kContext) {
    Context* context = handle == nullptr
                           ? current_context()
                           : find_context(static_cast<CUcontext>(const_cast<void*>(handle)));
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *id = context->number;
    return CUDA_SUCCESS;
  }
  Slot* slot = objects().find(kind, handle);
  if (slot == nullptr)
    return wire::part_of_graphs(kind) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
  *id = slot->id;
  return CUDA_SUCCESS;
}

CUresult ended_error(wire::Kind kind, const void* handle) {
  return objects().gone(kind, handle) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
}

CUresult device_number(CUdevice device, int32_t* number) {
  const Process& p = process();
  if (device < 0 || static_cast<uint32_t>(device) >= p.device_count)
    return CUDA_ERROR_INVALID_DEVICE;
  *number = static_cast<int32_t>(p.devices[device]);
  return CUDA_SUCCESS;
}

uint64_t new_id(wire::Kind kind, void** handle) {
  Slot* slot = objects().allocate(kind);
  if (slot == nullptr) return 0;
  objects().publish(slot);
  *handle = objects().handle_of(slot);
  return slot->id;
}

void* adopt(wire::Kind kind, uint64_t proxy_made_id) {
  if (proxy_made_id == 0) return nullptr;
  if ((wire::id_index(proxy_made_id) & wire::kProxyMade) == 0) {  // one of ours coming back
    Slot* slot = objects().at(kind, wire::id_index(proxy_made_id));
    return slot != nullptr && slot->id == proxy_made_id ? objects().handle_of(slot) : nullptr;
  }
  Adopted& a = adopted();
  Locked locked(a.lock);
  Slot*& slot = a.by_index[static_cast<size_t>(kind)][wire::id_index(proxy_made_id)];
  if (slot != nullptr && slot->id != proxy_made_id) {
    if (static_cast<int32_t>(wire::id_generation(proxy_made_id) - wire::id_generation(slot->id)) <
        0)
      return nullptr;  // gone meanwhile
    objects().remove(slot);
    slot = nullptr;
  }
  if (slot == nullptr) {
    slot = objects().allocate(kind);
    if (slot == nullptr) return nullptr;
    slot->id = proxy_made_id;
    objects().publish(slot);
  }
  return objects().handle_of(slot);
}

void drop(wire::Kind kind, uint64_t id, Retired* gone) {
  if ((wire::id_index(id) & wire::kProxyMade) == 0) {
    Slot* slot = objects().at(kind, wire::id_index(id));
    if (slot == nullptr || slot->id != id) return;
    if (gone != nullptr) gone->add(slot);
    else objects().remove(slot);
    return;
  }
  Adopted& a = adopted();
  Locked locked(a.lock);
  auto& map = a.by_index[static_cast<size_t>(kind)];
  const auto found = map.find(wire::id_index(id));
  if (found == map.end() || found->second->id != id) return;
  objects().remove(found->second);
  map.erase(found);
}

}  // namespace tube::hook
