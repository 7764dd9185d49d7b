// Texture and surface references. No module here has one; those of cuTexRefCreate are records
// (protocol/texture_reference.h).
#include "protocol/texture_reference.h"

#include <new>
#include <unordered_set>

#include "sim/calls/array.h"

namespace tube::sim {
namespace {

// Live references, guarded by State::mutex; leaked on purpose.
std::unordered_set<const void*>& references() {
  static auto* set = new std::unordered_set<const void*>;
  return *set;
}

// f(reference) under the lock.
template <class F>
CUresult with(CUtexref handle, F f) {
  Lock lock(state().mutex);
  if (references().count(handle) == 0) return CUDA_ERROR_INVALID_HANDLE;
  return f(*reinterpret_cast<TextureReference*>(handle));
}

// An address or none.
bool device_address(CUdeviceptr address) {
  return address == 0 || state().map.find(address).has_value();
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;
using tube::TextureReference;

SIM_API CUresult cuModuleGetTexRef(CUtexref* pTexRef, CUmodule hmod, const char* name) {
  SIM_ENTER(kHandle);
  if (pTexRef == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(state().mutex);
  return live<Module>(state(), hmod, Kind::kModule) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                               : CUDA_ERROR_NOT_FOUND;
}
SIM_API CUresult cuModuleGetSurfRef(CUsurfref* pSurfRef, CUmodule hmod, const char* name) {
  SIM_ENTER(kHandle);
  if (pSurfRef == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(state().mutex);
  return live<Module>(state(), hmod, Kind::kModule) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                               : CUDA_ERROR_NOT_FOUND;
}
// No call makes a surface reference.
SIM_API CUresult cuSurfRefSetArray(CUsurfref, CUarray, unsigned int) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_HANDLE;
}
SIM_API CUresult cuSurfRefGetArray(CUarray*, CUsurfref) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_HANDLE;
}

SIM_API CUresult cuTexRefCreate(CUtexref* pTexRef) {
  SIM_ENTER(kContext);
  if (pTexRef == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* reference = new TextureReference;
  Lock lock(state().mutex);
  references().insert(reference);
  *pTexRef = reinterpret_cast<CUtexref>(reference);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuTexRefDestroy(CUtexref hTexRef) {
  SIM_ENTER(kHandle);
  Lock lock(state().mutex);
  if (references().erase(hTexRef) == 0) return CUDA_ERROR_INVALID_HANDLE;
  delete reinterpret_cast<TextureReference*>(hTexRef);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuTexRefSetArray(CUtexref hTexRef, CUarray hArray, unsigned int Flags) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) {
    const auto* array = live<Array>(state(), hArray, Kind::kArray);
    return array == nullptr
               ? CUDA_ERROR_INVALID_HANDLE
               : t.bind_array(hArray, Flags, array->desc.Format, array->desc.NumChannels);
  });
}
SIM_API CUresult cuTexRefSetMipmappedArray(CUtexref hTexRef, CUmipmappedArray hMipmappedArray,
                                           unsigned int) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) {
    const bool known = live<Mipmap>(state(), hMipmappedArray, Kind::kMipmap) != nullptr;
    return known ? t.bind_mipmapped(hMipmappedArray) : CUDA_ERROR_INVALID_HANDLE;
  });
}
SIM_API CUresult cuTexRefSetAddress_v2(size_t* ByteOffset, CUtexref hTexRef, CUdeviceptr dptr,
                                       size_t) {
  SIM_ENTER(kHandle);
  if (!device_address(dptr)) return CUDA_ERROR_INVALID_VALUE;
  return with(hTexRef, [&](TextureReference& t) { return t.bind_address(ByteOffset, dptr); });
}
SIM_API CUresult cuTexRefSetAddress2D_v3(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc,
                                         CUdeviceptr dptr, size_t Pitch) {
  SIM_ENTER(kHandle);
  if (!device_address(dptr)) return CUDA_ERROR_INVALID_VALUE;
  return with(hTexRef, [&](TextureReference& t) { return t.bind_address_2d(desc, dptr, Pitch); });
}
SIM_API CUresult cuTexRefSetAddress2D_v2(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc,
                                         CUdeviceptr dptr, size_t Pitch) {
  SIM_ENTER(kHandle);
  return ::cuTexRefSetAddress2D_v3(hTexRef, desc, dptr, Pitch);
}
SIM_API CUresult cuTexRefSetFormat(CUtexref hTexRef, CUarray_format fmt, int NumPackedComponents) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.set_format(fmt, NumPackedComponents); });
}
SIM_API CUresult cuTexRefSetAddressMode(CUtexref hTexRef, int dim, CUaddress_mode am) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.set_address_mode(dim, am); });
}
SIM_API CUresult cuTexRefSetFilterMode(CUtexref hTexRef, CUfilter_mode fm) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.set_filter(fm); });
}
SIM_API CUresult cuTexRefSetMipmapFilterMode(CUtexref hTexRef, CUfilter_mode fm) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.set_mipmap_filter(fm); });
}
SIM_API CUresult cuTexRefSetMipmapLevelBias(CUtexref hTexRef, float bias) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.set_bias(bias); });
}
SIM_API CUresult cuTexRefSetMipmapLevelClamp(CUtexref hTexRef, float minMipmapLevelClamp,
                                             float maxMipmapLevelClamp) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) {
    return t.set_clamp(minMipmapLevelClamp, maxMipmapLevelClamp);
  });
}
SIM_API CUresult cuTexRefSetMaxAnisotropy(CUtexref hTexRef, unsigned int maxAniso) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.set_anisotropy(maxAniso); });
}
SIM_API CUresult cuTexRefSetBorderColor(CUtexref hTexRef, float* pBorderColor) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.set_border(pBorderColor); });
}
SIM_API CUresult cuTexRefSetFlags(CUtexref hTexRef, unsigned int Flags) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.set_flags(Flags); });
}

