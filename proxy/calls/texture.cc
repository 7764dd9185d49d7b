// Texture and surface objects.
//
// The driver's own 64-bit handles go to the client, because device code reads them; so a client can
// name any value, and the table of adopted ones says which are its own. Each GPU numbers its
// objects for itself: the same value is another object where another GPU is current. The client's
// ids of arrays stay beside the object, for the calls that describe it.
#include <algorithm>
#include <cstring>

#include "protocol/array_format.h"
#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/session/session.h"

namespace tube::proxy {

namespace {

struct ResourceState : ObjectState {
  uint64_t array_id = 0;   // of an array or mipmapped array
  bool destroyed = false;  // the client was told so; its end is kept back
};

constexpr uint64_t kSane = uint64_t{1}
                           << 48;  // keeps every product below in 128 bits and every sum in 64

CUresult check_linear(Session& session, const CUDA_RESOURCE_DESC& desc) {
  const auto& linear = desc.res.linear;
  if (linear.sizeInBytes > kSane) return CUDA_ERROR_INVALID_VALUE;
  return session.check_device_range(linear.devPtr, std::max<uint64_t>(linear.sizeInBytes, 1));
}

CUresult check_pitch2d(Session& session, const CUDA_RESOURCE_DESC& desc) {
  const auto& p = desc.res.pitch2D;
  uint32_t untrusted_format = 0;
  std::memcpy(&untrusted_format, &p.format, sizeof(untrusted_format));
  const uint64_t element = array_element_bytes(untrusted_format, p.numChannels);
  if (element == 0 || p.width == 0 || p.height == 0 || p.width > kSane / 16 || p.height > kSane ||
      p.pitchInBytes > kSane) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const unsigned __int128 bytes =
      static_cast<unsigned __int128>(p.height - 1) * p.pitchInBytes + p.width * element;
  if (bytes >> 62) return CUDA_ERROR_INVALID_VALUE;
  return session.check_device_range(p.devPtr, static_cast<uint64_t>(bytes));
}

// The client's bytes as a description that the driver may read: handles for ids, addresses that are
// the client's.
CUresult resolve_resource(Session& session, const unsigned char* untrusted,
                          CUDA_RESOURCE_DESC* desc, uint64_t* array_id) {
  std::memcpy(desc, untrusted, sizeof(*desc));
  uint32_t untrusted_type = 0;
  std::memcpy(&untrusted_type, &desc->resType, sizeof(untrusted_type));
  std::memcpy(array_id, &desc->res, sizeof(*array_id));
  switch (untrusted_type) {
    case CU_RESOURCE_TYPE_ARRAY: {
      auto array = session.resolve<CUarray>(wire::Kind::kArray, *array_id);
      desc->res.array.hArray = array.handle;
      return array.error;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      auto mipmap = session.resolve<CUmipmappedArray>(wire::Kind::kMipmappedArray, *array_id);
      desc->res.mipmap.hMipmappedArray = mipmap.handle;
      return mipmap.error;
    }
    case CU_RESOURCE_TYPE_LINEAR: return check_linear(session, *desc);
    case CU_RESOURCE_TYPE_PITCH2D: return check_pitch2d(session, *desc);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// The object becomes the client's; at its limit it ends at once.
CUresult keep(Session& session, wire::Kind kind, uint64_t raw, uint64_t array_id) {
  const uint64_t id =
      session.objects().adopt(kind, raw, session.context()->number, 0, session.context()->gpu);
  if (id == 0) {
    kind == wire::Kind::kTexObject ? session.driver().cuTexObjectDestroy(raw)
                                   : session.driver().cuSurfObjectDestroy(raw);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto state = std::make_unique<ResourceState>();
  state->array_id = array_id;
  session.objects().find(kind, id)->state = std::move(state);
  return CUDA_SUCCESS;
}

// nullptr: not an object of this client on the record's GPU, or one that it has destroyed.
Object* own(Session& session, wire::Kind kind, uint64_t untrusted_raw) {
  const uint64_t id = session.objects().adopted(kind, untrusted_raw, session.context()->gpu);
  Object* object = id == 0 ? nullptr : session.objects().find(kind, id);
  if (object == nullptr) return nullptr;
  const bool destroyed = static_cast<const ResourceState&>(*object->state).destroyed;
  return destroyed && !session.was_kept() ? nullptr : object;
}

// Kernels that are kept back may read it: it ends behind them. A handle that names nothing, or
// nothing any more, is destroyed without an error by the driver, too.
CUresult destroy(Session& session, wire::Kind kind, uint64_t untrusted_raw) {
  Object* object = own(session, kind, untrusted_raw);
  if (object == nullptr) return CUDA_SUCCESS;
  if (session.end_behind_all()) {
    static_cast<ResourceState&>(*object->state).destroyed = true;
    return CUDA_SUCCESS;
  }
  return session.destroy_object(
      kind, session.objects().adopted(kind, untrusted_raw, session.context()->gpu));
}

// The driver's description with the client's id where the handle stands.
void describe(const Object& object, CUDA_RESOURCE_DESC& desc, unsigned char* out) {
  if (desc.resType == CU_RESOURCE_TYPE_ARRAY || desc.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
    const uint64_t id = static_cast<const ResourceState&>(*object.state).array_id;
    std::memcpy(&desc.res, &id, sizeof(id));
  }
  std::memcpy(out, &desc, sizeof(desc));
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::cuTexObjectCreate>& call,
                Reply<wire::cuTexObjectCreate>& reply) {
  CUDA_RESOURCE_DESC resource;
  CUDA_TEXTURE_DESC texture;
  CUDA_RESOURCE_VIEW_DESC view;
  uint64_t array_id = 0;
  if (CUresult error = resolve_resource(session, call->pResDesc, &resource, &array_id);
      error != CUDA_SUCCESS)
    return error;
  std::memcpy(&texture, call->pTexDesc, sizeof(texture));
  std::memcpy(&view, call->pResViewDesc, sizeof(view));
  CUtexObject object = 0;
  CUresult error = session.driver().cuTexObjectCreate(
      &object, &resource, &texture, call->has_pResViewDesc != 0 ? &view : nullptr);
  if (error != CUDA_SUCCESS) return error;
  reply->pTexObject = object;
  return keep(session, wire::Kind::kTexObject, object, array_id);
}

CUresult handle(Session& session, const Decoded<wire::cuSurfObjectCreate>& call,
                Reply<wire::cuSurfObjectCreate>& reply) {
  CUDA_RESOURCE_DESC resource;
  uint64_t array_id = 0;
  if (CUresult error = resolve_resource(session, call->pResDesc, &resource, &array_id);
      error != CUDA_SUCCESS)
    return error;
  CUsurfObject object = 0;
  if (CUresult error = session.driver().cuSurfObjectCreate(&object, &resource);
      error != CUDA_SUCCESS)
    return error;
  reply->pSurfObject = object;
  return keep(session, wire::Kind::kSurfObject, object, array_id);
}

CUresult handle(Session& session, const Decoded<wire::cuTexObjectDestroy>& call,
                Reply<wire::cuTexObjectDestroy>&) {
  return destroy(session, wire::Kind::kTexObject, call->texObject);
}

CUresult handle(Session& session, const Decoded<wire::cuSurfObjectDestroy>& call,
                Reply<wire::cuSurfObjectDestroy>&) {
  return destroy(session, wire::Kind::kSurfObject, call->surfObject);
}

CUresult handle(Session& session, const Decoded<wire::cuTexObjectGetResourceDesc>& call,
                Reply<wire::cuTexObjectGetResourceDesc>& reply) {
  const Object* object = own(session, wire::Kind::kTexObject, call->texObject);
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RESOURCE_DESC desc{};
  CUresult error = session.driver().cuTexObjectGetResourceDesc(&desc, call->texObject);
  if (error == CUDA_SUCCESS) describe(*object, desc, reply->pResDesc);
  return error;
}

CUresult handle(Session& session, const Decoded<wire::cuSurfObjectGetResourceDesc>& call,
                Reply<wire::cuSurfObjectGetResourceDesc>& reply) {
  const Object* object = own(session, wire::Kind::kSurfObject, call->surfObject);
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RESOURCE_DESC desc{};
  CUresult error = session.driver().cuSurfObjectGetResourceDesc(&desc, call->surfObject);
  if (error == CUDA_SUCCESS) describe(*object, desc, reply->pResDesc);
  return error;
}

CUresult handle(Session& session, const Decoded<wire::cuTexObjectGetTextureDesc>& call,
                Reply<wire::cuTexObjectGetTextureDesc>& reply) {
  if (own(session, wire::Kind::kTexObject, call->texObject) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_TEXTURE_DESC desc{};
  CUresult error = session.driver().cuTexObjectGetTextureDesc(&desc, call->texObject);
  if (error == CUDA_SUCCESS) std::memcpy(reply->pTexDesc, &desc, sizeof(desc));
  return error;
}

CUresult handle(Session& session, const Decoded<wire::cuTexObjectGetResourceViewDesc>& call,
                Reply<wire::cuTexObjectGetResourceViewDesc>& reply) {
  if (own(session, wire::Kind::kTexObject, call->texObject) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_RESOURCE_VIEW_DESC desc{};
  CUresult error = session.driver().cuTexObjectGetResourceViewDesc(&desc, call->texObject);
  if (error == CUDA_SUCCESS) std::memcpy(reply->pResViewDesc, &desc, sizeof(desc));
  return error;
}

}  // namespace tube::proxy
