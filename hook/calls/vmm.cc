// Virtual memory management: reservations, handles, mappings. Every call is a round trip (they come
// at start-up and when a framework grows). The proxy places reservations inside the device window,
// so addresses mean the same everywhere.
//
// A handle is only given back to the proxy when the program has released it and nothing is mapped
// from it any more: natively the mapping keeps the memory too, and cuMemRetainAllocationHandle must
// be able to name it again.
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <map>
#include <new>
#include <vector>

#include "hook/memory/allocator.h"
#include "hook/memory/copy.h"
#include "hook/memory/memory_map.h"
#include "hook/memory/reservations.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

struct MemHandle {
  Slot* slot = nullptr;
  uint64_t id = 0;
  int32_t references = 0;  // under vmm().lock, like the next
  int32_t mappings = 0;
  int32_t device =
      -1;  // whose memory it is (the proxy's ordinal); -1: not a GPU's, or made by another
};

struct Mapped {
  uint64_t size_bytes;
  MemHandle* handle;
};

struct Vmm {
  Lock changing;  // rank 0: held while the proxy is asked for something that does not stand behind
                  // other work, so that what is entered here comes in the order in which the driver
                  // did it
  Lock lock;      // rank 3: all below
  std::map<uint64_t, Mapped> by_address;
  std::map<uint64_t, uint64_t> reservations;  // base -> bytes
};
Vmm& vmm() {
  static Vmm* v = new Vmm;
  return *v;
}

MemHandle* find_handle(CUmemGenericAllocationHandle handle) {
  Slot* slot = objects().find(Kind::kMemHandle, reinterpret_cast<const void*>(handle));
  return slot == nullptr ? nullptr : static_cast<MemHandle*>(slot->object);
}

// Mappings belong to no context, but the GPU's primary one says whose memory it is. What another
// process made counts as the current GPU's.
Context* context_of(const MemHandle& h) {
  const Process& p = process();
  for (uint32_t i = 0; i < p.device_count; ++i) {
    if (h.device >= 0 && p.devices[i] == static_cast<uint32_t>(h.device)) return p.primaries[i];
  }
  const Context* current = current_context();
  return p.primaries[current == nullptr ? 0 : current->visible_device];
}

CUmemGenericAllocationHandle value_of(const MemHandle* h) {
  return reinterpret_cast<CUmemGenericAllocationHandle>(objects().handle_of(h->slot));
}

MemHandle* allocate_handle() {
  Slot* slot = objects().allocate(Kind::kMemHandle);
  if (slot == nullptr) return nullptr;
  auto* h = static_cast<MemHandle*>(slot->object);
  if (h == nullptr) h = new (std::nothrow) MemHandle;
  if (h == nullptr) return nullptr;
  slot->object = h;
  *h = MemHandle{slot, slot->id, 1, 0, -1};
  objects().publish(slot);
  return h;
}

CUresult give_back(MemHandle* h) {
  const uint64_t id = h->id;
  Retired gone(objects());
  gone.add(h->slot);
  Request<wire::cuMemRelease> r;
  r->handle = id;
  return r.post();
}

// Device ordinals inside CU structs: ours to the proxy's.
CUresult translate(CUmemLocation* location) {
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_SUCCESS;
  int32_t number = 0;
  const CUresult r = device_number(location->id, &number);
  location->id = number;
  return r;
}

void translate_back(CUmemLocation* location) {
  const Process& p = process();
  for (uint32_t i = 0; i < p.device_count; ++i) {
    if (p.devices[i] == static_cast<uint32_t>(location->id)) {
      location->id = static_cast<int>(i);
      return;
    }
  }
}

