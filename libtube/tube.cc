// libtube.so: the C interface of the store (tube.h), over the table of Tube's libcuda.so.1 when it
// is in the process, else over a store of the process's own.
//
// What fails keeps its sentence in thread-local memory. Nothing throws out of here.
#include "libtube/tube.h"

#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "libtube/driver.h"
#include "libtube/local_store.h"

namespace tube::library {
namespace {

constexpr uint32_t kHostPlace = 0, kGpuPlace = 1;  // wire::StorePlace
constexpr int kProxyDied = kStoreCuda + CUDA_ERROR_DEVICE_UNAVAILABLE;
constexpr int kNoProxy = kStoreCuda + CUDA_ERROR_SYSTEM_NOT_READY;
constexpr int kProxyStopped = kStoreCuda + CUDA_ERROR_DEINITIALIZED;
constexpr int kNoContext = kStoreCuda + CUDA_ERROR_INVALID_CONTEXT;
constexpr int kCaptures = kStoreCuda + CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
constexpr int kCapturesElsewhere = kStoreCuda + CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
constexpr int kForked = kStoreCuda + CUDA_ERROR_NOT_INITIALIZED;
constexpr int kNoDevice = kStoreCuda + CUDA_ERROR_INVALID_DEVICE;

thread_local char t_error[512] = "no call of this thread has failed";

__attribute__((format(printf, 2, 3))) int fail(int result, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is the line above
  std::vsnprintf(t_error, sizeof t_error, format, arguments);
  va_end(arguments);
  return result;
}

LocalStore& local() {
  static LocalStore* store = new LocalStore;
  return *store;
}

// What the table answers, as a tube_result with its sentence.
int said(int answer, const char* name) {
  switch (answer) {
    case TUBE_OK: return TUBE_OK;
    case TUBE_EXISTS:
      return fail(TUBE_EXISTS,
                  "an object '%s' is there already; delete it first, or use tube_unique_id", name);
    case TUBE_NOT_FOUND:
      return fail(TUBE_NOT_FOUND,
                  "no sealed object is called '%s'; tube_wait waits for one, `tubectl store` lists "
                  "what there is",
                  name);
    case TUBE_TOO_MANY:
      return fail(
          TUBE_TOO_MANY,
          "too many objects for '%s': delete some, or give them consumers or a time to live", name);
    case TUBE_NO_MEMORY:
      return fail(TUBE_NO_MEMORY,
                  "no memory for '%s': delete objects, or raise the limit (`tubectl limit`); "
                  "`tubectl store` shows who holds what",
                  name);
    case kProxyDied:
    case kProxyStopped:
    case kNoProxy:
      return fail(TUBE_GONE,
                  "the proxy of this workflow has ended or was never started, and the store with "
                  "it; start one with `tubectl proxy start`, then this program again");
    case kNoContext:
      return fail(TUBE_NO_GPU,
                  "'%s' is in GPU memory and this thread has no CUDA context: make one current "
                  "(cudaSetDevice, cuCtxSetCurrent), or ask for TUBE_HOST",
                  name);
    case kNoDevice: return fail(TUBE_NO_GPU, "this program sees no such GPU for '%s'", name);
    case kForked:
      return fail(TUBE_FAILED,
                  "the CUDA driver of this process is not there for '%s': of a program that has "
                  "used it a fork has none, start programs in another way (spawn, exec)",
                  name);
    default: break;
  }
  if (answer > kStoreCuda)
    return fail(TUBE_FAILED, "CUDA error %d about '%s' (see cuda.h; TUBE_LOG=debug says more)",
                answer - kStoreCuda, name);
  return fail(TUBE_INVALID,
              "this cannot be done with '%s': it is not an object that this process holds, or not "
              "in that place",
              name);
}

int checked(CUresult result, const char* name) {
  return result == CUDA_SUCCESS ? TUBE_OK : said(kStoreCuda + static_cast<int>(result), name);
}

bool behind(tube_stream stream) { return stream != TUBE_NOW; }
tube_stream driver_stream(tube_stream stream) { return behind(stream) ? stream : nullptr; }

bool has_context(const Cuda& cuda) {
  CUcontext context = nullptr;
  return cuda.current(&context) == CUDA_SUCCESS && context != nullptr;
}

void show(const StoreObject& from, tube_object* to) {
  *to = tube_object{};
  to->data = reinterpret_cast<void*>(from.address);
  to->bytes = from.bytes;
  to->place = from.place == kGpuPlace ? TUBE_GPU : TUBE_HOST;
  to->device = from.device;
  to->dtype = from.dtype;
  to->ndim = from.ndim;
  std::memcpy(to->shape, from.shape, sizeof to->shape);
  std::memcpy(to->strides, from.strides, sizeof to->strides);
  std::memcpy(to->name, from.name, sizeof to->name);
  std::memcpy(to->group, from.group, sizeof to->group);
  to->age_ns = from.created_ns == 0 ? 0 : now_ns() - from.created_ns;
  to->id[0] = from.generation;
  to->id[1] = from.slot | (from.context >> 32 << 32);
  to->sealed = from.sealed;
  to->reserved = static_cast<uint32_t>(from.context);
}

StoreObject shown(const tube_object& from) {
  StoreObject to;
  to.address = reinterpret_cast<uint64_t>(from.data);
  to.bytes = from.bytes;
  to.generation = from.id[0];
  to.slot = static_cast<uint32_t>(from.id[1]);
  to.place = from.place == TUBE_GPU ? kGpuPlace : kHostPlace;
  to.device = from.device;
  to.sealed = from.sealed;
  to.context = (from.id[1] >> 32 << 32) | from.reserved;
  return to;
}

// TUBE_OK, or what is wrong with it.
int check(const tube_spec* spec) {
  if (spec == nullptr || spec->name == nullptr) return fail(TUBE_INVALID, "no name was given");
  const size_t length = strnlen(spec->name, TUBE_NAME_BYTES);
  if (length == 0 || length == TUBE_NAME_BYTES)
    return fail(TUBE_INVALID, "a name has 1 to %d bytes", TUBE_NAME_BYTES - 1);
  if (spec->group != nullptr && strnlen(spec->group, TUBE_GROUP_BYTES) == TUBE_GROUP_BYTES)
    return fail(TUBE_INVALID, "a group's name has at most %d bytes", TUBE_GROUP_BYTES - 1);
  if (spec->name[0] == '/' && spec->name[1] == '/')
    return fail(TUBE_INVALID, "'%s' would be an object of another workflow", spec->name);
  if (spec->bytes == 0) return fail(TUBE_INVALID, "'%s' would have no bytes", spec->name);
  if (spec->ndim > TUBE_DIMS)
    return fail(TUBE_INVALID, "'%s' has %u dimensions, %d are possible", spec->name, spec->ndim,
                TUBE_DIMS);
  return TUBE_OK;
}

int reserve(const tube_spec& spec, tube_object* object) {
  const Tube* tube = tube_in_process();
  if (tube == nullptr) {
    if (spec.place == TUBE_GPU)
      return fail(TUBE_NO_GPU,
                  "'%s' is for GPU memory, and there is no proxy: start the program with `tubectl "
                  "run`, or use TUBE_ANY",
                  spec.name);
    return said(local().reserve(spec, object), spec.name);
  }
  const bool gpu = spec.place == TUBE_GPU || (spec.place == TUBE_ANY && has_context(*tube));
  StoreSpec wanted{spec.name,       spec.group, spec.bytes,  gpu ? kGpuPlace : kHostPlace,
                   spec.device - 1, spec.dtype, spec.ndim,   spec.consumers,
                   spec.ttl_ms,     spec.shape, spec.strides};
  StoreObject made;
  const int answer = tube->table->reserve(&wanted, &made);
  if (answer == TUBE_OK) show(made, object);
  return said(answer, spec.name);
}

int seal(const tube_object& object, tube_stream stream) {
  const Tube* tube = tube_in_process();
  if (tube == nullptr) return said(local().seal(object), object.name);
  const StoreObject sealed = shown(object);
  return said(tube->table->seal(&sealed, driver_stream(stream), behind(stream)), object.name);
}

int release(const tube_object& object, tube_stream stream) {
  const Tube* tube = tube_in_process();
  if (tube == nullptr) return said(local().release(object), object.name);
  const StoreObject held = shown(object);
  return said(tube->table->release(&held, driver_stream(stream), behind(stream)), object.name);
}

// Objects whose owners are gone and whose releases were refused then: streams captured, or a host
// function cannot. Nobody waits for the GPU or asks the hook with the mutex held.
struct Dropped {
  StoreObject object;
  tube_stream stream;
};
struct DroppedOnes {
  std::mutex mutex;
  std::vector<Dropped> all;
  std::atomic<bool> some{false};  // changes under the mutex
};
DroppedOnes& dropped() {
  static auto* ones = new DroppedOnes;
  return *ones;
}

// Released, not held, or there is nothing any more to release it in.
bool is_over(int answer) {
  return answer < kStoreCuda || answer == kProxyDied || answer == kProxyStopped ||
         answer == kNoProxy || answer == kForked;
}
bool is_early(int answer) {
  return answer == kCaptures || answer == kCapturesElsewhere ||
         answer == kStoreCuda + CUDA_ERROR_NOT_PERMITTED;
}

// What writes to memory that is given up, and on which streams, nobody says but who names one.
bool behind_all(const Dropped& one) {
  return one.object.sealed == 0 &&
         (!behind(one.stream) || reinterpret_cast<uintptr_t>(one.stream) <= 2);
}

// False: not yet. `waits`: for the GPU, if it must, which others' calls do not for this one.
bool let_go(const Tube& tube, const Dropped& one, bool waits) {
  const int all = waits ? kStoreBehindAll : kStoreBehindAllLater;
  if (behind_all(one)) return is_over(tube.table->release(&one.object, nullptr, all));
  int answer =
      tube.table->release(&one.object, driver_stream(one.stream), behind(one.stream) ? 1 : 0);
  if (!is_over(answer) && !is_early(answer))  // there is no such stream any more
    answer = tube.table->release(&one.object, nullptr, all);
  return is_over(answer);
}

void let_dropped_go() {
  DroppedOnes& ones = dropped();
  if (!ones.some.load(std::memory_order_acquire)) return;
  const Tube* tube = tube_in_process();
  std::vector<Dropped> mine;
  {
    const std::lock_guard lock(ones.mutex);
    mine.swap(ones.all);
    ones.some.store(false, std::memory_order_release);
  }
  std::erase_if(mine, [&](const Dropped& one) { return let_go(*tube, one, false); });
  if (mine.empty()) return;
  const std::lock_guard lock(ones.mutex);
  ones.all.insert(ones.all.end(), mine.begin(), mine.end());
  ones.some.store(true, std::memory_order_release);
}

void drop(const tube_object& object, tube_stream stream) {
  const Tube* tube = tube_in_process();
  if (tube == nullptr) {
    (void)local().release(object);
    return;
  }
  const Dropped one{shown(object), stream};
  if (let_go(*tube, one, true)) return;
  DroppedOnes& ones = dropped();
  const std::lock_guard lock(ones.mutex);
  ones.all.push_back(one);
  ones.some.store(true, std::memory_order_release);
}

// Of another kind than managed memory, which the CPU reads, too.
bool gpu_memory(const Cuda& cuda, const void* data) {
  unsigned type = 0, managed = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  return cuda.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_DEVICE &&
         (cuda.pointer_attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) !=
              CUDA_SUCCESS ||
          managed == 0);
}

// Whether the CPU copies: what needs no stream, or is for one that this thread cannot have.
bool by_cpu(const Cuda* cuda, const tube_object& object, const void* data, tube_stream stream) {
  if (cuda == nullptr) return true;
  if (object.place == TUBE_GPU || gpu_memory(*cuda, data)) return false;
  const bool named = tube_in_process() != nullptr && reinterpret_cast<uintptr_t>(stream) > 2;
  return !behind(stream) || (!named && !has_context(*cuda));
}

int copy(const tube_object& object, const tube_spec& spec, const void* data, tube_stream stream) {
  const Cuda* cuda = cuda_in_process();
  if (by_cpu(cuda, object, data, stream)) {
    // The CPU is in the order of a stream when that is idle; default ones there are none here.
    if (cuda != nullptr && behind(stream) && reinterpret_cast<uintptr_t>(stream) > 2) {
      const CUresult idle = cuda->stream_synchronize(static_cast<CUstream>(stream));
      if (idle != CUDA_SUCCESS) return checked(idle, spec.name);
    }
    if (object.data != nullptr) std::memcpy(object.data, data, spec.bytes);
    return TUBE_OK;
  }
  const auto on = static_cast<CUstream>(driver_stream(stream));
  CUresult result = cuda->memcpy_async(reinterpret_cast<CUdeviceptr>(object.data),
                                       reinterpret_cast<CUdeviceptr>(data), spec.bytes, on);
  // No stream that the caller knows reads `data` later, or no seal comes behind a stream.
  if (result == CUDA_SUCCESS && (!behind(stream) || tube_in_process() == nullptr))
    result = cuda->stream_synchronize(on);
  return checked(result, spec.name);
}

// Asked before the copy, which would be a node of the program's graph.
int refuse_captures(const char* name, tube_stream stream) {
  const Cuda* cuda = behind(stream) ? cuda_in_process() : nullptr;
  if (cuda == nullptr) return TUBE_OK;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = cuda->capturing(static_cast<CUstream>(stream), &status);
  if (asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return checked(asked, name);
  const bool captures = asked == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
  return captures ? checked(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, name) : TUBE_OK;
}

int put(const tube_spec& spec, const void* data, tube_stream stream) {
  if (const int error = refuse_captures(spec.name, stream); error != TUBE_OK) return error;
  tube_object object{};
  if (const int error = reserve(spec, &object); error != TUBE_OK) return error;
  const int copied = copy(object, spec, data, stream);
  const int error = copied == TUBE_OK ? seal(object, stream) : copied;
  if (error == TUBE_OK) return TUBE_OK;
  const std::string why = t_error;
  if (copied != TUBE_OK) (void)release(object, TUBE_NOW);
  else drop(object, stream);  // the copy may be on its way
  return fail(error, "%s", why.c_str());
}

int get(const char* name, tube_place place, tube_stream stream, uint64_t timeout_ns,
        tube_object* object) {
  if (name == nullptr || object == nullptr) return fail(TUBE_INVALID, "no name was given");
  const Tube* tube = tube_in_process();
  if (tube == nullptr) {
    if (place == TUBE_GPU)
      return fail(TUBE_NO_GPU,
                  "'%s' is asked for in GPU memory, and there is no proxy: start the program with "
                  "`tubectl run`, or use TUBE_ANY",
                  name);
    return said(local().get(name, timeout_ns, object), name);
  }
  StoreObject got;
  const int answer = tube->table->get(name, static_cast<uint32_t>(place), -1, driver_stream(stream),
                                      timeout_ns, &got);
  if (answer != TUBE_OK) return said(answer, name);
  show(got, object);
  if (object->place == TUBE_HOST || behind(stream) || got.ready != 0) return TUBE_OK;
  const CUresult there = tube->stream_synchronize(nullptr);
  if (there != CUDA_SUCCESS) {
    drop(*object, TUBE_NOW);
    object->data = nullptr;
  }
  return checked(there, name);
}

// Exceptions stay inside: the library has callers in C.
template <class F>
int guarded(F f) noexcept {
  try {
    let_dropped_go();
    return f();
  } catch (const std::bad_alloc&) {
    return fail(TUBE_NO_MEMORY, "out of host memory");
  } catch (...) {
    return fail(TUBE_FAILED, "the library failed");
  }
}

struct Visit {
  int (*visit)(void*, const tube_object*);
  void* data;
};

}  // namespace
}  // namespace tube::library

