// cuTexObject* and cuSurfObject*: checks by cuda.h's words, and what the interpreter needs to read
// or write by handle.
//
// A handle is a number that counts up, in each context for itself: kernels hold it, and nothing may
// guess at it. Views in block-compressed formats are refused.
#include "sim/calls/texture.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "protocol/array_format.h"
#include "sim/calls/array.h"

namespace tube::sim {
namespace {

struct Entry {
  bool surface = false;
  const Context* context = nullptr;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  CUDA_RESOURCE_VIEW_DESC view{};
  std::shared_ptr<const ptx::Texture> meaning;
};

// Of one context and the green contexts on it.
struct Handles {
  std::map<uint64_t, Entry> entries;
  uint64_t last = 0;
};
struct Registry {
  std::mutex mutex;  // leaf
  std::map<const Context*, Handles> of;
};
Registry& registry() {
  static auto* r = new Registry;
  return *r;
}

uint64_t add(Context* context, Entry entry) {
  std::lock_guard guard(registry().mutex);
  Handles& handles = registry().of[base_context(context)];
  handles.entries.emplace(++handles.last, std::move(entry));
  return handles.last;
}

bool find(Context* context, uint64_t handle, bool surface, Entry* out) {
  std::lock_guard guard(registry().mutex);
  const auto& entries = registry().of[base_context(context)].entries;
  const auto it = entries.find(handle);
  if (it == entries.end() || it->second.surface != surface) return false;
  *out = it->second;
  return true;
}

// A handle that names nothing is no error.
CUresult destroy(Context* context, uint64_t handle, bool surface) {
  std::lock_guard guard(registry().mutex);
  auto& entries = registry().of[base_context(context)].entries;
  const auto it = entries.find(handle);
  if (it != entries.end() && it->second.surface == surface) entries.erase(it);
  return CUDA_SUCCESS;
}

using Component = ptx::Texture::Component;

// An enumeration's value as a number: a program may have put in what is none of its values.
template <class E>
unsigned number(const E& value) {
  unsigned n = 0;
  static_assert(sizeof value == sizeof n);
  std::memcpy(&n, &value, sizeof n);
  return n;
}

// False: no plain format. `always` says that its integers are read as fractions whatever the
// texture says.
bool set_format(ptx::Texture& t, CUarray_format format, unsigned channels, bool* always) {
  const uint32_t bytes = array_element_bytes(static_cast<uint32_t>(format), channels);
  if (bytes == 0) return false;
  t.channels = channels;
  t.component_bytes = bytes / channels;
  *always = format >= CU_AD_FORMAT_UNORM_INT8X1 && format <= CU_AD_FORMAT_SNORM_INT16X4;
  switch (static_cast<int>(format)) {
    case CU_AD_FORMAT_FLOAT: t.component = Component::kFloat; break;
    case CU_AD_FORMAT_HALF: t.component = Component::kHalf; break;
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT32: t.component = Component::kSigned; break;
    default:
      t.component = format >= CU_AD_FORMAT_SNORM_INT8X1 && *always ? Component::kSigned
                                                                   : Component::kUnsigned;
      break;
  }
  return true;
}

ptx::TextureLevel level_of(const Array& a) {
  ptx::TextureLevel level;
  level.address = a.base;
  level.width = static_cast<uint32_t>(a.desc.Width);
  level.height = static_cast<uint32_t>(a.rows);
  level.depth = (a.desc.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0
                    ? 1
                    : static_cast<uint32_t>(a.slices);
  level.row_bytes = a.row_bytes;
  level.slice_bytes = a.row_bytes * a.rows;
  return level;
}

bool set_shape(ptx::Texture& t, const CUDA_ARRAY3D_DESCRIPTOR& d, bool* always) {
  t.cube = (d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
  t.layers = (d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0
                 ? static_cast<uint32_t>(d.Depth)
                 : 0;
  return set_format(t, d.Format, d.NumChannels, always);
}

CUresult linear_resource(const CUDA_RESOURCE_DESC& d, ptx::Texture& t, bool* always) {
  const auto& p = d.res.linear;
  if (!set_format(t, p.format, p.numChannels, always)) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t elements = p.sizeInBytes / t.element_bytes();
  if (p.devPtr == 0 || p.devPtr % 512 != 0 || elements > 268435456) return CUDA_ERROR_INVALID_VALUE;
  if (!state().map.find(p.devPtr)) return CUDA_ERROR_INVALID_VALUE;
  t.buffer = true;
  t.levels.push_back(
      {p.devPtr, static_cast<uint32_t>(elements), 1, 1, p.sizeInBytes, p.sizeInBytes});
  return CUDA_SUCCESS;
}

CUresult pitch2d_resource(const CUDA_RESOURCE_DESC& d, ptx::Texture& t, bool* always) {
  const auto& p = d.res.pitch2D;
  if (!set_format(t, p.format, p.numChannels, always)) return CUDA_ERROR_INVALID_VALUE;
  if (p.devPtr == 0 || p.devPtr % 512 != 0 || p.pitchInBytes % 32 != 0 || p.width == 0 ||
      p.height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (p.width > 131072 || p.height > 65000 || p.pitchInBytes > 2097120)
    return CUDA_ERROR_INVALID_VALUE;
  if (!state().map.find(p.devPtr)) return CUDA_ERROR_INVALID_VALUE;
  t.levels.push_back({p.devPtr, static_cast<uint32_t>(p.width), static_cast<uint32_t>(p.height), 1,
                      p.pitchInBytes, p.pitchInBytes * p.height});
  return CUDA_SUCCESS;
}

// The resource as levels and a format. With State::mutex held.
CUresult set_resource(State& s, const CUDA_RESOURCE_DESC& d, ptx::Texture& t, bool* always) {
  if (d.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (number(d.resType)) {
    case CU_RESOURCE_TYPE_ARRAY: {
      const auto* a = live<Array>(s, d.res.array.hArray, Kind::kArray);
      if (a == nullptr || !set_shape(t, a->desc, always)) return CUDA_ERROR_INVALID_VALUE;
      t.levels.push_back(level_of(*a));
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      const auto* m = live<Mipmap>(s, d.res.mipmap.hMipmappedArray, Kind::kMipmap);
      if (m == nullptr || !set_shape(t, m->desc, always)) return CUDA_ERROR_INVALID_VALUE;
      for (const auto& level : m->levels) t.levels.push_back(level_of(*level));
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_LINEAR: return linear_resource(d, t, always);
    case CU_RESOURCE_TYPE_PITCH2D: return pitch2d_resource(d, t, always);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// CU_RES_VIEW_FORMAT_*: groups of three (1, 2, 4 channels) in this order, then block-compressed
// ones.
bool set_view_format(ptx::Texture& t, unsigned format) {
  static constexpr struct {
    Component component;
    uint32_t bytes;
  } kGroups[] = {{Component::kUnsigned, 1}, {Component::kSigned, 1},   {Component::kUnsigned, 2},
                 {Component::kSigned, 2},   {Component::kUnsigned, 4}, {Component::kSigned, 4},
                 {Component::kHalf, 2},     {Component::kFloat, 4}};
  if (format < CU_RES_VIEW_FORMAT_UINT_1X8 || format > CU_RES_VIEW_FORMAT_FLOAT_4X32) return false;
  const auto group = kGroups[(format - 1) / 3];
  const uint32_t channels = 1u << (format - 1) % 3;
  if (group.bytes * channels != t.element_bytes()) return false;
  t.component = group.component;
  t.component_bytes = group.bytes;
  t.channels = channels;
  return true;
}

CUresult set_view(const CUDA_RESOURCE_DESC& d, const CUDA_RESOURCE_VIEW_DESC& v, ptx::Texture& t) {
  if (d.resType != CU_RESOURCE_TYPE_ARRAY && d.resType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
    return CUDA_SUCCESS;  // memory has no views
  if (number(v.format) >= CU_RES_VIEW_FORMAT_UNSIGNED_BC1 &&
      number(v.format) <= CU_RES_VIEW_FORMAT_UNSIGNED_BC7)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (number(v.format) != CU_RES_VIEW_FORMAT_NONE && !set_view_format(t, number(v.format)))
    return CUDA_ERROR_INVALID_VALUE;
  if (v.width != t.levels[0].width) return CUDA_ERROR_INVALID_VALUE;
  if (v.firstMipmapLevel > v.lastMipmapLevel || v.lastMipmapLevel >= t.levels.size())
    return CUDA_ERROR_INVALID_VALUE;
  if (v.firstLayer > v.lastLayer || v.lastLayer >= std::max(t.layers, 1u))
    return CUDA_ERROR_INVALID_VALUE;
  t.levels = {t.levels.begin() + v.firstMipmapLevel, t.levels.begin() + v.lastMipmapLevel + 1};
  for (ptx::TextureLevel& level : t.levels) level.address += v.firstLayer * level.slice_bytes;
  if (t.layers != 0) t.layers = v.lastLayer - v.firstLayer + 1;
  return CUDA_SUCCESS;
}

CUresult set_sampling(const CUDA_TEXTURE_DESC& d, bool always, ptx::Texture& t) {
  constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                              CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |
                              CU_TRSF_SEAMLESS_CUBEMAP;
  if ((d.flags & ~kKnown) != 0 || number(d.filterMode) > 1 || number(d.mipmapFilterMode) > 1)
    return CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < 3; ++i) {
    if (number(d.addressMode[i]) > CU_TR_ADDRESS_MODE_BORDER) return CUDA_ERROR_INVALID_VALUE;
    t.address[i] = static_cast<ptx::Texture::Address>(number(d.addressMode[i]));
  }
  t.normalized_coordinates = (d.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  if ((d.flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0 && !t.cube) return CUDA_ERROR_INVALID_VALUE;
  const bool integer = t.component == Component::kUnsigned || t.component == Component::kSigned;
  t.normalized_read =
      integer && (always || (t.component_bytes < 4 && (d.flags & CU_TRSF_READ_AS_INTEGER) == 0));
  t.srgb = (d.flags & CU_TRSF_SRGB) != 0 && t.normalized_read &&
           t.component == Component::kUnsigned && t.component_bytes == 1;
  t.linear_filter = d.filterMode == CU_TR_FILTER_MODE_LINEAR && !t.buffer;
  t.linear_mipmap = d.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR && t.levels.size() > 1;
  // A cube is clamped at the edges of its faces and always addressed by direction.
  if (t.cube) {
    t.address[0] = t.address[1] = ptx::Texture::Address::kClamp;
    t.normalized_coordinates = true;
  }
  t.bias = d.mipmapLevelBias;
  t.lowest_level = d.minMipmapLevelClamp;
  t.highest_level = d.maxMipmapLevelClamp;
  std::copy_n(d.borderColor, 4, t.border);
  return CUDA_SUCCESS;
}

CUresult check_reach(const Context& context, const CUDA_RESOURCE_DESC& d) {
  if (number(d.resType) != CU_RESOURCE_TYPE_ARRAY) return CUDA_SUCCESS;
  const auto* array = live<Array>(state(), d.res.array.hArray, Kind::kArray);
  return array == nullptr || reaches(context, array->context) ? CUDA_SUCCESS
                                                              : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

CUresult make_texture(const Context* context, const CUDA_RESOURCE_DESC* resource,
                      const CUDA_TEXTURE_DESC* texture, const CUDA_RESOURCE_VIEW_DESC* view,
                      Entry* entry) {
  if (resource == nullptr || texture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto meaning = std::make_shared<ptx::Texture>();
  bool always = false;
  {
    Lock lock(state().mutex);
    if (CUresult r = set_resource(state(), *resource, *meaning, &always)) return r;
    if (CUresult r = check_reach(*context, *resource)) return r;
  }
  if (view != nullptr) {
    if (CUresult r = set_view(*resource, *view, *meaning)) return r;
    entry->view = *view;
  }
  if (CUresult r = set_sampling(*texture, always, *meaning)) return r;
  entry->context = context;
  entry->resource = *resource;
  entry->texture = *texture;
  entry->meaning = std::move(meaning);
  return CUDA_SUCCESS;
}

CUresult make_surface(const Context* context, const CUDA_RESOURCE_DESC* resource, Entry* entry) {
  if (resource == nullptr || number(resource->resType) != CU_RESOURCE_TYPE_ARRAY)
    return CUDA_ERROR_INVALID_VALUE;
  auto meaning = std::make_shared<ptx::Texture>();
  bool always = false;
  Lock lock(state().mutex);
  if (CUresult r = set_resource(state(), *resource, *meaning, &always)) return r;
  if (CUresult r = check_reach(*context, *resource)) return r;
  entry->surface = true;
  entry->context = context;
  entry->resource = *resource;
  entry->meaning = std::move(meaning);
  return CUDA_SUCCESS;
}

}  // namespace

std::shared_ptr<const ptx::Texture> find_texture(Context* context, uint64_t handle) {
  std::lock_guard guard(registry().mutex);
  const auto& entries = registry().of[base_context(context)].entries;
  const auto it = entries.find(handle);
  return it == entries.end() ? nullptr : it->second.meaning;
}

void forget_textures(const Context* context) {
  std::lock_guard guard(registry().mutex);
  registry().of.erase(context);
  for (auto& [base, handles] : registry().of)
    std::erase_if(handles.entries,
                  [&](const auto& entry) { return entry.second.context == context; });
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                                   const CUDA_TEXTURE_DESC* pTexDesc,
                                   const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  SIM_ENTER_CONTEXT(context);
  if (pTexObject == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Entry entry;
  if (CUresult r = make_texture(context, pResDesc, pTexDesc, pResViewDesc, &entry)) return r;
  *pTexObject = add(context, std::move(entry));
  return CUDA_SUCCESS;
}

SIM_API CUresult cuTexObjectDestroy(CUtexObject texObject) {
  SIM_ENTER_CONTEXT(context);
  return destroy(context, texObject, false);
}

SIM_API CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  SIM_ENTER_CONTEXT(context);
  Entry entry;
  if (pResDesc == nullptr || !find(context, texObject, false, &entry))
    return CUDA_ERROR_INVALID_VALUE;
  *pResDesc = entry.resource;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  SIM_ENTER_CONTEXT(context);
  Entry entry;
  if (pTexDesc == nullptr || !find(context, texObject, false, &entry))
    return CUDA_ERROR_INVALID_VALUE;
  *pTexDesc = entry.texture;
  std::fill_n(pTexDesc->borderColor, 4, 0.0f);  // the driver keeps the color to itself
  return CUDA_SUCCESS;
}

SIM_API CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                                CUtexObject texObject) {
  SIM_ENTER_CONTEXT(context);
  Entry entry;
  if (pResViewDesc == nullptr || !find(context, texObject, false, &entry))
    return CUDA_ERROR_INVALID_VALUE;
  *pResViewDesc = entry.view;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  SIM_ENTER_CONTEXT(context);
  if (pSurfObject == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Entry entry;
  if (CUresult r = make_surface(context, pResDesc, &entry)) return r;
  *pSurfObject = add(context, std::move(entry));
  return CUDA_SUCCESS;
}

SIM_API CUresult cuSurfObjectDestroy(CUsurfObject surfObject) {
  SIM_ENTER_CONTEXT(context);
  return destroy(context, surfObject, true);
}

SIM_API CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc,
                                             CUsurfObject surfObject) {
  SIM_ENTER_CONTEXT(context);
  Entry entry;
  if (pResDesc == nullptr || !find(context, surfObject, true, &entry))
    return CUDA_ERROR_INVALID_VALUE;
  *pResDesc = entry.resource;
  return CUDA_SUCCESS;
}