// Remembers what the driver has granted, so that operations on mapped memory can be posted
// (Allocation::own_device); while it is asked, that is nothing. A partial grant counts as none: the
// driver may have done a part of what it refused.
void note_access(uint64_t begin, uint64_t bytes, const CUmemAccessDesc* desc, size_t count,
                 bool granted) {
  Locked locked(vmm().lock);
  const auto& map = vmm().by_address;
  auto it = map.upper_bound(begin);
  if (it != map.begin() && begin - std::prev(it)->first < std::prev(it)->second.size_bytes) --it;
  for (; it != map.end() && (it->first < begin || it->first - begin < bytes); ++it) {
    const int32_t device = it->second.handle->device;
    const bool whole = it->first >= begin && it->second.size_bytes <= bytes - (it->first - begin);
    bool named = false, open = granted && whole;
    for (size_t i = 0; i < count; ++i) {
      if (device < 0 || desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
          desc[i].location.id != device)
        continue;
      named = true;
      open = open && desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    if (named) memory_map().set_own_device(it->first, open ? device : -1);
  }
}

struct Taken {
  uint64_t address;
  Mapped mapped;
  Allocation known;
};

std::vector<Taken> take_mappings(uint64_t begin, uint64_t bytes) {
  std::vector<Taken> taken;
  Locked locked(vmm().lock);
  auto& map = vmm().by_address;
  for (auto it = map.lower_bound(begin); it != map.end() && it->first - begin < bytes;) {
    Taken mapping{it->first, it->second, {}};
    memory_map().remove(it->first, MemoryKind::kMapped, &mapping.known);
    taken.push_back(mapping);
    it = map.erase(it);
  }
  return taken;
}

void put_back(const Taken& mapping) {
  Locked locked(vmm().lock);
  vmm().by_address[mapping.address] = mapping.mapped;
  memory_map().insert(mapping.known);
}

void end_mapping(MemHandle* h) {
  {
    Locked locked(vmm().lock);
    if (--h->mappings != 0 || h->references != 0) return;
  }
  (void)give_back(h);
}

}  // namespace