using namespace tube::library;  // NOLINT(google-build-using-namespace): the C functions below
using tube::StoreObject;

int tube_connected(void) {
  return guarded([] { return tube_in_process() != nullptr ? 1 : 0; });
}

const char* tube_error(void) { return t_error; }

int tube_unique_id(char* name, size_t bytes) {
  return guarded([&] {
    if (name == nullptr || bytes < TUBE_NAME_BYTES)
      return fail(TUBE_INVALID, "a unique name wants %d bytes", TUBE_NAME_BYTES);
    static std::atomic<uint64_t> last{0};
    const Tube* tube = tube_in_process();
    uint64_t store = 0, session = static_cast<uint64_t>(getpid());
    if (tube != nullptr) {
      if (const int error = tube->table->open(); error != 0) return said(error, "a unique name");
      store = tube->table->store_id();
      session = tube->table->session_id();
    }
    std::snprintf(name, bytes, "~%016lx-%lx-%lx", store, session, ++last);
    return static_cast<int>(TUBE_OK);
  });
}

int tube_reserve(const tube_spec* spec, tube_object* object) {
  return guarded([&] {
    if (const int error = check(spec); error != TUBE_OK) return error;
    if (object == nullptr) return fail(TUBE_INVALID, "nowhere to put the object");
    return reserve(*spec, object);
  });
}

