// CUDA arrays and mipmapped arrays: making, ending and describing them. All of it waits for the
// proxy, since programs make their arrays before the steady state; copies are in copy_2d.cc.
//
// Destroying one waits for this program's own streams first, as cuMemFree does: the proxy's thread
// must not wait for them, because a record behind the call may be what they wait for.
#include "hook/objects/array.h"

#include <cstring>
#include <new>

#include "hook/memory/allocator.h"
#include "hook/objects/support.h"
#include "protocol/array_format.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

// The object of the slot, described; a former owner's object is used again.
Array* describe(Slot* slot, const CUDA_ARRAY3D_DESCRIPTOR& shape, Context* context) {
  auto* array = static_cast<Array*>(slot->object);
  if (array == nullptr) array = new (std::nothrow) Array;
  if (array == nullptr) return nullptr;
  slot->object = array;
  array->slot = slot;
  array->context = context;
  array->shape = shape;
  array->element_bytes =
      array_element_bytes(static_cast<uint32_t>(shape.Format), shape.NumChannels);
  array->parent = 0;
  return array;
}

CUDA_ARRAY3D_DESCRIPTOR as_3d(const CUDA_ARRAY_DESCRIPTOR& d) {
  return {d.Width, d.Height, 0, d.Format, d.NumChannels, 0};
}
CUDA_ARRAY3D_DESCRIPTOR as_3d(const CUDA_ARRAY3D_DESCRIPTOR& d) { return d; }

// A slot of `kind` that the record built by `send(id)` makes real.
template <class D, class Send>
CUresult create(Kind kind, const D* descriptor, void** handle, Send send) {
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  Slot* slot = objects().allocate(kind);
  if (slot == nullptr || describe(slot, as_3d(*descriptor), making_context()) == nullptr)
    return CUDA_ERROR_OUT_OF_MEMORY;
  objects().publish(slot);
  const CUresult r = ask_for_gpu_memory([&] { return send(slot->id); });
  if (r != CUDA_SUCCESS) {
    objects().remove(slot);
    return r;
  }
  *handle = objects().handle_of(slot);
  return CUDA_SUCCESS;
}

template <class X, class D>
CUresult create_array(CUarray* pHandle, const D* descriptor) {
  return create(Kind::kArray, descriptor, reinterpret_cast<void**>(pHandle), [&](uint64_t id) {
    Request<X> r;
    r.in_context(making_context());
    r->pHandle = id;
    static_assert(sizeof r->pAllocateArray == sizeof *descriptor);
    std::memcpy(r->pAllocateArray, descriptor, sizeof *descriptor);
    return r.call();
  });
}

// Calls f(slot, array) for every live array that says so of itself.
template <class F>
void each_array(Kind kind, F f) {
  for (uint32_t i = 1;; ++i) {
    Slot* slot = objects().at(kind, i);
    if (slot == nullptr || slot->kind != kind) return;
    if (slot->live.load(std::memory_order_acquire) == 0) continue;
    auto* array = static_cast<Array*>(slot->object);
    if (array != nullptr) f(slot, array);
  }
}

// Levels and planes of an array that ended.
void forget_parts(Kind kind, uint64_t id) {
  each_array(Kind::kArray, [&](Slot* slot, const Array* part) {
    if (part->parent != id || part->parent_kind != kind) return;
    const uint64_t part_id = slot->id;
    drop(Kind::kArray, part_id);
    forget_parts(Kind::kArray, part_id);
  });
}

