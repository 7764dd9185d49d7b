// Pools of other processes. A pool is a name in its process, so what travels is a note: a sealed
// memory file that says which GPU it is on. Its allocations travel as IPC handles of their memory
// (ipc.cc): opening one within a proxy is an alias, no copy.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <vector>

#include "base/unique_fd.h"
#include "hook/memory/copy.h"
#include "hook/memory/memory_calls.h"
#include "hook/objects/pool.h"
#include "hook/objects/support.h"
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
    if (std::memcmp(connection().device_infos[p.devices[i]].uuid, uuid, sizeof uuid) == 0)
      return static_cast<int>(i);
  }
  return -1;
}

CUresult check_type(CUmemAllocationHandleType type, unsigned long long flags) {
  return flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
}

// What this process has exported, so that it can import it itself, and how often it did: an
// imported pointer is then the allocation's own address, and each import wants a free of its own.
struct Exported {
  uint64_t address, buffer_id;
  unsigned char data[sizeof(CUmemPoolPtrExportData)];
};
constexpr size_t kFewExported = 16;
struct Own {
  Lock lock;  // rank 2
  std::vector<Exported> exported;
  size_t look_at = kFewExported;  // so many: see which are there still
  struct Imports {
    uint64_t buffer_id;
    uint32_t count;
  };
  std::map<uint64_t, Imports> imports;
};
Own& own() {
  static auto* o = new Own;
  return *o;
}
constinit std::atomic<uint32_t> g_own_imports{0};  // entries of `imports`

// The allocation at that address is still the one with that number.
bool is_there(uint64_t address, uint64_t buffer_id) {
  Allocation a;
  return memory_map().find(address, &a) && a.buffer_id == buffer_id;
}

void remember_export(const Allocation& a, const CUmemPoolPtrExportData& data) {
  Exported e{a.base, a.buffer_id, {}};
  std::memcpy(e.data, &data, sizeof e.data);
  Locked locked(own().lock);
  auto& all = own().exported;
  if (const auto same = std::ranges::find(all, a.base, &Exported::address); same != all.end()) {
    *same = e;
    return;
  }
  // Entries of gone memory leave when the number of entries has doubled, since each look asks the
  // memory map for each.
  if (all.size() >= own().look_at) {
    std::erase_if(all, [](const Exported& old) { return !is_there(old.address, old.buffer_id); });
    own().look_at = 2 * all.size() + kFewExported;
  }
  all.push_back(e);
}

bool import_own(const CUmemPoolPtrExportData& data, CUdeviceptr* address) {
  Locked locked(own().lock);
  for (const Exported& e : own().exported) {
    if (std::memcmp(e.data, &data, sizeof e.data) != 0) continue;
    if (!is_there(e.address, e.buffer_id)) return false;  // freed since
    Own::Imports& imports = own().imports[e.address];
    imports = imports.buffer_id == e.buffer_id ? Own::Imports{e.buffer_id, imports.count + 1}
                                               : Own::Imports{e.buffer_id, 1};
    g_own_imports.store(static_cast<uint32_t>(own().imports.size()), std::memory_order_release);
    *address = e.address;
    return true;
  }
  return false;
}

}  // namespace

bool free_own_import(const Allocation& allocation) {
  if (g_own_imports.load(std::memory_order_acquire) == 0) return false;
  Locked locked(own().lock);
  const auto found = own().imports.find(allocation.base);
  if (found == own().imports.end()) return false;
  const bool imported =
      found->second.buffer_id ==
      allocation.buffer_id;  // or it went with its context, and this is another one
  if (!imported || --found->second.count == 0) own().imports.erase(found);
  g_own_imports.store(static_cast<uint32_t>(own().imports.size()), std::memory_order_release);
  return imported;
}

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
  const Pool* p = find_pool(pool);
  if (handle_out == nullptr || p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_type(handleType, flags); r != CUDA_SUCCESS) return r;
  if (!p->shareable) return CUDA_ERROR_INVALID_VALUE;
  PoolNote note{kPoolMagic, {}};
  static_assert(sizeof note.uuid == sizeof(info::DeviceInfo::uuid));
  std::memcpy(note.uuid, connection().device_infos[process().devices[p->visible_device]].uuid,
              sizeof note.uuid);
  Result<UniqueFd> file = shared::create_constant_file("tube-pool", &note, sizeof note);
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  const int fd = file->release();
  std::memcpy(handle_out, &fd, sizeof fd);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags) {
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_type(handleType, flags); r != CUDA_SUCCESS) return r;
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  PoolNote note{};
  if (!shared::verify_memory_file(fd, sizeof note, true)) return CUDA_ERROR_UNKNOWN;
  if (pread(fd, &note, sizeof note, 0) != static_cast<ssize_t>(sizeof note) ||
      note.magic != kPoolMagic)
    return CUDA_ERROR_UNKNOWN;
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
  if (shareData_out == nullptr || !memory_map().find(ptr, &a) || a.flags != kFromPool ||
      a.kind != MemoryKind::kDevice || a.base != ptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Pool* p = find_pool(a.pool);
  if (p == nullptr || !p->shareable) return CUDA_ERROR_INVALID_VALUE;
  note_memory_shared();
  wire::tubeIpcGetMem_reply reply{};
  Request<wire::tubeIpcGetMem> r;
  r->dptr = a.base;
  const CUresult result = r.call(&reply);
  static_assert(sizeof(*shareData_out) == sizeof(reply.handle));
  if (result != CUDA_SUCCESS) return result;
  std::memcpy(shareData_out, reply.handle, sizeof reply.handle);
  remember_export(a, *shareData_out);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData* shareData) {
  const Pool* p = find_pool(pool);
  if (ptr_out == nullptr || shareData == nullptr || p == nullptr || !p->imported)
    return CUDA_ERROR_INVALID_VALUE;
  if (import_own(*shareData, ptr_out)) return CUDA_SUCCESS;
  Context* context = process().primaries[p->visible_device];
  note_memory_shared();
  Locked in_turn(opening_memory());
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
  memory_map().insert(
      {reply.dptr, reply.bytes, next_unique(), context, MemoryKind::kOpened, kFromPool, pool});
  *ptr_out = reply.dptr;
  return CUDA_SUCCESS;
}

CUresult close_pool_pointer(const Allocation& allocation) {
  Locked in_turn(opening_memory());
  wire::tubeIpcCloseMem_reply reply{};
  CUresult result;
  {
    Request<wire::tubeIpcCloseMem> r;
    r.in_context(allocation.context);
    r->dptr = allocation.base;
    result = r.call(&reply);
  }
  Allocation removed;
  if (result == CUDA_SUCCESS && reply.left == 0)
    memory_map().remove(allocation.base, MemoryKind::kOpened, &removed);
  return result;
}

}  // namespace tube::hook