int tube_seal(const tube_object* object, tube_stream stream) {
  return guarded([&] {
    if (object == nullptr) return fail(TUBE_INVALID, "no object was given");
    return seal(*object, stream);
  });
}

int tube_put(const tube_spec* spec, const void* data, tube_stream stream) {
  return guarded([&] {
    if (const int error = check(spec); error != TUBE_OK) return error;
    if (data == nullptr) return fail(TUBE_INVALID, "no bytes were given for '%s'", spec->name);
    return put(*spec, data, stream);
  });
}

int tube_get(const char* name, tube_place place, tube_stream stream, tube_object* object) {
  return guarded([&] { return get(name, place, stream, 0, object); });
}

int tube_wait(const char* name, tube_place place, tube_stream stream, uint64_t timeout_ms,
              tube_object* object) {
  return guarded([&] {
    const uint64_t most_ms = ~uint64_t{0} / 1'000'000;
    const uint64_t timeout_ns = timeout_ms >= most_ms ? ~uint64_t{0} : timeout_ms * 1'000'000;
    return get(name, place, stream, timeout_ns, object);
  });
}

int tube_peek(const char* name, tube_object* object) {
  return guarded([&] {
    if (name == nullptr || object == nullptr) return fail(TUBE_INVALID, "no name was given");
    const Tube* tube = tube_in_process();
    if (tube == nullptr) return said(local().peek(name, object), name);
    StoreObject seen;
    const int answer = tube->table->peek(name, &seen);
    if (answer == TUBE_OK) show(seen, object);
    return said(answer, name);
  });
}

