// IPC: handles of memory and events that other processes open, and the other way round.
//
// The proxy does the work; this process keeps what it opened in its memory map, so that copies and
// pointer queries know it. Every call is a round trip: the other process hears of a handle outside
// our rings, so what it stands for must be there when the call returns.
#include <cstring>

#include "hook/memory/copy.h"
#include "hook/memory/memory_calls.h"
#include "hook/memory/memory_map.h"
#include "hook/memory/slab_leases.h"
#include "hook/objects/peers.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

// The context of this program that memory on the proxy's `device` counts for. nullptr: the program
// does not see the device.
Context* context_on(uint32_t device) {
  Context* current = current_context();
  if (current->device == device) return current;
  const Process& p = process();
  for (uint32_t i = 0; i < p.device_count; ++i) {
    if (p.devices[i] == device) return p.primaries[i];
  }
  return nullptr;
}

CUresult close_memory(uint64_t address, uint32_t* left) {
  wire::tubeIpcCloseMem_reply reply{};
  Request<wire::tubeIpcCloseMem> r;
  r->dptr = address;
  const CUresult result = r.call(&reply);
  *left = reply.left;
  return result;
}

}  // namespace

Lock& opening_memory() {
  static constinit Lock lock;
  return lock;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  Allocation a;
  if (pHandle == nullptr || !memory_map().find(dptr, &a) || a.kind != MemoryKind::kDevice ||
      a.flags == kFromPool)
    return CUDA_ERROR_INVALID_VALUE;
  if (!memory_map().forget_offer(a.base)) return CUDA_ERROR_INVALID_VALUE;
  end_lease_of(a.base);
  note_memory_shared();
  wire::tubeIpcGetMem_reply reply{};
  Request<wire::tubeIpcGetMem> r;
  r->dptr = a.base;  // a handle is about the whole allocation
  const CUresult result = r.call(&reply);
  static_assert(sizeof(*pHandle) == sizeof(reply.handle));
  if (result == CUDA_SUCCESS) std::memcpy(pHandle, reply.handle, sizeof reply.handle);
  return result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  // The driver wants this bit and takes no notice of others (H200, 13.0).
  if (pdptr == nullptr || (Flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  note_memory_shared();
  Locked in_turn(opening_memory());
  wire::tubeIpcOpenMem_reply reply{};
  CUresult result;
  {
    Request<wire::tubeIpcOpenMem> r;
    r.in_context(making_context());
    r->flags = Flags;
    std::memcpy(r->handle, &handle, sizeof handle);
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return result;
  if (context_on(reply.device) == nullptr) {
    uint32_t left = 0;
    (void)close_memory(reply.dptr, &left);
    return CUDA_ERROR_INVALID_DEVICE;
  }
  if (const Context* owner = context_on(reply.device); owner->device != current_context()->device)
    let_reach(current_context(), owner);
  Allocation known;
  if (!memory_map().find(reply.dptr, &known) || known.kind != MemoryKind::kOpened) {
    // It belongs to the context that opened it, also when the memory is another GPU's (two H200s).
    memory_map().insert(
        {reply.dptr, reply.bytes, next_unique(), making_context(), MemoryKind::kOpened, 0});
  }
  *pdptr = reply.dptr;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  Allocation a;
  if (!memory_map().find(dptr, &a) || a.kind != MemoryKind::kOpened || a.base != dptr)
    return CUDA_ERROR_INVALID_VALUE;
  // Its owner may free it as soon as this returns.
  const CUresult finished = sync_owner(a.context);
  Locked in_turn(opening_memory());
  uint32_t left = 0;
  const CUresult result = close_memory(dptr, &left);
  if (result == CUDA_SUCCESS && left == 0) memory_map().remove(dptr, MemoryKind::kOpened, &a);
  return finished != CUDA_SUCCESS ? finished : result;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent hEvent) {
  if (pHandle == nullptr || hEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = guard(Needs::kHandle); r != CUDA_SUCCESS) return r;
  const Event* event = find_event(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pHandle = {};
  wire::tubeIpcGetEvent_reply reply{};
  Request<wire::tubeIpcGetEvent> r;
  r.in_context(event->context);
  r->event = event->id;
  const CUresult result = r.call(&reply);
  static_assert(sizeof(*pHandle) == sizeof(reply.handle));
  if (result == CUDA_SUCCESS) std::memcpy(pHandle, reply.handle, sizeof reply.handle);
  return result;
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Event* event = allocate_event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result;
  {
    Request<wire::tubeIpcOpenEvent> r;
    r.in_context(event->context);
    r->event = event->id;
    std::memcpy(r->handle, &handle, sizeof handle);
    result = r.call();
  }
  objects().publish(event->slot);
  if (result != CUDA_SUCCESS) {
    objects().remove(event->slot);
    return result;
  }
  *phEvent = static_cast<CUevent>(objects().handle_of(event->slot));
  return CUDA_SUCCESS;
}

}  // namespace tube::hook
