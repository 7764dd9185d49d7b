#include "sim/calls/external.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "base/page.h"
#include "sim/machine/work.h"

namespace tube::sim {
namespace {

struct ExternalMemory {
  int fd = -1;
  uint64_t bytes = 0;
  Device* device = nullptr;
  ~ExternalMemory() { close(fd); }
};

struct Semaphore {
  uint64_t* value = nullptr;
  bool timeline = false;
  ~Semaphore() { munmap(value, kPage); }
};
struct ExternalSemaphore {
  std::shared_ptr<Semaphore> shared;  // operations under way keep it
};

template <class Desc>
bool reserved_is_zero(const Desc& desc) {
  for (unsigned int word : desc.reserved)
    if (word != 0) return false;
  return true;
}

// Memory of [offset, offset + bytes) of the file, entered in the map. With the lock held.
CUresult map_part(State& s, Context* context, const ExternalMemory& memory, uint64_t offset,
                  uint64_t bytes, uint64_t* base) {
  if (offset > memory.bytes || bytes > memory.bytes - offset) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t first = offset / kPage * kPage, length = offset - first + bytes;
  void* p = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd,
                 static_cast<off_t>(first));
  if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.base = reinterpret_cast<uint64_t>(p) + (offset - first);
  range.size = range.requested = bytes;
  range.kind = RangeKind::kExternal;
  range.release = release_external;
  range.device = memory.device->ordinal;
  range.context = base_context(context);
  range.id = s.new_id();
  *base = range.base;
  s.map.insert(std::move(range));
  return CUDA_SUCCESS;
}

bool is_semaphore(int fd) {
  char path[64], target[128];
  std::snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
  const ssize_t n = readlink(path, target, sizeof target);
  constexpr char kName[] = "/memfd:tube-sim-semaphore";
  if (n < static_cast<ssize_t>(sizeof kName - 1) ||
      std::memcmp(target, kName, sizeof kName - 1) != 0)
    return false;
  struct stat st;
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &st) == 0 &&
         static_cast<uint64_t>(st.st_size) >= kPage;
}

// The semaphores of a call; empty when one of them is none.
std::vector<std::shared_ptr<Semaphore>> find_all(State& s, const CUexternalSemaphore* list,
                                                 unsigned count) {
  std::vector<std::shared_ptr<Semaphore>> found;
  for (unsigned i = 0; i < count; ++i) {
    const auto* semaphore = live<ExternalSemaphore>(s, list[i], Kind::kExternalSemaphore);
    if (semaphore == nullptr) return {};
    found.push_back(semaphore->shared);
  }
  return found;
}

Op signal_op(std::shared_ptr<Semaphore> semaphore, uint64_t value) {
  Op op;
  op.body = [semaphore = std::move(semaphore), value]() -> CUresult {
    __atomic_store_n(semaphore->value, semaphore->timeline ? value : 1, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
  };
  return op;
}

Op wait_op(std::shared_ptr<Semaphore> semaphore, uint64_t value) {
  Op op;
  op.condition = [semaphore, value] {
    const uint64_t now = __atomic_load_n(semaphore->value, __ATOMIC_ACQUIRE);
    return semaphore->timeline ? now >= value : now == 1;
  };
  op.body = [semaphore = std::move(semaphore)]() -> CUresult {
    if (!semaphore->timeline) __atomic_store_n(semaphore->value, 0, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
  };
  return op;
}

template <class Params, class MakeOp>
CUresult operate(Context* context, const CUexternalSemaphore* list, const Params* params,
                 unsigned count, CUstream handle, MakeOp make) {
  if (list == nullptr || params == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(state().mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, handle, &stream)) return r;
  const auto semaphores = find_all(state(), list, count);
  if (semaphores.empty()) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture != nullptr)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // no such nodes here
  for (unsigned i = 0; i < count; ++i)
    append(lock, stream, make(semaphores[i], params[i].params.fence.value));
  return CUDA_SUCCESS;
}

}  // namespace

