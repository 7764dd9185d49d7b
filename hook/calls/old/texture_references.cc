// Texture and surface references. Modules have none (no compiler makes them any more); those of
// cuTexRefCreate are records in this process (protocol/texture_reference.h).
#include <new>

#include "hook/memory/copy.h"
#include "hook/objects/array.h"
#include "hook/objects/kernels.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"
#include "protocol/texture_reference.h"

namespace tube::hook {
namespace {

constinit Lock g_lock;  // rank 2: what references hold

TextureReference* find_reference(CUtexref handle) {
  Slot* slot = objects().find(Kind::kTexRef, handle);
  return slot == nullptr ? nullptr : static_cast<TextureReference*>(slot->object);
}

// f(reference) under the lock.
template <class F>
CUresult with(CUtexref handle, F f) {
  Locked locked(g_lock);
  TextureReference* reference = find_reference(handle);
  return reference == nullptr ? CUDA_ERROR_INVALID_HANDLE : f(*reference);
}

// An address or none.
bool device_address(CUdeviceptr address) {
  return address == 0 || gpu_visible(side_of(address, Says::kDevice));
}

}  // namespace

CUresult cuModuleGetTexRef(CUtexref* pTexRef, CUmodule hmod, const char* name) {
  if (find_module(hmod) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return pTexRef == nullptr || name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
}
CUresult cuModuleGetSurfRef(CUsurfref* pSurfRef, CUmodule hmod, const char* name) {
  if (find_module(hmod) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return pSurfRef == nullptr || name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
}
// No call makes a surface reference.
CUresult cuSurfRefSetArray(CUsurfref, CUarray, unsigned int) { return CUDA_ERROR_INVALID_HANDLE; }
CUresult cuSurfRefGetArray(CUarray*, CUsurfref) { return CUDA_ERROR_INVALID_HANDLE; }

CUresult cuTexRefCreate(CUtexref* pTexRef) {
  if (pTexRef == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Slot* slot = objects().allocate(Kind::kTexRef);
  if (slot == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (slot->object == nullptr) slot->object = new (std::nothrow) TextureReference;
  if (slot->object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *static_cast<TextureReference*>(slot->object) = {};
  objects().publish(slot);
  *pTexRef = static_cast<CUtexref>(objects().handle_of(slot));
  return CUDA_SUCCESS;
}
CUresult cuTexRefDestroy(CUtexref hTexRef) {
  Slot* slot = objects().find(Kind::kTexRef, hTexRef);
  return slot != nullptr && objects().remove(slot) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuTexRefSetArray(CUtexref hTexRef, CUarray hArray, unsigned int Flags) {
  const Array* array = find_array(hArray);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return with(hTexRef, [&](TextureReference& t) {
    return t.bind_array(hArray, Flags, array->shape.Format, array->shape.NumChannels);
  });
}
CUresult cuTexRefSetMipmappedArray(CUtexref hTexRef, CUmipmappedArray hMipmappedArray,
                                   unsigned int) {
  if (objects().find(Kind::kMipmappedArray, hMipmappedArray) == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  return with(hTexRef, [&](TextureReference& t) { return t.bind_mipmapped(hMipmappedArray); });
}
CUresult cuTexRefSetAddress_v2(size_t* ByteOffset, CUtexref hTexRef, CUdeviceptr dptr, size_t) {
  if (!device_address(dptr)) return CUDA_ERROR_INVALID_VALUE;
  return with(hTexRef, [&](TextureReference& t) { return t.bind_address(ByteOffset, dptr); });
}
CUresult cuTexRefSetAddress2D_v3(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc,
                                 CUdeviceptr dptr, size_t Pitch) {
  if (!device_address(dptr)) return CUDA_ERROR_INVALID_VALUE;
  return with(hTexRef, [&](TextureReference& t) { return t.bind_address_2d(desc, dptr, Pitch); });
}
CUresult cuTexRefSetAddress2D_v2(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc,
                                 CUdeviceptr dptr, size_t Pitch) {
  return hook::cuTexRefSetAddress2D_v3(hTexRef, desc, dptr, Pitch);
}
CUresult cuTexRefSetFormat(CUtexref hTexRef, CUarray_format fmt, int NumPackedComponents) {
  return with(hTexRef, [&](TextureReference& t) { return t.set_format(fmt, NumPackedComponents); });
}
CUresult cuTexRefSetAddressMode(CUtexref hTexRef, int dim, CUaddress_mode am) {
  return with(hTexRef, [&](TextureReference& t) { return t.set_address_mode(dim, am); });
}
CUresult cuTexRefSetFilterMode(CUtexref hTexRef, CUfilter_mode fm) {
  return with(hTexRef, [&](TextureReference& t) { return t.set_filter(fm); });
}
CUresult cuTexRefSetMipmapFilterMode(CUtexref hTexRef, CUfilter_mode fm) {
  return with(hTexRef, [&](TextureReference& t) { return t.set_mipmap_filter(fm); });
}
CUresult cuTexRefSetMipmapLevelBias(CUtexref hTexRef, float bias) {
  return with(hTexRef, [&](TextureReference& t) { return t.set_bias(bias); });
}
CUresult cuTexRefSetMipmapLevelClamp(CUtexref hTexRef, float minMipmapLevelClamp,
                                     float maxMipmapLevelClamp) {
  return with(hTexRef, [&](TextureReference& t) {
    return t.set_clamp(minMipmapLevelClamp, maxMipmapLevelClamp);
  });
}
CUresult cuTexRefSetMaxAnisotropy(CUtexref hTexRef, unsigned int maxAniso) {
  return with(hTexRef, [&](TextureReference& t) { return t.set_anisotropy(maxAniso); });
}
CUresult cuTexRefSetBorderColor(CUtexref hTexRef, float* pBorderColor) {
  return with(hTexRef, [&](TextureReference& t) { return t.set_border(pBorderColor); });
}
CUresult cuTexRefSetFlags(CUtexref hTexRef, unsigned int Flags) {
  return with(hTexRef, [&](TextureReference& t) { return t.set_flags(Flags); });
}

CUresult cuTexRefGetAddress_v2(CUdeviceptr* pdptr, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& t) { return t.address(pdptr); });
}
CUresult cuTexRefGetArray(CUarray* phArray, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& t) { return t.array(phArray); });
}
CUresult cuTexRefGetMipmappedArray(CUmipmappedArray* phMipmappedArray, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& t) { return t.mipmapped(phMipmappedArray); });
}
CUresult cuTexRefGetAddressMode(CUaddress_mode* pam, CUtexref hTexRef, int dim) {
  return with(hTexRef, [&](TextureReference& t) { return t.address_mode(pam, dim); });
}
CUresult cuTexRefGetFilterMode(CUfilter_mode* pfm, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& t) { return t.filter(pfm); });
}
CUresult cuTexRefGetFormat(CUarray_format* pFormat, int* pNumChannels, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& t) { return t.format(pFormat, pNumChannels); });
}
CUresult cuTexRefGetMipmapFilterMode(CUfilter_mode* pfm, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& t) { return t.mipmap_filter(pfm); });
}
CUresult cuTexRefGetMipmapLevelBias(float* pbias, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& t) { return t.bias(pbias); });
}
CUresult cuTexRefGetMipmapLevelClamp(float* pminMipmapLevelClamp, float* pmaxMipmapLevelClamp,
                                     CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& t) {
    return t.clamp(pminMipmapLevelClamp, pmaxMipmapLevelClamp);
  });
}
CUresult cuTexRefGetMaxAnisotropy(int* pmaxAniso, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& t) { return t.anisotropy(pmaxAniso); });
}
CUresult cuTexRefGetBorderColor(float* pBorderColor, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& t) { return t.border(pBorderColor); });
}
CUresult cuTexRefGetFlags(unsigned int* pFlags, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& t) { return t.flags(pFlags); });
}

}  // namespace tube::hook