SIM_API CUresult cuTexRefGetAddress_v2(CUdeviceptr* pdptr, CUtexref hTexRef) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.address(pdptr); });
}
SIM_API CUresult cuTexRefGetArray(CUarray* phArray, CUtexref hTexRef) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.array(phArray); });
}
SIM_API CUresult cuTexRefGetMipmappedArray(CUmipmappedArray* phMipmappedArray, CUtexref hTexRef) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.mipmapped(phMipmappedArray); });
}
SIM_API CUresult cuTexRefGetAddressMode(CUaddress_mode* pam, CUtexref hTexRef, int dim) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.address_mode(pam, dim); });
}
SIM_API CUresult cuTexRefGetFilterMode(CUfilter_mode* pfm, CUtexref hTexRef) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.filter(pfm); });
}
SIM_API CUresult cuTexRefGetFormat(CUarray_format* pFormat, int* pNumChannels, CUtexref hTexRef) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.format(pFormat, pNumChannels); });
}
SIM_API CUresult cuTexRefGetMipmapFilterMode(CUfilter_mode* pfm, CUtexref hTexRef) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.mipmap_filter(pfm); });
}
SIM_API CUresult cuTexRefGetMipmapLevelBias(float* pbias, CUtexref hTexRef) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.bias(pbias); });
}
SIM_API CUresult cuTexRefGetMipmapLevelClamp(float* pminMipmapLevelClamp,
                                             float* pmaxMipmapLevelClamp, CUtexref hTexRef) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) {
    return t.clamp(pminMipmapLevelClamp, pmaxMipmapLevelClamp);
  });
}
SIM_API CUresult cuTexRefGetMaxAnisotropy(int* pmaxAniso, CUtexref hTexRef) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.anisotropy(pmaxAniso); });
}
SIM_API CUresult cuTexRefGetBorderColor(float* pBorderColor, CUtexref hTexRef) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.border(pBorderColor); });
}
SIM_API CUresult cuTexRefGetFlags(unsigned int* pFlags, CUtexref hTexRef) {
  SIM_ENTER(kHandle);
  return with(hTexRef, [&](TextureReference& t) { return t.flags(pFlags); });
}
