// The copy engine: what a copy is checked for at the call, and how it runs on the stream.
//
// Every copy is a CUDA_MEMCPY3D. A device address is a host address, so a row is one memmove. Sides
// of type UNIFIED are resolved to host or device at the call. The bandwidth model charges the bytes
// to the links between the two places.
#include <cstring>

#include "sim/machine/copy.h"
#include "sim/machine/copy_engines.h"
#include "sim/machine/state.h"
#include "sim/machine/work.h"

namespace tube::sim {
namespace {

// One side of a copy as plain strides.
struct Side {
  uint64_t base = 0;   // host address of the first byte
  uint64_t pitch = 0;  // bytes between rows
  uint64_t slice = 0;  // bytes between slices
  int place = -1;      // device ordinal, -1: host
};

// Bytes from the first to behind the last one touched.
uint64_t extent(const Side& side, const CUDA_MEMCPY3D& c) {
  return (c.Depth - 1) * side.slice + (c.Height - 1) * side.pitch + c.WidthInBytes;
}

// The context from which a side is looked at: the peer forms name one for each, and it is in what
// is reserved in other forms.
const Context& context_of_side(bool source, const CUDA_MEMCPY3D& c, const Context& context) {
  const auto* named = live<Context>(state(), source ? c.reserved0 : c.reserved1, Kind::kContext);
  return named != nullptr ? *named : context;
}

CUresult make_side(bool source, const CUDA_MEMCPY3D& c, const Context& context, Side* side) {
  CUmemorytype type = source ? c.srcMemoryType : c.dstMemoryType;
  uint64_t x = source ? c.srcXInBytes : c.dstXInBytes, y = source ? c.srcY : c.dstY,
           z = source ? c.srcZ : c.dstZ;
  uint64_t pitch = source ? c.srcPitch : c.dstPitch, height = source ? c.srcHeight : c.dstHeight;
  if (type == CU_MEMORYTYPE_ARRAY) {
    auto* array = live<Array>(state(), source ? c.srcArray : c.dstArray, Kind::kArray);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const auto outside = [](uint64_t at, uint64_t length, uint64_t size) {
      return at > size || length > size - at;
    };
    if (outside(x, c.WidthInBytes, array->row_bytes) || outside(y, c.Height, array->rows) ||
        outside(z, c.Depth, array->slices))
      return CUDA_ERROR_INVALID_VALUE;
    side->pitch = array->row_bytes;
    side->slice = array->row_bytes * array->rows;
    side->base = array->base + z * side->slice + y * side->pitch + x;
    side->place = array->context->device->physical;
    return CUDA_SUCCESS;
  }
  side->pitch = pitch != 0 ? pitch : x + c.WidthInBytes;
  side->slice = side->pitch * (height != 0 ? height : c.Height + y);
  if (c.Height > 1 && (side->pitch < c.WidthInBytes || side->pitch - c.WidthInBytes < x))
    return CUDA_ERROR_INVALID_VALUE;
  if (c.Depth > 1 && height != 0 && (height < c.Height || height - c.Height < y))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t start = type == CU_MEMORYTYPE_HOST
                       ? reinterpret_cast<uint64_t>(source ? c.srcHost : c.dstHost)
                       : (source ? c.srcDevice : c.dstDevice);
  if (start == 0) return CUDA_ERROR_INVALID_VALUE;
  side->base = start + z * side->slice + y * side->pitch + x;
  if (type == CU_MEMORYTYPE_HOST) {
    // Memory that CUDA knows at its base is known to its end only (H200).
    auto known = state().map.find(start);
    if (!known || !known->is_host()) return CUDA_SUCCESS;
    const uint64_t end = known->base + known->requested;
    return side->base >= end || extent(*side, c) > end - side->base ? CUDA_ERROR_INVALID_VALUE
                                                                    : CUDA_SUCCESS;
  }
  uint64_t begin = 0, end = 0;
  const Accessor who = accessor_of(context_of_side(source, c, context), true);
  if (!state().map.accessible(side->base, extent(*side, c), !source, who, &begin, &end))
    return CUDA_ERROR_INVALID_VALUE;
  auto range = state().map.find(side->base);
  if (range && !range->is_host())
    side->place = state().devices[static_cast<size_t>(range->device)]->physical;
  return CUDA_SUCCESS;
}

// UNIFIED becomes HOST or DEVICE by asking the address map; false when the address is a bad device
// one.
void resolve_unified(CUDA_MEMCPY3D& c) {
  AddressMap& map = state().map;
  if (c.srcMemoryType == CU_MEMORYTYPE_UNIFIED) {
    if (map.find(c.srcDevice)) {
      c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    } else {
      c.srcMemoryType = CU_MEMORYTYPE_HOST;
      c.srcHost = reinterpret_cast<const void*>(c.srcDevice);
    }
  }
  if (c.dstMemoryType == CU_MEMORYTYPE_UNIFIED) {
    if (map.find(c.dstDevice)) {
      c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    } else {
      c.dstMemoryType = CU_MEMORYTYPE_HOST;
      c.dstHost = reinterpret_cast<void*>(c.dstDevice);
    }
  }
}

void move_bytes(const Side& to, const Side& from, const CUDA_MEMCPY3D& c) {
  if (c.Height == 1 && c.Depth == 1) {
    std::memmove(reinterpret_cast<void*>(to.base), reinterpret_cast<void*>(from.base),
                 c.WidthInBytes);
    return;
  }
  for (uint64_t z = 0; z < c.Depth; ++z)
    for (uint64_t y = 0; y < c.Height; ++y)
      std::memmove(reinterpret_cast<void*>(to.base + z * to.slice + y * to.pitch),
                   reinterpret_cast<void*>(from.base + z * from.slice + y * from.pitch),
                   c.WidthInBytes);
}

bool valid_type(CUmemorytype t) { return t >= CU_MEMORYTYPE_HOST && t <= CU_MEMORYTYPE_UNIFIED; }

bool sane_extent(const CUDA_MEMCPY3D& c) {
  constexpr uint64_t kMax = 1ull << 46;  // keeps every product below in 64 bits
  return c.WidthInBytes < kMax && c.Height < (1ull << 31) && c.Depth < (1ull << 31) &&
         c.srcPitch < kMax && c.dstPitch < kMax && c.srcHeight < (1ull << 31) &&
         c.dstHeight < (1ull << 31);
}

}  // namespace

CUresult check_copy(Context* context, CUDA_MEMCPY3D& c) {
  if (!valid_type(c.srcMemoryType) || !valid_type(c.dstMemoryType) || !sane_extent(c))
    return CUDA_ERROR_INVALID_VALUE;
  // Of memory the driver asks no level.
  if ((c.srcLOD != 0 && c.srcMemoryType == CU_MEMORYTYPE_ARRAY) ||
      (c.dstLOD != 0 && c.dstMemoryType == CU_MEMORYTYPE_ARRAY))
    return CUDA_ERROR_INVALID_VALUE;
  if (c.WidthInBytes == 0 || c.Height == 0 || c.Depth == 0) return CUDA_SUCCESS;
  const auto dead = [](CUmemorytype type, CUarray array) {
    return type == CU_MEMORYTYPE_ARRAY && live<Array>(state(), array, Kind::kArray) == nullptr;
  };
  if (dead(c.srcMemoryType, c.srcArray) || dead(c.dstMemoryType, c.dstArray))
    return CUDA_ERROR_INVALID_VALUE;
  resolve_unified(c);
  Side from, to;
  if (CUresult r = make_side(true, c, *context, &from)) return r;
  return make_side(false, c, *context, &to);
}

CUresult run_copy(Context* context, const CopyWork& work) {
  const CUDA_MEMCPY3D& c = work.copy;
  if (c.WidthInBytes == 0 || c.Height == 0 || c.Depth == 0) return CUDA_SUCCESS;
  const MemoryScope scope;
  Side from, to;
  {
    Lock lock(state().mutex);
    CUresult r = make_side(true, c, *context, &from);
    if (r == CUDA_SUCCESS) r = make_side(false, c, *context, &to);
    // The range was good at the call and is gone now: the engine faults, as a GPU's would.
    if (r != CUDA_SUCCESS) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  if (work.staging) {
    from.base = reinterpret_cast<uint64_t>(work.staging->data());
    from.pitch = c.WidthInBytes;
    from.slice = c.WidthInBytes * c.Height;
  }
  state().fabric->transfer(from.place, to.place, c.WidthInBytes * c.Height * c.Depth);
  move_bytes(to, from, c);
  return CUDA_SUCCESS;
}

std::optional<Transfer> engine_transfer(const Context& context, const CopyWork& work) {
  const CUDA_MEMCPY3D& c = work.copy;
  const uint64_t bytes = c.WidthInBytes * c.Height * c.Depth;
  if (state().copy_engines == nullptr || bytes == 0) return std::nullopt;
  Side from, to;
  if (make_side(true, c, context, &from) != CUDA_SUCCESS ||
      make_side(false, c, context, &to) != CUDA_SUCCESS)
    return std::nullopt;
  const bool up = from.place < 0 && to.place >= 0, down = from.place >= 0 && to.place < 0;
  if (!up && !down) return std::nullopt;
  const bool pinned = state().map.find(up ? from.base : to.base).has_value();
  if (up && bytes <= (pinned ? kPinnedWithoutEngine : kPageableWithoutEngine)) return std::nullopt;
  return Transfer{context.device->physical, up, bytes, pinned};
}

void stage_source(CopyWork& work) {
  const CUDA_MEMCPY3D& c = work.copy;
  work.staging = std::make_shared<std::vector<std::byte>>(c.WidthInBytes * c.Height * c.Depth);
  uint64_t pitch = c.srcPitch != 0 ? c.srcPitch : c.srcXInBytes + c.WidthInBytes;
  uint64_t slice = pitch * (c.srcHeight != 0 ? c.srcHeight : c.Height + c.srcY);
  Side from{reinterpret_cast<uint64_t>(c.srcHost) + c.srcZ * slice + c.srcY * pitch + c.srcXInBytes,
            pitch, slice, -1};
  Side to{reinterpret_cast<uint64_t>(work.staging->data()), c.WidthInBytes,
          c.WidthInBytes * c.Height, -1};
  move_bytes(to, from, c);
}

CUresult check_memset(Context* context, const CUDA_MEMSET_NODE_PARAMS& p) {
  if (p.elementSize != 1 && p.elementSize != 2 && p.elementSize != 4)
    return CUDA_ERROR_INVALID_VALUE;
  if (p.dst % p.elementSize != 0) return CUDA_ERROR_INVALID_VALUE;
  if (p.width == 0 || p.height == 0) return CUDA_SUCCESS;
  if (p.width > (1ull << 46) || p.height > (1ull << 31) || p.pitch > (1ull << 46))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t row = p.width * p.elementSize;
  if (p.height > 1 && p.pitch < row) return CUDA_ERROR_INVALID_VALUE;
  uint64_t begin = 0, end = 0, bytes = (p.height - 1) * p.pitch + row;
  bool good = state().map.accessible(p.dst, bytes, true, accessor_of(*context, true), &begin, &end);
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult run_memset(Context* context, const MemsetWork& work) {
  const CUDA_MEMSET_NODE_PARAMS& p = work.params;
  if (p.width == 0 || p.height == 0) return CUDA_SUCCESS;
  const MemoryScope scope;
  if (check_memset(context, p) != CUDA_SUCCESS) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (uint64_t y = 0; y < p.height; ++y) {
    auto* row = reinterpret_cast<std::byte*>(p.dst + y * p.pitch);
    if (p.elementSize == 1) {
      std::memset(row, static_cast<int>(p.value & 0xff), p.width);
      continue;
    }
    for (uint64_t x = 0; x < p.width; ++x)
      std::memcpy(row + x * p.elementSize, &p.value, p.elementSize);
  }
  return CUDA_SUCCESS;
}

}  // namespace tube::sim
