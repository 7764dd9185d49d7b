// Texture and surface objects. Device code reads their handles, so they have the proxy's own
// values; what this file does is exchange the array handles inside resource descriptions for ids
// and back.
#include <cstring>

#include "hook/objects/array.h"
#include "hook/objects/peers.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

CUresult to_wire(const CUDA_RESOURCE_DESC* given, CUDA_RESOURCE_DESC* sent) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memset(sent, 0, sizeof *sent);
  sent->resType = given->resType;
  sent->flags = given->flags;
  uint64_t id = 0;
  switch (given->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      if (id_of(Kind::kArray, given->res.array.hArray, &id) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
      if (const Array* array = find_array(given->res.array.hArray);
          array != nullptr && !reaches(current_context(), array->context)) {
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
      }
      std::memcpy(&sent->res.array, &id, sizeof id);
      return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      if (id_of(Kind::kMipmappedArray, given->res.mipmap.hMipmappedArray, &id) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(&sent->res.mipmap, &id, sizeof id);
      return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_LINEAR: sent->res.linear = given->res.linear; return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_PITCH2D: sent->res.pitch2D = given->res.pitch2D; return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

void from_wire(const unsigned char* bytes, CUDA_RESOURCE_DESC* out) {
  std::memcpy(out, bytes, sizeof *out);
  uint64_t id = 0;
  std::memcpy(&id, &out->res, sizeof id);
  if (out->resType == CU_RESOURCE_TYPE_ARRAY) {
    out->res.array.hArray = static_cast<CUarray>(array_handle(Kind::kArray, id));
  } else if (out->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
    out->res.mipmap.hMipmappedArray =
        static_cast<CUmipmappedArray>(array_handle(Kind::kMipmappedArray, id));
  }
}

}  // namespace

CUresult cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                           const CUDA_TEXTURE_DESC* pTexDesc,
                           const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  if (pTexObject == nullptr || pTexDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RESOURCE_DESC resource;
  if (const CUresult r = to_wire(pResDesc, &resource); r != CUDA_SUCCESS) return r;
  wire::cuTexObjectCreate_reply reply{};
  Request<wire::cuTexObjectCreate> r;
  std::memcpy(r->pResDesc, &resource, sizeof resource);
  std::memcpy(r->pTexDesc, pTexDesc, sizeof *pTexDesc);
  if (pResViewDesc != nullptr) {
    r->has_pResViewDesc = 1;
    std::memcpy(r->pResViewDesc, pResViewDesc, sizeof *pResViewDesc);
  }
  const CUresult result = r.call(&reply);
  if (result == CUDA_SUCCESS) *pTexObject = reply.pTexObject;
  return result;
}

CUresult cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  if (pSurfObject == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RESOURCE_DESC resource;
  if (const CUresult r = to_wire(pResDesc, &resource); r != CUDA_SUCCESS) return r;
  wire::cuSurfObjectCreate_reply reply{};
  Request<wire::cuSurfObjectCreate> r;
  std::memcpy(r->pResDesc, &resource, sizeof resource);
  const CUresult result = r.call(&reply);
  if (result == CUDA_SUCCESS) *pSurfObject = reply.pSurfObject;
  return result;
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  if (pResDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::cuTexObjectGetResourceDesc_reply reply{};
  CUresult result;
  {
    Request<wire::cuTexObjectGetResourceDesc> r;
    r->texObject = texObject;
    result = r.call(&reply);
  }
  if (result == CUDA_SUCCESS) from_wire(reply.pResDesc, pResDesc);
  return result;
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  if (pResDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::cuSurfObjectGetResourceDesc_reply reply{};
  CUresult result;
  {
    Request<wire::cuSurfObjectGetResourceDesc> r;
    r->surfObject = surfObject;
    result = r.call(&reply);
  }
  if (result == CUDA_SUCCESS) from_wire(reply.pResDesc, pResDesc);
  return result;
}

}  // namespace tube::hook
