// Memory and semaphores that another API made (Vulkan, or cuMemExportToShareableHandle): the
// descriptor goes to the proxy and its driver imports it. Everything here waits for the answer:
// imports are rare, and a semaphore's operation is as good as the semaphore.
//
// A mapped buffer lies where the driver put it, like a graph's memory (docs/limits.md). Any thread,
// with a current context.
#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "hook/memory/copy.h"
#include "hook/memory/memory_calls.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

constexpr unsigned kMostSemaphores = 256;  // in one call

template <class Desc>
bool reserved_is_zero(const Desc& desc) {
  for (const unsigned int word : desc.reserved) {
    if (word != 0) return false;
  }
  return true;
}

// Imports a descriptor: `fill(request, id)` says the rest. The driver owns it afterwards, so this
// process's number for it goes.
template <class X, class Fill>
CUresult bring_in(Kind kind, int fd, void** handle, Fill fill) {
  if (fcntl(fd, F_GETFD) < 0) return CUDA_ERROR_UNKNOWN;
  note_memory_shared();
  void* made = nullptr;
  const uint64_t id = new_id(kind, &made);
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result;
  {
    Request<X> r;
    r.in_context(making_context());
    fill(r, id);
    r.send_file(fd, &r->token, CUDA_ERROR_UNKNOWN);
    result = r.call();
  }
  if (result != CUDA_SUCCESS) {
    drop(kind, id);
    // The driver keeps a descriptor that turns out to be no memory (H200, 13.0).
    if (kind == Kind::kExternalMemory && result == CUDA_ERROR_UNKNOWN) close(fd);
    return result;
  }
  close(fd);
  *handle = made;
  return CUDA_SUCCESS;
}

CUresult destroy(Kind kind, const void* handle) {
  const Slot* slot = objects().find(kind, handle);
  if (slot == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t id = slot->id;
  const CUresult finished = sync_owner(current_context());
  CUresult result;
  {
    Request<wire::tubeDestroyExternal> r;
    r->object = id;
    r->semaphore = kind == Kind::kExternalSemaphore ? 1 : 0;
    result = r.call();
  }
  if (result != CUDA_SUCCESS) return result;
  drop(kind, id);
  return finished;
}

template <class Params>
CUresult semaphores(const CUexternalSemaphore* list, const Params* params, unsigned count,
                    CUstream handle, bool wait) {
  if (list == nullptr || params == nullptr || count == 0 || count > kMostSemaphores)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(handle, &error);
  if (stream == nullptr) return error;
  std::array<uint64_t, kMostSemaphores> ids;
  for (unsigned i = 0; i < count; ++i) {
    const Slot* slot = objects().find(Kind::kExternalSemaphore, list[i]);
    if (slot == nullptr) return CUDA_ERROR_INVALID_VALUE;
    ids[i] = slot->id;
  }
  const auto id_bytes = static_cast<uint32_t>(count * sizeof ids[0]),
             param_bytes = static_cast<uint32_t>(count * sizeof *params);
  Request<wire::tubeExternalSemaphores> r(stream, blob_room(id_bytes) + blob_room(param_bytes));
  r->stream = stream->id;
  r->wait = wait ? 1 : 0;
  r.put(&wire::tubeExternalSemaphores::semaphores, ids.data(), id_bytes);
  r.put(&wire::tubeExternalSemaphores::params, params, param_bytes);
  return r.call();
}

}  // namespace

CUresult cuImportExternalMemory(CUexternalMemory* extMem_out,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* memHandleDesc) {
  if (extMem_out == nullptr || memHandleDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_EXTERNAL_MEMORY_HANDLE_DESC& desc = *memHandleDesc;
  const bool fd = desc.type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD ||
                  desc.type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD;
  if (!fd || desc.size == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((desc.flags & ~unsigned{CUDA_EXTERNAL_MEMORY_DEDICATED}) != 0 || !reserved_is_zero(desc))
    return CUDA_ERROR_INVALID_VALUE;
  return bring_in<wire::tubeImportExternalMemory>(
      Kind::kExternalMemory, desc.handle.fd, reinterpret_cast<void**>(extMem_out),
      [&](Request<wire::tubeImportExternalMemory>& r, uint64_t id) {
        r->memory = id;
        r->type = static_cast<uint32_t>(desc.type);
        r->flags = desc.flags;
        r->size = desc.size;
      });
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr* devPtr, CUexternalMemory extMem,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* bufferDesc) {
  const Slot* memory = objects().find(Kind::kExternalMemory, extMem);
  if (devPtr == nullptr || memory == nullptr || bufferDesc == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (bufferDesc->flags != 0 || bufferDesc->size == 0 || !reserved_is_zero(*bufferDesc))
    return CUDA_ERROR_INVALID_VALUE;
  wire::tubeExternalBuffer_reply reply{};
  CUresult result;
  {
    Request<wire::tubeExternalBuffer> r;
    r.in_context(making_context());
    r->memory = memory->id;
    r->offset = bufferDesc->offset;
    r->size = bufferDesc->size;
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return result;
  memory_map().insert(
      {reply.dptr, bufferDesc->size, next_unique(), making_context(), MemoryKind::kExternal, 0});
  *devPtr = reply.dptr;
  return CUDA_SUCCESS;
}

CUresult free_external(const Allocation& allocation) {
  Allocation removed;
  if (!memory_map().remove(allocation.base, MemoryKind::kExternal, &removed))
    return CUDA_ERROR_INVALID_VALUE;
  Request<wire::tubeExternalFree> r;
  r.in_context(allocation.context);
  r->dptr = allocation.base;
  return r.call();
}

CUresult cuDestroyExternalMemory(CUexternalMemory extMem) {
  return destroy(Kind::kExternalMemory, extMem);
}

CUresult cuImportExternalSemaphore(CUexternalSemaphore* extSem_out,
                                   const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* semHandleDesc) {
  if (extSem_out == nullptr || semHandleDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC& desc = *semHandleDesc;
  const bool timeline = desc.type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  if (!timeline && desc.type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD)
    return CUDA_ERROR_INVALID_VALUE;
  if (desc.flags != 0 || !reserved_is_zero(desc)) return CUDA_ERROR_INVALID_VALUE;
  if (timeline && fcntl(desc.handle.fd, F_GETFD) < 0) return CUDA_ERROR_INVALID_VALUE;
  return bring_in<wire::tubeImportExternalSemaphore>(
      Kind::kExternalSemaphore, desc.handle.fd, reinterpret_cast<void**>(extSem_out),
      [&](Request<wire::tubeImportExternalSemaphore>& r, uint64_t id) {
        r->semaphore = id;
        r->type = static_cast<uint32_t>(desc.type);
        r->flags = desc.flags;
      });
}

CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore* extSemArray,
                                         const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* paramsArray,
                                         unsigned int numExtSems, CUstream stream) {
  return semaphores(extSemArray, paramsArray, numExtSems, stream, false);
}
CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore* extSemArray,
                                       const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* paramsArray,
                                       unsigned int numExtSems, CUstream stream) {
  return semaphores(extSemArray, paramsArray, numExtSems, stream, true);
}
CUresult cuDestroyExternalSemaphore(CUexternalSemaphore extSem) {
  return destroy(Kind::kExternalSemaphore, extSem);
}

}  // namespace tube::hook
