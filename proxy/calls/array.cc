// CUDA arrays: what the generated handlers cannot do, which is charging an array to its function,
// naming the parts of an array and the sparse mappings.
//
// What an array takes of the GPU's memory is the driver's business, so it is charged as its
// elements (array_charge.h).
//
// A level or a plane is an array that the driver names; it is adopted under its owner, ends with it
// and is never destroyed by itself.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/calls/array_charge.h"
#include "proxy/common/owner.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"

namespace tube::proxy {

namespace {

// A part of the object `owner_id` of `kind`, which was made in the same context as that.
CUresult adopt_part(Session& session, wire::Kind kind, uint64_t owner_id, CUarray part,
                    uint64_t* id) {
  const Object* owner = session.objects().find(kind, owner_id);
  if (owner == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *id =
      session.objects().adopt(wire::Kind::kArray, part, owner->context, owner_key(kind, owner_id));
  return *id != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// What is kept back may use it: it ends behind that.
CUresult destroy(Session& session, wire::Kind kind, uint64_t untrusted_id) {
  const Object* object = session.objects().find_to_end(kind, untrusted_id);
  if (object == nullptr || (kind == wire::Kind::kArray && object->owner != 0))
    return CUDA_ERROR_INVALID_HANDLE;
  return session.end_behind_all() ? CUDA_SUCCESS : session.destroy_object(kind, untrusted_id);
}

CUresult device_of(Session& session, int32_t untrusted_number, CUdevice* device) {
  if (untrusted_number < 0 ||
      static_cast<uint32_t>(untrusted_number) >= session.shared().gpus.count())
    return CUDA_ERROR_INVALID_DEVICE;
  *device = session.shared().gpus[static_cast<uint32_t>(untrusted_number)].device;
  return CUDA_SUCCESS;
}

template <class D>
D descriptor(const unsigned char (&untrusted_bytes)[sizeof(D)]) {
  D shape;
  std::memcpy(&shape, untrusted_bytes, sizeof(shape));
  return shape;
}

// Of an array or mipmapped array: what it is charged with, until it is destroyed.
struct ArrayState final : ObjectState {
  MemoryCharge charge;
};

// Charges `bytes`, has the driver make the object with `make(&handle)`, keeps it under `id`.
template <class T, class Make>
CUresult make_charged(Session& session, wire::Kind kind, uint64_t untrusted_id, uint64_t bytes,
                      Make make) {
  if (CUresult error = session.objects().admit(kind, untrusted_id); error != CUDA_SUCCESS)
    return error;
  auto state = std::make_unique<ArrayState>();
  const int gpu = static_cast<int>(session.context()->gpu);
  T handle{};
  const CUresult error = session.take_memory(session.context()->gpu, bytes, [&] {
    const CUresult charged = session.account().charge(gpu, bytes, &state->charge);
    return charged == CUDA_SUCCESS ? make(&handle) : charged;
  });
  if (error != CUDA_SUCCESS) return error;
  return session.objects().insert(kind, untrusted_id, handle, session.record().context,
                                  std::move(state));
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::cuArrayCreate_v2>& call,
                Reply<wire::cuArrayCreate_v2>&) {
  const auto shape = descriptor<CUDA_ARRAY_DESCRIPTOR>(call->pAllocateArray);
  return make_charged<CUarray>(
      session, wire::Kind::kArray, call->pHandle, array_bytes(array_shape(call->pAllocateArray), 1),
      [&](CUarray* made) { return session.driver().cuArrayCreate_v2(made, &shape); });
}

CUresult handle(Session& session, const Decoded<wire::cuArray3DCreate_v2>& call,
                Reply<wire::cuArray3DCreate_v2>&) {
  const auto shape = descriptor<CUDA_ARRAY3D_DESCRIPTOR>(call->pAllocateArray);
  return make_charged<CUarray>(
      session, wire::Kind::kArray, call->pHandle, array_bytes(array_shape(call->pAllocateArray), 1),
      [&](CUarray* made) { return session.driver().cuArray3DCreate_v2(made, &shape); });
}

CUresult handle(Session& session, const Decoded<wire::cuMipmappedArrayCreate>& call,
                Reply<wire::cuMipmappedArrayCreate>&) {
  const auto shape = descriptor<CUDA_ARRAY3D_DESCRIPTOR>(call->pMipmappedArrayDesc);
  const auto levels = static_cast<unsigned>(call->numMipmapLevels);
  return make_charged<CUmipmappedArray>(
      session, wire::Kind::kMipmappedArray, call->pHandle,
      array_bytes(array_shape(call->pMipmappedArrayDesc), levels), [&](CUmipmappedArray* made) {
        return session.driver().cuMipmappedArrayCreate(made, &shape, levels);
      });
}

CUresult handle(Session& session, const Decoded<wire::cuArrayDestroy>& call,
                Reply<wire::cuArrayDestroy>&) {
  return destroy(session, wire::Kind::kArray, call->hArray);
}

CUresult handle(Session& session, const Decoded<wire::cuMipmappedArrayDestroy>& call,
                Reply<wire::cuMipmappedArrayDestroy>&) {
  return destroy(session, wire::Kind::kMipmappedArray, call->hMipmappedArray);
}

CUresult handle(Session& session, const Decoded<wire::cuMipmappedArrayGetLevel>& call,
                Reply<wire::cuMipmappedArrayGetLevel>& reply) {
  auto whole =
      session.resolve<CUmipmappedArray>(wire::Kind::kMipmappedArray, call->hMipmappedArray);
  if (whole.error != CUDA_SUCCESS) return whole.error;
  CUarray level = nullptr;
  if (CUresult error = session.driver().cuMipmappedArrayGetLevel(&level, whole.handle, call->level);
      error != CUDA_SUCCESS)
    return error;
  return adopt_part(session, wire::Kind::kMipmappedArray, call->hMipmappedArray, level,
                    &reply->pLevelArray);
}

CUresult handle(Session& session, const Decoded<wire::cuArrayGetPlane>& call,
                Reply<wire::cuArrayGetPlane>& reply) {
  auto whole = session.resolve<CUarray>(wire::Kind::kArray, call->hArray);
  if (whole.error != CUDA_SUCCESS) return whole.error;
  CUarray plane = nullptr;
  if (CUresult error = session.driver().cuArrayGetPlane(&plane, whole.handle, call->planeIdx);
      error != CUDA_SUCCESS)
    return error;
  return adopt_part(session, wire::Kind::kArray, call->hArray, plane, &reply->pPlaneArray);
}

CUresult handle(Session& session, const Decoded<wire::cuArrayGetMemoryRequirements>& call,
                Reply<wire::cuArrayGetMemoryRequirements>& reply) {
  auto array = session.resolve<CUarray>(wire::Kind::kArray, call->array);
  if (array.error != CUDA_SUCCESS) return array.error;
  CUdevice device = 0;
  if (CUresult error = device_of(session, call->device, &device); error != CUDA_SUCCESS)
    return error;
  CUDA_ARRAY_MEMORY_REQUIREMENTS requirements{};
  CUresult error =
      session.driver().cuArrayGetMemoryRequirements(&requirements, array.handle, device);
  std::memcpy(reply->memoryRequirements, &requirements, sizeof(requirements));
  return error;
}

CUresult handle(Session& session, const Decoded<wire::cuMipmappedArrayGetMemoryRequirements>& call,
                Reply<wire::cuMipmappedArrayGetMemoryRequirements>& reply) {
  auto mipmap = session.resolve<CUmipmappedArray>(wire::Kind::kMipmappedArray, call->mipmap);
  if (mipmap.error != CUDA_SUCCESS) return mipmap.error;
  CUdevice device = 0;
  if (CUresult error = device_of(session, call->device, &device); error != CUDA_SUCCESS)
    return error;
  CUDA_ARRAY_MEMORY_REQUIREMENTS requirements{};
  CUresult error =
      session.driver().cuMipmappedArrayGetMemoryRequirements(&requirements, mipmap.handle, device);
  std::memcpy(reply->memoryRequirements, &requirements, sizeof(requirements));
  return error;
}

namespace {

// The client's ids become handles. Fields are read as numbers: its bytes may be no value of an
// enumeration.
CUresult resolve_mapping(Session& session, CUarrayMapInfo& info, BlockId* block) {
  uint32_t untrusted_type = 0;
  uint64_t untrusted_id = 0;
  std::memcpy(&untrusted_type, &info.resourceType, sizeof(untrusted_type));
  std::memcpy(&untrusted_id, &info.resource, sizeof(untrusted_id));
  if (untrusted_type == CU_RESOURCE_TYPE_ARRAY) {
    auto array = session.resolve<CUarray>(wire::Kind::kArray, untrusted_id);
    if (array.error != CUDA_SUCCESS) return array.error;
    info.resource.array = array.handle;
  } else if (untrusted_type == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
    auto mipmap = session.resolve<CUmipmappedArray>(wire::Kind::kMipmappedArray, untrusted_id);
    if (mipmap.error != CUDA_SUCCESS) return mipmap.error;
    info.resource.mipmap = mipmap.handle;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (info.memHandle.memHandle == 0) return CUDA_SUCCESS;
  auto memory = session.resolve<BlockId>(wire::Kind::kMemHandle, info.memHandle.memHandle);
  *block = memory.handle;
  return memory.error;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::cuMemMapArrayAsync>& call,
                Reply<wire::cuMemMapArrayAsync>&) {
  const auto untrusted = call.array<CUarrayMapInfo>(call->mapInfoList);
  if (untrusted.empty() || untrusted.size() != call->count) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUarrayMapInfo> list(untrusted.size());
  std::memcpy(list.data(), untrusted.data(), untrusted.size_bytes());
  std::vector<BlockId> blocks(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (CUresult error = resolve_mapping(session, list[i], &blocks[i]); error != CUDA_SUCCESS)
      return error;
  }
  StreamOp op = session.stream_op(call->hStream);
  if (op.error != CUDA_SUCCESS) return op.error;
  return session.shared().memory.map_arrays(list, blocks, op.stream);
}

}  // namespace tube::proxy