bool reservation_of(uint64_t address, uint64_t* base, uint64_t* bytes) {
  Locked locked(vmm().lock);
  auto it = vmm().reservations.upper_bound(address);
  if (it == vmm().reservations.begin()) return false;
  --it;
  if (address - it->first >= it->second) return false;
  *base = it->first;
  *bytes = it->second;
  return true;
}

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  if (ptr == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  wire::cuMemAddressReserve_reply reply{};
  Locked in_turn(vmm().changing);
  Request<wire::cuMemAddressReserve> r;
  r->size = size;
  r->alignment = alignment;
  r->addr = addr;
  r->flags = flags;
  const CUresult result = r.call(&reply);
  if (result != CUDA_SUCCESS) return result;
  *ptr = reply.ptr;
  Locked locked(vmm().lock);
  vmm().reservations[reply.ptr] = size;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  CUresult result;
  Locked in_turn(vmm().changing);
  {
    Request<wire::cuMemAddressFree> r;
    r->ptr = ptr;
    r->size = size;
    result = r.call();
  }
  if (result != CUDA_SUCCESS) return result;
  Locked locked(vmm().lock);
  vmm().reservations.erase(ptr);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  if (handle == nullptr || prop == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp sent = *prop;
  if (const CUresult r = translate(&sent.location); r != CUDA_SUCCESS) return r;
  MemHandle* h = allocate_handle();
  if (h == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = ask_for_gpu_memory([&] {
    Request<wire::cuMemCreate> r;
    r->handle = h->id;
    r->size = size;
    std::memcpy(r->prop, &sent, sizeof sent);
    r->flags = flags;
    return r.call();
  });
  if (result != CUDA_SUCCESS) {
    objects().remove(h->slot);
    return result;
  }
  if (sent.location.type == CU_MEM_LOCATION_TYPE_DEVICE) h->device = sent.location.id;
  *handle = value_of(h);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  MemHandle* h = find_handle(handle);
  if (h == nullptr) return CUDA_ERROR_INVALID_VALUE;
  {
    Locked locked(vmm().lock);
    if (h->references <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (--h->references != 0 || h->mappings != 0) return CUDA_SUCCESS;
  }
  return give_back(h);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  MemHandle* h = find_handle(handle);
  if (h == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result;
  Locked in_turn(vmm().changing);
  {
    Request<wire::cuMemMap> r;
    r->ptr = ptr;
    r->size = size;
    r->offset = offset;
    r->handle = h->id;
    r->flags = flags;
    result = r.call();
  }
  if (result != CUDA_SUCCESS) return result;
  Locked locked(vmm().lock);
  vmm().by_address[ptr] = Mapped{size, h};
  ++h->mappings;
  memory_map().insert({ptr, size, next_unique(), context_of(*h), MemoryKind::kMapped, 0});
  return CUDA_SUCCESS;
}

// The answer may stand behind copies that wait for what another thread does, mapping other memory
// for instance: nobody else waits for this call. What it unmaps leaves the map first, so that what
// is mapped there next comes later here, too.
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  const std::vector<Taken> taken = take_mappings(ptr, size);
  CUresult result;
  {
    Request<wire::cuMemUnmap> r;
    r->ptr = ptr;
    r->size = size;
    result = r.call();
  }
  for (const Taken& mapping : taken) {
    if (result != CUDA_SUCCESS) put_back(mapping);
    else end_mapping(mapping.mapped.handle);
  }
  return result;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  constexpr size_t kMaxAccess = 64;
  if (desc == nullptr || count == 0 || count > kMaxAccess) return CUDA_ERROR_INVALID_VALUE;
  CUmemAccessDesc sent[kMaxAccess];
  for (size_t i = 0; i < count; ++i) {
    sent[i] = desc[i];
    if (translate(&sent[i].location) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  }
  const auto bytes = static_cast<uint32_t>(count * sizeof sent[0]);
  note_access(ptr, size, sent, count, false);
  CUresult result;
  {
    Request<wire::cuMemSetAccess> r(blob_room(bytes));
    r->ptr = ptr;
    r->size = size;
    r->count = count;
    r.put(&wire::cuMemSetAccess::desc, sent, bytes);
    result = r.call();
  }
  if (result == CUDA_SUCCESS) note_access(ptr, size, sent, count, true);
  return result;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUmemLocation sent = *location;
  if (const CUresult r = translate(&sent); r != CUDA_SUCCESS) return r;
  wire::cuMemGetAccess_reply reply{};
  Request<wire::cuMemGetAccess> r;
  std::memcpy(r->location, &sent, sizeof sent);
  r->ptr = ptr;
  const CUresult result = r.call(&reply);
  if (result == CUDA_SUCCESS) *flags = reply.flags;
  return result;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  MemHandle* h = find_handle(handle);
  if (prop == nullptr || h == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::cuMemGetAllocationPropertiesFromHandle_reply reply{};
  Request<wire::cuMemGetAllocationPropertiesFromHandle> r;
  r->handle = h->id;
  const CUresult result = r.call(&reply);
  if (result != CUDA_SUCCESS) return result;
  std::memcpy(prop, reply.prop, sizeof *prop);
  translate_back(&prop->location);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto address = reinterpret_cast<uint64_t>(addr);
  Locked locked(vmm().lock);
  auto it = vmm().by_address.upper_bound(address);
  if (it == vmm().by_address.begin()) return CUDA_ERROR_INVALID_VALUE;
  --it;
  if (address - it->first >= it->second.size_bytes) return CUDA_ERROR_INVALID_VALUE;
  ++it->second.handle->references;
  *handle = value_of(it->second.handle);
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags) {
  MemHandle* h = find_handle(handle);
  if (shareableHandle == nullptr || h == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  note_memory_shared();
  wire::tubeExportHandle_reply reply{};
  CUresult result;
  {
    Request<wire::tubeExportHandle> r;
    r->handle = h->id;
    result = r.call(&reply);
  }
  return result == CUDA_SUCCESS
             ? hand_over_file(reply.token, "an exported memory handle", shareableHandle)
             : result;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (shHandleType == CU_MEM_HANDLE_TYPE_FABRIC)
    return CUDA_ERROR_NOT_SUPPORTED;  // as where the user has no IMEX channel
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  if (osHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;  // descriptor 0, too
  note_memory_shared();
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
  MemHandle* h = allocate_handle();
  if (h == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::tubeImportHandle_reply reply{};
  CUresult result;
  {
    Request<wire::tubeImportHandle> r;
    r->handle = h->id;
    r.send_file(fd, &r->token, CUDA_ERROR_UNKNOWN);
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) {
    objects().remove(h->slot);
    return result;
  }
  *handle = value_of(h);
  return CUDA_SUCCESS;
}

}  // namespace tube::hook
