// cuIpc*: memory and events of other processes (ipc.h).
#include "sim/calls/ipc.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include "base/page.h"
#include "sim/machine/devices.h"
#include "sim/machine/heap.h"
#include "sim/machine/state.h"

namespace tube::sim {
namespace {

constexpr uint64_t kMemoryMagic = 0x4d454d434950494dull;
constexpr uint64_t kEventMagic = 0x4e56454350494d53ull;

// What the 64 opaque bytes hold.
struct Handle {
  uint64_t magic;
  int32_t pid;
  int32_t fd;
  uint64_t inode;
  uint64_t offset;  // memory: of the allocation in the file
  uint64_t bytes;   // as asked for
  uint64_t id;      // of the allocation, so that two at one place have different handles
  int32_t device;   // index in the topology
  int32_t reserved[3];
};
static_assert(sizeof(Handle) == sizeof(CUipcMemHandle) &&
              sizeof(Handle) == sizeof(CUipcEventHandle));

template <typename Opaque>
Opaque pack(const Handle& handle) {
  Opaque out;
  std::memcpy(&out, &handle, sizeof handle);
  return out;
}

template <typename Opaque>
bool unpack(const Opaque& opaque, uint64_t magic, Handle* handle) {
  std::memcpy(handle, &opaque, sizeof *handle);
  return handle->magic == magic;
}

bool name_file(int fd, Handle* handle) {
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) return false;
  handle->pid = getpid();
  handle->fd = fd;
  handle->inode = st.st_ino;
  return true;
}

// The file that the handle names, or -1.
int open_file(const Handle& handle) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  struct stat st;
  if (fd < 0) return -1;
  if (fstat(fd, &st) == 0 && st.st_ino == handle.inode && S_ISREG(st.st_mode)) return fd;
  close(fd);
  return -1;
}

struct Import {
  Handle handle{};
  unsigned references = 1;
};

// By the address handed out. Guarded by State::mutex; leaked.
std::map<uint64_t, Import>& imports() {
  static auto* all = new std::map<uint64_t, Import>;
  return *all;
}

Device* device_of(State& s, int physical) {
  for (auto& device : s.devices)
    if (device->physical == physical) return device.get();
  return nullptr;
}

uint64_t first_page(uint64_t address) { return address / kPage * kPage; }
uint64_t page_bytes(uint64_t address, uint64_t bytes) {
  return (address + bytes + kPage - 1) / kPage * kPage - first_page(address);
}

CUresult map_import(State& s, const Handle& handle, const Device& device, Context* context,
                    CUdeviceptr* out) {
  int fd = open_file(handle);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  struct stat st;
  uint64_t start = first_page(handle.offset), bytes = page_bytes(handle.offset, handle.bytes);
  bool fits = fstat(fd, &st) == 0 && handle.bytes != 0 && start + bytes > start &&
              start + bytes <= static_cast<uint64_t>(st.st_size);
  void* p = fits ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                        static_cast<off_t>(start))
                 : MAP_FAILED;
  close(fd);
  if (p == MAP_FAILED) return fits ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_INVALID_VALUE;
  Range range;
  range.base = reinterpret_cast<uint64_t>(p) + (handle.offset - start);
  range.size = range.requested = handle.bytes;
  range.kind = RangeKind::kImported;
  range.release = release_import;
  range.device = device.ordinal;
  range.context = base_context(context);
  range.id = s.new_id();
  *out = range.base;
  imports()[range.base] = Import{handle};
  s.map.insert(range);
  return CUDA_SUCCESS;
}

