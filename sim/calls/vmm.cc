// Virtual memory management: reservations, physical handles, mappings, access.
//
// A reservation is a PROT_NONE mapping of the host; a handle is a memfd (so it can be exported as a
// POSIX fd and mapped at two addresses); mapping is mmap of one over the other. Access rights are
// kept in the address map and checked there: the host mapping itself is always writable, so that a
// refused access is an error and never a crash. What is unmapped while kernels run becomes
// anonymous memory instead of PROT_NONE, for the same reason.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include "sim/calls/external.h"
#include "sim/machine/heap.h"
#include "sim/machine/state.h"

namespace tube::sim {

// Lives as long as a handle, a mapping or (in another process) an exported fd.
struct Physical {
  int fd = -1;
  uint64_t size = 0;
  CUmemAllocationProp prop{};
  Device* device = nullptr;
  bool imported = false;
  ~Physical() {
    if (fd >= 0) close(fd);
    if (device != nullptr && !imported) unaccount(*device, size);
  }
};

namespace {

struct Vmm {
  std::map<uint64_t, uint64_t> reservations;  // base -> size
  struct Handle {
    std::shared_ptr<Physical> physical;
    unsigned references = 1;
  };
  std::map<CUmemGenericAllocationHandle, Handle> handles;
  CUmemGenericAllocationHandle next_handle = 0x7b00000001;
};

// Guarded by State::mutex; leaked.
Vmm& vmm() {
  static Vmm* v = new Vmm;
  return *v;
}

CUresult check_prop(const CUmemAllocationProp* prop, Device** device) {
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  const auto types = static_cast<unsigned>(prop->requestedHandleTypes);
  if ((types & ~unsigned{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC}) !=
      0)
    return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  *device = device_at(prop->location.id);
  if (*device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return (types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 ? CUDA_ERROR_NOT_PERMITTED
                                                  : CUDA_SUCCESS;  // this user has no IMEX channel
}

int create_file(int device, uint64_t size) {
  char name[32];
  std::snprintf(name, sizeof name, "tube-sim-%d", device);
  int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0 && errno == EMFILE && raise_fd_limit()) fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(size)) == 0) return fd;
  close(fd);
  return -1;
}

// The device ordinal in the memfd's name, -1 when the fd is not one of ours.
int device_of_file(int fd) {
  char path[64], target[128];
  std::snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
  ssize_t n = readlink(path, target, sizeof target - 1);
  if (n <= 0) return -1;
  target[n] = '\0';
  int device = -1;
  return std::sscanf(target, "/memfd:tube-sim-%d", &device) == 1 ? device : -1;
}

bool inside_reservation(uint64_t address, uint64_t size) {
  uint64_t base = 0, length = 0;
  return reservation_of(address, &base, &length) && size <= base + length - address;
}

CUmemGenericAllocationHandle add_handle(std::shared_ptr<Physical> physical) {
  CUmemGenericAllocationHandle handle = vmm().next_handle++;
  vmm().handles[handle].physical = std::move(physical);
  return handle;
}

// [ptr, ptr+size) must be covered by whole mappings.
CUresult covered(State& s, uint64_t ptr, uint64_t size, bool whole, std::vector<Range>* out) {
  uint64_t at = ptr;
  *out = s.map.intersecting(ptr, size);
  for (const Range& r : *out) {
    if (r.kind != RangeKind::kMapped || r.base > at) return CUDA_ERROR_INVALID_VALUE;
    if (whole && (r.base < ptr || r.end() > ptr + size)) return CUDA_ERROR_INVALID_VALUE;
    at = r.end();
  }
  return at >= ptr + size && !out->empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool aligned(uint64_t n) { return n % kGranularity == 0; }

}  // namespace

bool duplicate_exported(int fd, int* duplicate, uint64_t* bytes, Device** device) {
  struct stat st;
  *device = device_at(device_of_file(fd));
  if (*device == nullptr || fstat(fd, &st) != 0) return false;
  *bytes = static_cast<uint64_t>(st.st_size);
  *duplicate = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  return *duplicate >= 0;
}

bool reservation_of(uint64_t address, uint64_t* base, uint64_t* size) {
  auto& all = vmm().reservations;
  auto it = all.upper_bound(address);
  if (it == all.begin()) return false;
  --it;
  *base = it->first;
  *size = it->second;
  return address < it->first + it->second;
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                               CUmemAllocationGranularity_flags option) {
  SIM_ENTER(kInit);
  // Any location will do, even one that cuMemCreate then refuses.
  if (granularity == nullptr || prop == nullptr || option < 0 ||
      option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
    return CUDA_ERROR_INVALID_VALUE;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment,
                                     CUdeviceptr addr, unsigned long long flags) {
  SIM_ENTER(kInit);
  if (ptr == nullptr || size == 0 || !aligned(size) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t align = std::max<uint64_t>(alignment, kGranularity);
  int map_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  uint64_t base = 0;
  if (addr != 0 && addr % align == 0) {
    void* p = mmap(reinterpret_cast<void*>(addr), size, PROT_NONE, map_flags | MAP_FIXED_NOREPLACE,
                   -1, 0);
    if (p == reinterpret_cast<void*>(addr)) base = addr;
    else if (p != MAP_FAILED) munmap(p, size);
  }
  if (base == 0) {
    if (size > UINT64_MAX / 2 - align) return CUDA_ERROR_OUT_OF_MEMORY;
    void* p = mmap(nullptr, size + align, PROT_NONE, map_flags, -1, 0);
    if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t start = reinterpret_cast<uint64_t>(p);
    base = (start + align - 1) / align * align;
    if (base > start) munmap(p, base - start);
    munmap(reinterpret_cast<void*>(base + size), start + align - base);
  }
  Lock lock(state().mutex);
  vmm().reservations[base] = size;
  *ptr = base;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  auto it = vmm().reservations.find(ptr);
  if (it == vmm().reservations.end() || it->second != size) return CUDA_ERROR_INVALID_VALUE;
  if (!s.map.intersecting(ptr, size).empty())
    return CUDA_ERROR_INVALID_VALUE;  // something is still mapped
  vmm().reservations.erase(it);
  // Kernels that run now may hold stale pointers; then the pages stay until the process ends.
  if (!memory_in_use(lock)) munmap(reinterpret_cast<void*>(ptr), size);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                             const CUmemAllocationProp* prop, unsigned long long flags) {
  SIM_ENTER(kInit);
  Device* device = nullptr;
  if (handle == nullptr || size == 0 || !aligned(size) || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check_prop(prop, &device)) return r;
  Lock lock(state().mutex);
  if (!account(*device, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto physical = std::make_shared<Physical>();
  physical->device = device;
  physical->size = size;
  physical->prop = *prop;
  physical->fd = create_file(device->ordinal, size);
  if (physical->fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = add_handle(std::move(physical));
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  SIM_ENTER(kInit);
  Lock lock(state().mutex);
  auto it = vmm().handles.find(handle);
  if (it == vmm().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--it->second.references == 0) vmm().handles.erase(it);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
  SIM_ENTER(kInit);
  if (size == 0 || !aligned(ptr) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  auto it = vmm().handles.find(handle);
  if (it == vmm().handles.end() || !inside_reservation(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
  if (offset != 0 || size != it->second.physical->size)
    return CUDA_ERROR_NOT_SUPPORTED;  // the whole of it, or nothing
  if (!s.map.intersecting(ptr, size).empty()) return CUDA_ERROR_INVALID_VALUE;
  auto& physical = it->second.physical;
  void* p = mmap(reinterpret_cast<void*>(ptr), size, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED | MAP_NORESERVE, physical->fd, 0);
  if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.base = ptr;
  range.size = range.requested = size;
  range.kind = RangeKind::kMapped;
  range.device = physical->device->ordinal;
  range.id = s.new_id();
  range.physical = physical;
  s.map.insert(std::move(range));
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  std::vector<Range> ranges;
  if (size == 0 || !inside_reservation(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
  // Holes are fine, a part of a mapping is not.
  ranges = s.map.intersecting(ptr, size);
  for (const Range& r : ranges)
    if (r.base < ptr || r.end() > ptr + size) return CUDA_ERROR_INVALID_VALUE;
  for (const Range& r : ranges) s.map.remove(r.base);
  int protection = memory_in_use(lock) ? PROT_READ | PROT_WRITE : PROT_NONE;
  const void* at = mmap(reinterpret_cast<void*>(ptr), size, protection,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

SIM_API CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                                size_t count) {
  SIM_ENTER(kInit);
  if (desc == nullptr || count == 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
    if (desc[i].location.type == CU_MEM_LOCATION_TYPE_HOST) continue;
    if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (device_at(desc[i].location.id) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  State& s = state();
  Lock lock(s.mutex);
  std::vector<Range> ranges;
  if (CUresult r = covered(s, ptr, size, true, &ranges)) return r;
  for (const Range& range : ranges) {
    s.map.update(range.base, [desc, count](Range& r) {
      for (size_t i = 0; i < count; ++i) {
        bool read = desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE,
             write = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (desc[i].location.type == CU_MEM_LOCATION_TYPE_HOST) {
          r.host_access = read;
          continue;
        }
        uint64_t bit = 1ull << desc[i].location.id;
        r.readable = read ? r.readable | bit : r.readable & ~bit;
        r.writable = write ? r.writable | bit : r.writable & ~bit;
      }
    });
  }
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                CUdeviceptr ptr) {
  SIM_ENTER(kInit);
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto range = state().map.find(ptr);
  if (!range || range->kind != RangeKind::kMapped || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  if (device_at(location->id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  uint64_t bit = 1ull << location->id;
  *flags = (range->writable & bit) != 0   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : (range->readable & bit) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                          : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemExportToShareableHandle(void* shareableHandle,
                                              CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType handleType,
                                              unsigned long long flags) {
  SIM_ENTER(kInit);
  if (shareableHandle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(state().mutex);
  auto it = vmm().handles.find(handle);
  if (it == vmm().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  if (it->second.physical->prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  int fd = fcntl(it->second.physical->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0 && errno == EMFILE && raise_fd_limit())
    fd = fcntl(it->second.physical->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(shareableHandle) = fd;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                void* osHandle,
                                                CUmemAllocationHandleType shHandleType) {
  SIM_ENTER(kInit);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (shHandleType == CU_MEM_HANDLE_TYPE_FABRIC)
    return CUDA_ERROR_NOT_SUPPORTED;  // this user has no IMEX channel
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || osHandle == nullptr)
    return CUDA_ERROR_INVALID_VALUE;  // descriptor 0, too
  int fd = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
  Device* device = device_at(device_of_file(fd));
  struct stat st;
  if (device == nullptr || fstat(fd, &st) != 0) return CUDA_ERROR_UNKNOWN;
  auto physical = std::make_shared<Physical>();
  physical->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (physical->fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  physical->size = static_cast<uint64_t>(st.st_size);
  physical->device = device;
  physical->imported = true;
  physical->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  physical->prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal};
  Lock lock(state().mutex);
  *handle = add_handle(std::move(physical));
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                        CUmemGenericAllocationHandle handle) {
  SIM_ENTER(kInit);
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(state().mutex);
  auto it = vmm().handles.find(handle);
  if (it == vmm().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  *prop = it->second.physical->prop;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  SIM_ENTER(kInit);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  auto range = s.map.find(reinterpret_cast<uint64_t>(addr));
  if (!range || range->kind != RangeKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  for (auto& [h, entry] : vmm().handles) {
    if (entry.physical != range->physical) continue;
    ++entry.references;
    *handle = h;
    return CUDA_SUCCESS;
  }
  *handle = add_handle(range->physical);  // every handle was released; the mapping kept the memory
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size,
                                               CUmemRangeHandleType type, unsigned long long) {
  SIM_ENTER(kContext);
  if (handle == nullptr || dptr == 0 || size == 0 || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_SUPPORTED;  // dma-buf
}
