// Pools of other processes. A pool is a name in its process, so what travels is a note: a sealed memory file that says which GPU it is on.
// Its allocations travel as IPC handles of their memory (call_ipc.cc): opening one within a proxy is an alias, no copy.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/unique_fd.h"
#include "hook/memory_calls.h"
#include "hook/pool.h"
#include "hook/support.h"
#include "protocol/hook_decls.gen.h"
#include "sharedmem/segment.h"

namespace tube::hook {
namespace {

constexpr uint64_t kPoolMagic = 0x314c4f4f50425554ull;  // "TUBPOOL1"

struct PoolNote {
  uint64_t magic;
  uint8_t uuid[16];  // of the GPU
};

// The visible device with that UUID, or -1.
int device_with(const uint8_t (&uuid)[16]) {
  const Process& p = process();
  for (uint32_t i = 0; i < p.device_count; ++i) {
    if (std::memcmp(connection().device_infos[p.devices[i]].uuid, uuid, sizeof uuid) == 0) return static_cast<int>(i);
  }
  return -1;
}

CUresult check_type(CUmemAllocationHandleType type, unsigned long long flags) {
  return flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType, unsigned long long flags) {
  const Pool* p = find_pool(pool);
  if (handle_out == nullptr || p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_type(handleType, flags); r != CUDA_SUCCESS) return r;
  if (!p->shareable) return CUDA_ERROR_INVALID_VALUE;
  PoolNote note{kPoolMagic, {}};
  static_assert(sizeof note.uuid == sizeof(info::DeviceInfo::uuid));
  std::memcpy(note.uuid, connection().device_infos[process().devices[p->visible_device]].uuid, sizeof note.uuid);
  Result<UniqueFd> file = shared::create_constant_file("tube-pool", &note, sizeof note);
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  const int fd = file->release();
  std::memcpy(handle_out, &fd, sizeof fd);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle, CUmemAllocationHandleType handleType, unsigned long long flags) {
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_type(handleType, flags); r != CUDA_SUCCESS) return r;
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  PoolNote note{};
  if (!shared::verify_memory_file(fd, sizeof note, true)) return CUDA_ERROR_UNKNOWN;
  if (pread(fd, &note, sizeof note, 0) != static_cast<ssize_t>(sizeof note) || note.magic != kPoolMagic) return CUDA_ERROR_UNKNOWN;
  const int device = device_with(note.uuid);
  if (device < 0) return CUDA_ERROR_INVALID_DEVICE;
  Pool* p = make_pool(static_cast<uint32_t>(device));
  if (p == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  p->imported = true;
  *pool_out = handle_of(p);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  Allocation a;
  if (shareData_out == nullptr || !memory_map().find(ptr, &a) || a.flags != kFromPool || a.kind != MemoryKind::kDevice || a.base != ptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Pool* p = find_pool(a.pool);
  if (p == nullptr || !p->shareable) return CUDA_ERROR_INVALID_VALUE;
  wire::tubeIpcGetMem_reply reply{};
  Request<wire::tubeIpcGetMem> r;
  r->dptr = a.base;
  const CUresult result = r.call(&reply);
  static_assert(sizeof(*shareData_out) == sizeof(reply.handle));
  if (result == CUDA_SUCCESS) std::memcpy(shareData_out, reply.handle, sizeof reply.handle);
  return result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData* shareData) {
  const Pool* p = find_pool(pool);
  if (ptr_out == nullptr || shareData == nullptr || p == nullptr || !p->imported) return CUDA_ERROR_INVALID_VALUE;
  Context* context = process().primaries[p->visible_device];
  wire::tubeIpcOpenMem_reply reply{};
  CUresult result;
  {
    Request<wire::tubeIpcOpenMem> r;
    r.in_context(context);
    r->flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    std::memcpy(r->handle, shareData, sizeof *shareData);
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return result;
  memory_map().insert({reply.dptr, reply.bytes, next_unique(), context, MemoryKind::kOpened, kFromPool, pool});
  *ptr_out = reply.dptr;
  return CUDA_SUCCESS;
}

CUresult close_pool_pointer(const Allocation& allocation) {
  wire::tubeIpcCloseMem_reply reply{};
  CUresult result;
  {
    Request<wire::tubeIpcCloseMem> r;
    r.in_context(allocation.context);
    r->dptr = allocation.base;
    result = r.call(&reply);
  }
  Allocation removed;
  if (result == CUDA_SUCCESS && reply.left == 0) memory_map().remove(allocation.base, MemoryKind::kOpened, &removed);
  return result;
}

}  // namespace tube::hook