CUresult open_memory(CUdeviceptr* out, const CUipcMemHandle& opaque, unsigned flags,
                     Context* context) {
  Handle handle{};
  if (out == nullptr || (flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (!unpack(opaque, kMemoryMagic, &handle)) return CUDA_ERROR_INVALID_VALUE;
  if (handle.pid == getpid())
    return CUDA_ERROR_INVALID_CONTEXT;  // only another process may open it
  State& s = state();
  Lock lock(s.mutex);
  Device* device = device_of(s, handle.device);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device != context->device) {
    if (!peer_capable(s, *context->device, *device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    context->peers.fetch_or(1ull << device->ordinal);
  }
  for (auto& [base, import] : imports()) {
    if (std::memcmp(&import.handle, &handle, sizeof handle) != 0) continue;
    ++import.references;
    *out = base;
    return CUDA_SUCCESS;
  }
  return map_import(s, handle, *device, context, out);
}

SharedEventPtr map_event(int fd, bool owner) {
  void* p = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED || !owner) close(fd);
  if (p == MAP_FAILED) return nullptr;
  auto shared = std::make_shared<SharedEvent>();
  shared->fd = owner ? fd : -1;
  shared->words = static_cast<SharedEvent::Words*>(p);
  return shared;
}

}  // namespace

SharedEvent::~SharedEvent() {
  if (words != nullptr) munmap(words, kPage);
  if (fd >= 0) close(fd);
}

void SharedEvent::reach(uint64_t record) {
  uint64_t now = words->reached.load(std::memory_order_relaxed);
  while (now < record &&
         !words->reached.compare_exchange_weak(now, record, std::memory_order_acq_rel)) {
  }
}

SharedEventPtr make_shared_event() {
  int fd = memfd_create("tube-sim-event", MFD_CLOEXEC);
  if (fd < 0 && errno == EMFILE && raise_fd_limit())
    fd = memfd_create("tube-sim-event", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  if (ftruncate(fd, kPage) != 0) {
    close(fd);
    return nullptr;
  }
  return map_event(fd, true);
}

void release_import(const Range& range) {
  imports().erase(range.base);
  munmap(reinterpret_cast<void*>(first_page(range.base)), page_bytes(range.base, range.size));
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  SIM_ENTER(kContext);
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  auto range = s.map.find(dptr);
  if (!range || range->kind != RangeKind::kDevice || range->freeing)
    return CUDA_ERROR_INVALID_VALUE;
  int fd = -1;
  Handle handle{};
  handle.magic = kMemoryMagic;
  if (!backing_of(range->base, &fd, &handle.offset) || !name_file(fd, &handle))
    return CUDA_ERROR_OUT_OF_MEMORY;
  handle.bytes = range->requested;
  handle.id = range->id;
  handle.device = s.devices[static_cast<size_t>(range->device)]->physical;
  *pHandle = pack<CUipcMemHandle>(handle);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  SIM_ENTER_CONTEXT(context);
  return open_memory(pdptr, handle, Flags, context);
}

SIM_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle,
                                       unsigned int Flags) {
  SIM_ENTER_CONTEXT(context);
  return open_memory(pdptr, handle, Flags, context);
}

SIM_API CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  SIM_ENTER_CONTEXT(context);
  State& s = state();
  Lock lock(s.mutex);
  auto it = imports().find(dptr);
  if (it == imports().end()) return CUDA_ERROR_INVALID_VALUE;
  if (--it->second.references != 0) return CUDA_SUCCESS;
  imports().erase(it);
  if (CUresult r = synchronize(lock, context)) return r;
  auto gone = s.map.remove(dptr);
  // A kernel of another context may still hold a stale pointer; then the pages stay until the
  // process ends.
  if (gone && !memory_in_use(lock)) release_import(*gone);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent hEvent) {
  if (pHandle == nullptr || hEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_ENTER(kHandle);
  State& s = state();
  Lock lock(s.mutex);
  auto* event = live<Event>(s, hEvent, Kind::kEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pHandle = {};
  if (event->shared == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Handle handle{};
  handle.magic = kEventMagic;
  if (!name_file(event->shared->fd, &handle))
    return CUDA_ERROR_INVALID_HANDLE;  // opened from elsewhere itself
  *pHandle = pack<CUipcEventHandle>(handle);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle opaque) {
  SIM_ENTER_CONTEXT(context);
  Handle handle{};
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!unpack(opaque, kEventMagic, &handle)) return CUDA_ERROR_MAP_FAILED;
  if (handle.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  int fd = open_file(handle);
  if (fd < 0) return CUDA_ERROR_MAP_FAILED;
  SharedEventPtr shared = map_event(fd, false);
  if (shared == nullptr) return CUDA_ERROR_MAP_FAILED;
  State& s = state();
  Lock lock(s.mutex);
  auto* event = new Event;
  event->context = base_context(context);
  event->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  event->shared = std::move(shared);
  s.live.emplace(event, Kind::kEvent);
  *phEvent = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}