int tube_release(const tube_object* object, tube_stream stream) {
  return guarded([&] {
    if (object == nullptr) return fail(TUBE_INVALID, "no object was given");
    return release(*object, stream);
  });
}

void tube_drop(const tube_object* object, tube_stream stream) {
  if (object == nullptr) return;
  (void)guarded([&] {
    drop(*object, stream);
    return static_cast<int>(TUBE_OK);
  });
}

int tube_export_fd(const tube_object* object, int* fd, uint64_t* size, uint64_t* offset) {
  return guarded([&] {
    if (object == nullptr || fd == nullptr || size == nullptr || offset == nullptr)
      return fail(TUBE_INVALID, "no object was given, or nowhere to put its descriptor");
    const Tube* tube = tube_in_process();
    if (tube == nullptr)
      return fail(TUBE_INVALID,
                  "'%s' is in this process's own memory, for there is no proxy: start the program "
                  "with `tubectl run`",
                  object->name);
    const StoreObject held = shown(*object);
    return said(tube->table->export_memory(&held, fd, size, offset), object->name);
  });
}

int tube_delete(const char* name) {
  return guarded([&] {
    if (name == nullptr) return fail(TUBE_INVALID, "no name was given");
    const Tube* tube = tube_in_process();
    return said(tube == nullptr ? local().remove(name) : tube->table->remove(name, 0, nullptr),
                name);
  });
}