// The array that the proxy named `id`, a part of `parent`.
CUresult adopt_part(uint64_t id, const Slot* parent, CUarray* out) {
  auto* handle = static_cast<CUarray>(adopt(Kind::kArray, id));
  Slot* slot = objects().find(Kind::kArray, handle);
  if (slot == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto* whole = static_cast<const Array*>(parent->object);
  Array* part = describe(slot, whole->shape, whole->context);
  if (part == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  part->element_bytes = 0;  // until its shape is known
  part->parent = parent->id;
  part->parent_kind = parent->kind;
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  if (const CUresult r = hook::cuArray3DGetDescriptor_v2(&shape, handle); r != CUDA_SUCCESS)
    return r;
  part->shape = shape;
  part->element_bytes = array_element_bytes(static_cast<uint32_t>(shape.Format), shape.NumChannels);
  *out = handle;
  return CUDA_SUCCESS;
}

template <class X>
CUresult destroy(Kind kind, const void* handle, uint64_t X::*field) {
  Slot* slot = objects().find(kind, handle);
  if (slot == nullptr) return ended_error(kind, handle);
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  const auto* array = static_cast<const Array*>(slot->object);
  const CUresult finished = array == nullptr ? CUDA_SUCCESS : sync_owner(array->context);
  const uint64_t id = slot->id;
  CUresult result;
  {
    Request<X> r;
    if (array != nullptr) r.in_context(array->context);
    (*r.operator->()).*field = id;
    result = r.call();
  }
  if (result != CUDA_SUCCESS) return result;
  drop(kind, id);
  forget_parts(kind, id);
  return finished;
}

}  // namespace

Array* find_array(const void* handle) {
  Slot* slot = objects().find(Kind::kArray, handle);
  return slot == nullptr ? nullptr : static_cast<Array*>(slot->object);
}

void* array_handle(Kind kind, uint64_t id) { return adopt(kind, id); }

bool inside(const Array& array, const uint64_t (&origin)[3], const uint64_t (&extent)[3]) {
  const uint64_t element = array.element_bytes;
  if (element == 0) return false;
  const CUDA_ARRAY3D_DESCRIPTOR& s = array.shape;
  const uint64_t size[3] = {s.Width * element, s.Height == 0 ? 1 : s.Height,
                            s.Depth == 0 ? 1 : s.Depth};
  for (int i = 0; i < 3; ++i) {
    if (origin[i] > size[i] || extent[i] > size[i] - origin[i]) return false;
  }
  return true;
}

void forget_arrays(const Context* context, Retired* gone) {
  for (const Kind kind : {Kind::kArray, Kind::kMipmappedArray}) {
    each_array(kind, [&](const Slot* slot, const Array* array) {
      if (array->context == context) drop(kind, slot->id, gone);
    });
  }
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  return create_array<wire::cuArrayCreate_v2>(pHandle, pAllocateArray);
}
CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  return create_array<wire::cuArray3DCreate_v2>(pHandle, pAllocateArray);
}
CUresult cuArrayDestroy(CUarray hArray) {
  return destroy(Kind::kArray, hArray, &wire::cuArrayDestroy::hArray);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                unsigned int numMipmapLevels) {
  return create(Kind::kMipmappedArray, descriptor, reinterpret_cast<void**>(pHandle),
                [&](uint64_t id) {
                  Request<wire::cuMipmappedArrayCreate> r;
                  r.in_context(making_context());
                  r->pHandle = id;
                  std::memcpy(r->pMipmappedArrayDesc, descriptor, sizeof *descriptor);
                  r->numMipmapLevels = numMipmapLevels;
                  return r.call();
                });
}
CUresult cuExternalMemoryGetMappedMipmappedArray(
    CUmipmappedArray* mipmap, CUexternalMemory extMem,
    const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* mipmapDesc) {
  const Slot* memory = objects().find(Kind::kExternalMemory, extMem);
  if (memory == nullptr || mipmapDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR& shape = mipmapDesc->arrayDesc;
  return create(Kind::kMipmappedArray, &shape, reinterpret_cast<void**>(mipmap), [&](uint64_t id) {
    Request<wire::tubeExternalArray> r;
    r.in_context(making_context());
    r->memory = memory->id;
    r->array = id;
    r->offset = mipmapDesc->offset;
    r->extent[0] = shape.Width;
    r->extent[1] = shape.Height;
    r->extent[2] = shape.Depth;
    r->format = static_cast<uint32_t>(shape.Format);
    r->channels = shape.NumChannels;
    r->flags = shape.Flags;
    r->levels = mipmapDesc->numLevels;
    return r.call();
  });
}
CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return destroy(Kind::kMipmappedArray, hMipmappedArray,
                 &wire::cuMipmappedArrayDestroy::hMipmappedArray);
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
  if (pLevelArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Slot* slot = objects().find(Kind::kMipmappedArray, hMipmappedArray);
  if (slot == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  wire::cuMipmappedArrayGetLevel_reply reply{};
  CUresult result;
  {
    Request<wire::cuMipmappedArrayGetLevel> r;
    r->hMipmappedArray = slot->id;
    r->level = level;
    result = r.call(&reply);
  }
  return result != CUDA_SUCCESS ? result : adopt_part(reply.pLevelArray, slot, pLevelArray);
}

CUresult cuArrayGetPlane(CUarray* pPlaneArray, CUarray hArray, unsigned int planeIdx) {
  if (pPlaneArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Slot* slot = objects().find(Kind::kArray, hArray);
  if (slot == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  wire::cuArrayGetPlane_reply reply{};
  CUresult result;
  {
    Request<wire::cuArrayGetPlane> r;
    r->hArray = slot->id;
    r->planeIdx = planeIdx;
    result = r.call(&reply);
  }
  return result != CUDA_SUCCESS ? result : adopt_part(reply.pPlaneArray, slot, pPlaneArray);
}

namespace {

// A sparse mapping as it travels: ids for handles, the proxy's devices for ours.
CUresult to_wire(const CUarrayMapInfo& given, CUarrayMapInfo* sent) {
  *sent = given;
  const bool mipmapped = given.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  if (!mipmapped && given.resourceType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  uint64_t id = 0;
  const void* resource =
      mipmapped ? static_cast<const void*>(given.resource.mipmap) : given.resource.array;
  if (const CUresult r = id_of(mipmapped ? Kind::kMipmappedArray : Kind::kArray, resource, &id);
      r != CUDA_SUCCESS)
    return r;
  std::memcpy(&sent->resource, &id, sizeof id);
  if (given.memHandle.memHandle != 0) {
    if (const CUresult r =
            id_of(Kind::kMemHandle, reinterpret_cast<const void*>(given.memHandle.memHandle), &id);
        r != CUDA_SUCCESS)
      return r;
    sent->memHandle.memHandle = id;
  }
  sent->deviceBitMask = 0;
  const Process& p = process();
  for (uint32_t i = 0; i < 32; ++i) {
    if ((given.deviceBitMask >> i & 1) == 0) continue;
    if (i >= p.device_count || p.devices[i] >= 32) return CUDA_ERROR_INVALID_VALUE;
    sent->deviceBitMask |= 1u << p.devices[i];
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemMapArrayAsync(CUarrayMapInfo* mapInfoList, unsigned int count, CUstream hStream) {
  constexpr unsigned kMost = 256;
  if (mapInfoList == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = forbid_capture(stream); r != CUDA_SUCCESS) return r;
  for (unsigned first = 0; first < count; first += kMost) {
    const unsigned here = count - first < kMost ? count - first : kMost;
    CUarrayMapInfo sent[kMost];
    for (unsigned i = 0; i < here; ++i) {
      if (const CUresult r = to_wire(mapInfoList[first + i], &sent[i]); r != CUDA_SUCCESS) return r;
    }
    const auto bytes = static_cast<uint32_t>(here * sizeof sent[0]);
    Request<wire::cuMemMapArrayAsync> r(stream, blob_room(bytes));
    r->hStream = stream->id;
    r->count = here;
    r.put(&wire::cuMemMapArrayAsync::mapInfoList, sent, bytes);
    if (const CUresult result = r.call(); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace tube::hook