void release_external(const Range& range) {
  const uint64_t first = range.base / kPage * kPage;
  munmap(reinterpret_cast<void*>(first), range.end() - first);
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuImportExternalMemory(CUexternalMemory* extMem_out,
                                        const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* d) {
  SIM_ENTER(kContext);
  if (extMem_out != nullptr && d != nullptr && d->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (extMem_out == nullptr || d == nullptr ||
      d->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD || d->size == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((d->flags & ~unsigned{CUDA_EXTERNAL_MEMORY_DEDICATED}) != 0 || !reserved_is_zero(*d))
    return CUDA_ERROR_INVALID_VALUE;
  auto memory = std::make_unique<ExternalMemory>();
  if (!duplicate_exported(d->handle.fd, &memory->fd, &memory->bytes, &memory->device)) {
    if (d->handle.fd >= 0) close(d->handle.fd);  // the driver takes it, whatever it is
    return CUDA_ERROR_UNKNOWN;
  }
  if (d->size > memory->bytes) return CUDA_ERROR_INVALID_VALUE;
  memory->bytes = d->size;
  close(d->handle.fd);  // it is the driver's now
  Lock lock(state().mutex);
  state().live.emplace(memory.get(), Kind::kExternalMemory);
  *extMem_out = reinterpret_cast<CUexternalMemory>(memory.release());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr* devPtr, CUexternalMemory extMem,
                                                 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* d) {
  SIM_ENTER_CONTEXT(context);
  State& s = state();
  Lock lock(s.mutex);
  const auto* memory = live<ExternalMemory>(s, extMem, Kind::kExternalMemory);
  if (devPtr == nullptr || d == nullptr || memory == nullptr || d->flags != 0 || d->size == 0 ||
      !reserved_is_zero(*d))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t base = 0;
  if (CUresult r = map_part(s, context, *memory, d->offset, d->size, &base)) return r;
  *devPtr = base;
  return CUDA_SUCCESS;
}

SIM_API CUresult
cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray* mipmap, CUexternalMemory extMem,
                                        const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* d) {
  SIM_ENTER_CONTEXT(context);
  State& s = state();
  ExternalMemory* memory = nullptr;
  {
    Lock lock(s.mutex);
    memory = live<ExternalMemory>(s, extMem, Kind::kExternalMemory);
  }
  if (mipmap == nullptr || d == nullptr || memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create_mipmapped(context, mipmap, d->arrayDesc, d->numLevels,
                          [&](uint64_t bytes, uint64_t* base) {
                            return map_part(s, context, *memory, d->offset, bytes, base);
                          });
}

SIM_API CUresult cuDestroyExternalMemory(CUexternalMemory extMem) {
  SIM_ENTER(kContext);
  return destroy_live<ExternalMemory>(extMem, Kind::kExternalMemory, CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuImportExternalSemaphore(CUexternalSemaphore* extSem_out,
                                           const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* d) {
  SIM_ENTER(kContext);
  if (extSem_out == nullptr || d == nullptr || d->flags != 0 || !reserved_is_zero(*d))
    return CUDA_ERROR_INVALID_VALUE;
  const bool timeline = d->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  if (!timeline && d->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD)
    return CUDA_ERROR_INVALID_VALUE;
  if (timeline && d->handle.fd < 0) return CUDA_ERROR_INVALID_VALUE;
  if (!is_semaphore(d->handle.fd))
    return CUDA_ERROR_UNKNOWN;  // unlike memory's, the descriptor stays the caller's
  void* p = mmap(nullptr, tube::kPage, PROT_READ | PROT_WRITE, MAP_SHARED, d->handle.fd, 0);
  if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  auto semaphore = std::make_unique<ExternalSemaphore>();
  semaphore->shared = std::make_shared<Semaphore>();
  semaphore->shared->value = static_cast<uint64_t*>(p);
  semaphore->shared->timeline = timeline;
  close(d->handle.fd);
  Lock lock(state().mutex);
  state().live.emplace(semaphore.get(), Kind::kExternalSemaphore);
  *extSem_out = reinterpret_cast<CUexternalSemaphore>(semaphore.release());
  return CUDA_SUCCESS;
}

SIM_API CUresult
cuSignalExternalSemaphoresAsync(const CUexternalSemaphore* extSemArray,
                                const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* paramsArray,
                                unsigned int numExtSems, CUstream stream) {
  SIM_ENTER_STREAM(context, stream);
  return operate(context, extSemArray, paramsArray, numExtSems, stream, signal_op);
}

SIM_API CUresult cuWaitExternalSemaphoresAsync(
    const CUexternalSemaphore* extSemArray, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* paramsArray,
    unsigned int numExtSems, CUstream stream) {
  SIM_ENTER_STREAM(context, stream);
  return operate(context, extSemArray, paramsArray, numExtSems, stream, wait_op);
}

SIM_API CUresult cuDestroyExternalSemaphore(CUexternalSemaphore extSem) {
  SIM_ENTER(kContext);
  return destroy_live<ExternalSemaphore>(extSem, Kind::kExternalSemaphore,
                                         CUDA_ERROR_INVALID_VALUE);
}