int tube_delete_group(const char* group, uint32_t* count) {
  return guarded([&] {
    if (group == nullptr) return fail(TUBE_INVALID, "no group was given");
    uint32_t gone = 0;
    const Tube* tube = tube_in_process();
    int answer = TUBE_OK;
    if (tube == nullptr) gone = local().remove_group(group);
    else answer = tube->table->remove(group, 1, &gone);
    if (count != nullptr) *count = gone;
    return said(answer, group);
  });
}

int tube_list(int (*visit)(void* data, const tube_object* object), void* data) {
  return guarded([&] {
    if (visit == nullptr) return fail(TUBE_INVALID, "nothing to call");
    const Tube* tube = tube_in_process();
    if (tube == nullptr) {
      local().list(visit, data);
      return static_cast<int>(TUBE_OK);
    }
    Visit each{visit, data};
    const auto one = [](void* with, const StoreObject* seen) {
      const auto& to = *static_cast<Visit*>(with);
      tube_object object;
      show(*seen, &object);
      return to.visit(to.data, &object);
    };
    return said(tube->table->list(one, &each), "the list");
  });
}

int tube_queue(const char* const* names, size_t count) {
  return guarded([&] {
    for (size_t i = 0; i < count; ++i) {
      if (names == nullptr || names[i] == nullptr)
        return fail(TUBE_INVALID, "turn %zu of the queue has no name", i);
    }
    const Tube* tube = tube_in_process();
    return tube == nullptr ? static_cast<int>(TUBE_OK)
                           : said(tube->table->queue(names, count), "the queue");
  });
}

int tube_store(const char* name, const void* data, uint64_t bytes, tube_stream stream) {
  tube_spec spec{};
  spec.name = name;
  spec.bytes = bytes;
  spec.place = TUBE_ANY;
  return tube_put(&spec, data, stream);
}

int tube_fetch(const char* name, tube_stream stream, tube_object* object) {
  return tube_wait(name, TUBE_ANY, stream, TUBE_FOREVER, object);
}
