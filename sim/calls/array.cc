// cuArray* and cuMipmappedArray*: creation, description, parts. Kernels reach them through
// texture.cc, copies through copy.cc.
//
// Not here: sparse arrays and arrays that are mapped later (a device may lack both),
// block-compressed and planar formats.
#include "sim/calls/array.h"

#include <algorithm>
#include <bit>

#include "protocol/array_format.h"
#include "sim/calls/external.h"
#include "sim/machine/attributes.h"
#include "sim/machine/heap.h"

namespace tube::sim {
namespace {

using Descriptor = CUDA_ARRAY3D_DESCRIPTOR;

constexpr unsigned kKnownFlags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                 CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
                                 CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT;
constexpr unsigned kMappedFlags = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;

// Attribute ids of the largest extents of one shape, 0 for a dimension it does not have.
struct Limits {
  int width, height, depth;
};

uint64_t limit(const Device& device, int id) {
  int value = 0;
  return id != 0 && device_attribute(device, static_cast<CUdevice_attribute>(id), &value)
             ? static_cast<uint64_t>(value)
             : 0;
}

bool fits(const Device& device, const Descriptor& d, const Limits& most) {
  return d.Width <= limit(device, most.width) && d.Height <= limit(device, most.height) &&
         d.Depth <= limit(device, most.depth);
}

// The table of cuda.h: what must always be met, and what with CUDA_ARRAY3D_SURFACE_LDST.
bool extents_fit(const Device& device, const Descriptor& d, bool mipmapped) {
  const bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0,
             cube = (d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
  const bool surface = (d.Flags & CUDA_ARRAY3D_SURFACE_LDST) != 0;
  if (cube) {
    if (d.Width != d.Height || d.Depth == 0 || d.Depth % 6 != 0 || (!layered && d.Depth != 6))
      return false;
    const Limits texture = layered ? Limits{53, 53, 54} : Limits{52, 52, 29},
                 written = layered ? Limits{67, 67, 68} : Limits{66, 66, 65};
    return fits(device, d, texture) && (!surface || fits(device, d, written));
  }
  if (layered) {
    if (d.Depth == 0) return false;
    const Limits texture = d.Height == 0 ? Limits{42, 0, 43} : Limits{27, 28, 29},
                 written = d.Height == 0 ? Limits{61, 0, 62} : Limits{63, 64, 65};
    return fits(device, d, texture) && (!surface || fits(device, d, written));
  }
  if (d.Depth != 0) {
    if (d.Height == 0) return false;
    return (fits(device, d, {24, 25, 26}) || fits(device, d, {47, 48, 49})) &&
           (!surface || fits(device, d, {58, 59, 60}));
  }
  if (d.Height != 0) {
    if ((d.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) != 0 && !fits(device, d, {45, 46, 0})) return false;
    return fits(device, d, mipmapped ? Limits{73, 74, 0} : Limits{22, 23, 0}) &&
           (!surface || fits(device, d, {56, 57, 0}));
  }
  return fits(device, d, {mipmapped ? 77 : 21, 0, 0}) && (!surface || fits(device, d, {55, 0, 0}));
}

CUresult check(const Context& context, const Descriptor& d, bool mipmapped) {
  if (array_element_bytes(static_cast<uint32_t>(d.Format), d.NumChannels) == 0 || d.Width == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((d.Flags & ~(kKnownFlags | kMappedFlags)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((d.Flags & kMappedFlags) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const bool flat_2d = d.Height != 0 && d.Depth == 0;
  if ((d.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) != 0 && !flat_2d) return CUDA_ERROR_INVALID_VALUE;
  return extents_fit(*context.device, d, mipmapped) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// An array of this shape without memory yet.
std::unique_ptr<Array> shape(Context* context, const Descriptor& d) {
  auto array = std::make_unique<Array>();
  array->context = base_context(context);
  array->desc = d;
  array->element_bytes = array_element_bytes(static_cast<uint32_t>(d.Format), d.NumChannels);
  array->row_bytes = d.Width * array->element_bytes;
  array->rows = std::max<uint64_t>(d.Height, 1);
  array->slices = std::max<uint64_t>(d.Depth, 1);
  return array;
}

CUresult allocate(State& s, Context* context, uint64_t bytes, uint64_t* base) {
  Range range;
  range.requested = bytes;
  range.kind = RangeKind::kArray;
  range.device = context->device->ordinal;
  range.context = base_context(context);
  return allocate_range(s, range, kAllocAlign, base);
}

CUresult create(Context* context, CUarray* out, const Descriptor& d) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check(*context, d, false)) return r;
  State& s = state();
  Lock lock(s.mutex);
  if (CUresult r = check_capture_unsafe(s)) return r;
  auto array = shape(context, d);
  if (CUresult r = allocate(s, context, array_bytes(*array), &array->base)) return r;
  s.live.emplace(array.get(), Kind::kArray);
  *out = reinterpret_cast<CUarray>(array.release());
  return CUDA_SUCCESS;
}

Descriptor level_of(const Descriptor& whole, unsigned level) {
  Descriptor d = whole;
  const bool layers = (whole.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  d.Width = std::max<size_t>(whole.Width >> level, 1);
  if (whole.Height != 0) d.Height = std::max<size_t>(whole.Height >> level, 1);
  if (whole.Depth != 0 && !layers) d.Depth = std::max<size_t>(whole.Depth >> level, 1);
  return d;
}

unsigned most_levels(const Descriptor& d) {
  const bool layers = (d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  return static_cast<unsigned>(
      std::bit_width(std::max({d.Width, d.Height, layers ? size_t{0} : d.Depth})));
}

}  // namespace

CUresult create_mipmapped(Context* context, CUmipmappedArray* out, const Descriptor& d,
                          unsigned wanted,
                          const std::function<CUresult(uint64_t bytes, uint64_t* base)>& place) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check(*context, d, true)) return r;
  State& s = state();
  Lock lock(s.mutex);
  if (CUresult r = check_capture_unsafe(s)) return r;
  auto mipmap = std::make_unique<Mipmap>();
  mipmap->context = base_context(context);
  mipmap->desc = d;
  const unsigned levels = std::clamp(wanted, 1u, most_levels(d));
  uint64_t bytes = 0;
  for (unsigned i = 0; i < levels; ++i) {
    mipmap->levels.push_back(shape(context, level_of(d, i)));
    mipmap->levels[i]->mipmap = mipmap.get();
    mipmap->levels[i]->base = bytes;
    bytes += (array_bytes(*mipmap->levels[i]) + kAllocAlign - 1) / kAllocAlign * kAllocAlign;
  }
  if (CUresult r = place(bytes, &mipmap->base)) return r;
  for (auto& level : mipmap->levels) {
    level->base += mipmap->base;
    s.live.emplace(level.get(), Kind::kArray);
  }
  s.live.emplace(mipmap.get(), Kind::kMipmap);
  *out = reinterpret_cast<CUmipmappedArray>(mipmap.release());
  return CUDA_SUCCESS;
}

namespace {

void forget(State& s, Mipmap* mipmap) {
  for (auto& level : mipmap->levels) s.live.erase(level.get());
  s.live.erase(mipmap);
  delete mipmap;
}

}  // namespace

void forget_arrays(State& s, const Context* context) {
  std::vector<Array*> arrays;
  std::vector<Mipmap*> mipmaps;
  for (const auto& [object, kind] : s.live) {
    void* const raw = const_cast<void*>(object);
    if (kind == Kind::kMipmap && static_cast<Mipmap*>(raw)->context == context)
      mipmaps.push_back(static_cast<Mipmap*>(raw));
    if (kind != Kind::kArray) continue;
    auto* array = static_cast<Array*>(raw);
    if (array->context == context && array->mipmap == nullptr) arrays.push_back(array);
  }
  for (Mipmap* mipmap : mipmaps) forget(s, mipmap);
  for (Array* array : arrays) {
    s.live.erase(array);
    delete array;
  }
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* p) {
  SIM_ENTER_CONTEXT(context);
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(context, pHandle, {p->Width, p->Height, 0, p->Format, p->NumChannels, 0});
}

SIM_API CUresult cuArray3DCreate_v2(CUarray* pHandle,
                                    const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  SIM_ENTER_CONTEXT(context);
  if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(context, pHandle, *pAllocateArray);
}

#define SIM_LIVE(type, kind, variable, handle)        \
  State& s = state();                                 \
  Lock lock(s.mutex);                                 \
  auto* variable = live<type>(s, handle, Kind::kind); \
  if (variable == nullptr) return CUDA_ERROR_INVALID_HANDLE

SIM_API CUresult cuArrayDestroy(CUarray hArray) {
  SIM_ENTER(kInit);  // a handle that is none is told before a context that is gone
  State& s = state();
  Lock lock(s.mutex);
  auto* array = live<Array>(s, hArray, Kind::kArray);
  if (array == nullptr) return ended_error(hArray);
  if (array->mipmap != nullptr)
    return CUDA_ERROR_INVALID_HANDLE;  // a level ends with its mipmapped array
  if (CUresult r = check_capture_unsafe(s)) return r;
  if (CUresult r = quiesce(lock, array->context)) return r;
  if (auto gone = s.map.remove(array->base)) release_range(s, *gone);
  s.live.erase(array);
  delete array;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* d, CUarray hArray) {
  SIM_ENTER(kHandle);
  if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_LIVE(Array, kArray, array, hArray);
  *d = {array->desc.Width, array->desc.Height, array->desc.Format, array->desc.NumChannels};
  return CUDA_SUCCESS;
}

SIM_API CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* d, CUarray hArray) {
  SIM_ENTER(kHandle);
  if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_LIVE(Array, kArray, array, hArray);
  *d = array->desc;
  return CUDA_SUCCESS;
}

// No array here is sparse, mapped later or planar.
SIM_API CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* properties,
                                            CUarray array) {
  SIM_ENTER(kHandle);
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_LIVE(Array, kArray, found, array);
  return CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements,
                                              CUarray array, CUdevice device) {
  SIM_ENTER(kHandle);
  if (requirements == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_LIVE(Array, kArray, found, array);
  return device_at(device) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuArrayGetPlane(CUarray* pPlaneArray, CUarray hArray, unsigned int) {
  SIM_ENTER(kHandle);
  if (pPlaneArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_LIVE(Array, kArray, array, hArray);
  return CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                        const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                        unsigned int numMipmapLevels) {
  SIM_ENTER_CONTEXT(context);
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create_mipmapped(context, pHandle, *descriptor, numMipmapLevels,
                          [context](uint64_t bytes, uint64_t* base) {
                            return allocate(state(), context, bytes, base);
                          });
}

SIM_API CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                          unsigned int level) {
  SIM_ENTER(kHandle);
  if (pLevelArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_LIVE(Mipmap, kMipmap, mipmap, hMipmappedArray);
  if (level >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *pLevelArray = reinterpret_cast<CUarray>(mipmap->levels[level].get());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  SIM_ENTER(kHandle);
  SIM_LIVE(Mipmap, kMipmap, mipmap, hMipmappedArray);
  if (CUresult r = check_capture_unsafe(s)) return r;
  if (CUresult r = quiesce(lock, mipmap->context)) return r;
  if (auto gone = s.map.remove(mipmap->base)) release_range(s, *gone);
  forget(s, mipmap);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* properties,
                                                     CUmipmappedArray mipmap) {
  SIM_ENTER(kHandle);
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_LIVE(Mipmap, kMipmap, found, mipmap);
  return CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements,
                                                       CUmipmappedArray mipmap, CUdevice device) {
  SIM_ENTER(kHandle);
  if (requirements == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_LIVE(Mipmap, kMipmap, found, mipmap);
  return device_at(device) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuMemMapArrayAsync(CUarrayMapInfo* mapInfoList, unsigned int count, CUstream) {
  SIM_ENTER_CONTEXT(context);
  if (mapInfoList == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  for (unsigned i = 0; i < count; ++i) {
    const CUarrayMapInfo& info = mapInfoList[i];
    const bool mipmapped = info.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    if (!mipmapped && info.resourceType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
    const bool known = mipmapped ? live<Mipmap>(s, info.resource.mipmap, Kind::kMipmap) != nullptr
                                 : live<Array>(s, info.resource.array, Kind::kArray) != nullptr;
    if (!known) return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_ERROR_INVALID_VALUE;  // none of them is sparse
}
