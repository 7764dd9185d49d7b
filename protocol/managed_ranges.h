// What the driver remembers about managed memory besides its bytes: advice and the last prefetch,
// for every part of an allocation. Pure bookkeeping, the same in the hook (whose managed memory is
// pinned memory and never moves) and in the simulated GPU.
//
// A part is a whole number of pages; advice for a range splits what was known before. The caller
// serialises, and has checked that the range lies in one managed allocation. Codes are
// cuMemAdvise's and cuMemPrefetchAsync's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>

#include "base/cuda_api.h"

namespace tube::managed {

struct State {
  bool read_mostly = false;
  CUmemLocation preferred{CU_MEM_LOCATION_TYPE_INVALID, 0};
  CUmemLocation prefetched{CU_MEM_LOCATION_TYPE_INVALID, 0};
  uint64_t accessed_by = 0;  // bit per device
  bool accessed_by_host = false;
};

inline bool same(const CUmemLocation& a, const CUmemLocation& b) {
  return a.type == b.type && (a.type != CU_MEM_LOCATION_TYPE_DEVICE || a.id == b.id);
}

inline bool host_side(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

// The first versions of the calls name a device, or CU_DEVICE_CPU.
inline CUmemLocation location_of(CUdevice device) {
  return device == CU_DEVICE_CPU ? CUmemLocation{CU_MEM_LOCATION_TYPE_HOST, 0}
                                 : CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, device};
}

inline CUresult check_location(const CUmemLocation& location, uint32_t devices) {
  if (host_side(location)) return CUDA_SUCCESS;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  return location.id >= 0 && static_cast<uint32_t>(location.id) < devices
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_DEVICE;
}

// The operations at which the groups of a batch begin: 0 first, growing (prefetches may repeat
// one), below `count`.
enum class Repeats : uint32_t { kRefused, kAllowed };
inline bool good_starts(const size_t* starts, size_t number, size_t count, Repeats repeats) {
  if (number == 0 || number > count || starts == nullptr || starts[0] != 0) return false;
  for (size_t i = 1; i < number; ++i) {
    if (starts[i] < starts[i - 1] || starts[i] >= count) return false;
    if (starts[i] == starts[i - 1] && repeats == Repeats::kRefused) return false;
  }
  return true;
}

class Ranges {
 public:
  void add(uint64_t base, uint64_t bytes) { parts_[base] = Part{base + bytes, State{}}; }
  void remove(uint64_t base, uint64_t bytes) {
    parts_.erase(parts_.lower_bound(base), parts_.lower_bound(base + bytes));
  }

  // `no_device`: the code for a device that is none, which differs between the versions of the
  // call.
  CUresult advise(uint64_t begin, uint64_t bytes, CUmem_advise advice,
                  const CUmemLocation& location, uint32_t devices, CUresult no_device) {
    const bool placed = advice != CU_MEM_ADVISE_SET_READ_MOSTLY &&
                        advice != CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
                        advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
      return CUDA_ERROR_INVALID_VALUE;
    if (placed) {
      if (const CUresult r = check_location(location, devices); r != CUDA_SUCCESS)
        return r == CUDA_ERROR_INVALID_DEVICE ? no_device : r;
    }
    change(begin, bytes, [&](State& s) { apply(s, advice, location); });
    return CUDA_SUCCESS;
  }

  CUresult prefetch(uint64_t begin, uint64_t bytes, const CUmemLocation& location,
                    uint32_t devices) {
    if (const CUresult r = check_location(location, devices); r != CUDA_SUCCESS) return r;
    change(begin, bytes, [&](State& s) { s.prefetched = location; });
    return CUDA_SUCCESS;
  }

  // cuMemRangeGetAttribute. The result for a range is what all of its parts agree on.
  CUresult attribute(void* data, size_t size, CUmem_range_attribute attribute, uint64_t begin,
                     uint64_t bytes) const {
    if (data == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
    const State common = agreed(begin, bytes);
    if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY)
      return accessed_by(static_cast<int32_t*>(data), size, common);
    int32_t value = 0;
    switch (attribute) {
      case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: value = common.read_mostly; break;
      case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION: value = device_of(common.preferred); break;
      case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        value = device_of(common.prefetched);
        break;
      case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE: value = common.preferred.type; break;
      case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID: value = common.preferred.id; break;
      case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        value = common.prefetched.type;
        break;
      case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID: value = common.prefetched.id; break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
    if (size != sizeof value) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
  }

 private:
  struct Part {
    uint64_t end = 0;
    State state;
  };

  static int32_t device_of(const CUmemLocation& l) {
    if (l.type == CU_MEM_LOCATION_TYPE_DEVICE) return l.id;
    return host_side(l) ? CU_DEVICE_CPU : CU_DEVICE_INVALID;
  }

  static void apply(State& s, CUmem_advise advice, const CUmemLocation& location) {
    const uint64_t bit =
        location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 && location.id < 64
            ? uint64_t{1} << location.id
            : 0;
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY: s.read_mostly = true; break;
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY: s.read_mostly = false; break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION: s.preferred = location; break;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        s.preferred = {CU_MEM_LOCATION_TYPE_INVALID, 0};
        break;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
        s.accessed_by |= bit;
        s.accessed_by_host = s.accessed_by_host || bit == 0;
        break;
      case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        s.accessed_by &= ~bit;
        s.accessed_by_host = s.accessed_by_host && bit != 0;
        break;
    }
  }

  static CUresult accessed_by(int32_t* devices, size_t size, const State& common) {
    if (size % sizeof(int32_t) != 0) return CUDA_ERROR_INVALID_VALUE;
    const size_t room = size / sizeof(int32_t);
    size_t used = 0;
    for (int32_t device = 0; device < 64 && used < room; ++device) {
      if ((common.accessed_by >> device & 1) != 0) devices[used++] = device;
    }
    if (common.accessed_by_host && used < room) devices[used++] = CU_DEVICE_CPU;
    while (used < room) devices[used++] = CU_DEVICE_INVALID;
    return CUDA_SUCCESS;
  }

  // A part boundary at `address`, if a part holds it.
  void split(uint64_t address) {
    auto it = parts_.upper_bound(address);
    if (it == parts_.begin()) return;
    --it;
    if (it->first == address || address >= it->second.end) return;
    parts_[address] = it->second;
    it->second.end = address;
  }

  template <class F>
  void change(uint64_t begin, uint64_t bytes, F f) {
    const uint64_t first = begin & ~uint64_t{4095}, last = (begin + bytes + 4095) & ~uint64_t{4095};
    split(first);
    split(last);
    for (auto it = parts_.lower_bound(first); it != parts_.end() && it->first < last; ++it)
      f(it->second.state);
  }

  State agreed(uint64_t begin, uint64_t bytes) const {
    auto it = parts_.upper_bound(begin);
    if (it != parts_.begin()) --it;
    State common;
    if (it == parts_.end()) return common;
    common = it->second.state;
    for (++it; it != parts_.end() && it->first < begin + bytes; ++it) {
      const State& s = it->second.state;
      common.read_mostly = common.read_mostly && s.read_mostly;
      if (!same(common.preferred, s.preferred))
        common.preferred = {CU_MEM_LOCATION_TYPE_INVALID, 0};
      if (!same(common.prefetched, s.prefetched))
        common.prefetched = {CU_MEM_LOCATION_TYPE_INVALID, 0};
      common.accessed_by &= s.accessed_by;
      common.accessed_by_host = common.accessed_by_host && s.accessed_by_host;
    }
    return common;
  }

  std::map<uint64_t, Part> parts_;  // begin -> part; allocations do not touch
};

}  // namespace tube::managed
