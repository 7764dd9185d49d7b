// A program that profiles itself with CUPTI: activity records of kernels and copies, callbacks of
// the driver API. What is recorded differs (through Tube nothing of the GPU is) and goes to stderr;
// the program's own results must be equal, and it must come to its end.
//
// CUPTI is loaded by name, from CUPTI_LIB, the loader's path or the toolkit; a machine without it
// runs the rest. Its few types are written here, as they are not in every toolkit folder.
#include <dlfcn.h>

#include "tests/programs/common.h"

namespace {

enum ActivityKind : uint32_t { kMemcpy = 1, kDriverCalls = 4, kRuntimeCalls = 5, kKernels = 10 };
constexpr int kDriverDomain = 1;
constexpr size_t kBufferBytes = 1 << 20;

struct Activity {
  uint32_t kind;
};

// What is called of CUPTI; every answer is an error code, 0 for success.
struct Cupti {
  int (*subscribe)(void**, void (*)(void*, int, uint32_t, const void*), void*) = nullptr;
  int (*enable_domain)(uint32_t, void*, int) = nullptr;
  int (*unsubscribe)(void*) = nullptr;
  int (*register_callbacks)(void (*)(uint8_t**, size_t*, size_t*),
                            void (*)(CUcontext, uint32_t, uint8_t*, size_t, size_t)) = nullptr;
  int (*enable)(uint32_t) = nullptr;
  int (*disable)(uint32_t) = nullptr;
  int (*flush)(uint32_t) = nullptr;
  int (*next_record)(uint8_t*, size_t, Activity**) = nullptr;
};
Cupti cupti;
std::atomic<int> kernels{0}, copies{0}, records{0}, calls{0};

void give_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;
}

void take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Activity* record = nullptr;
  while (valid != 0 && cupti.next_record(buffer, valid, &record) == 0) {
    ++records;
    if (record->kind == kKernels) ++kernels;
    if (record->kind == kMemcpy) ++copies;
  }
  free(buffer);
}

void on_call(void*, int, uint32_t, const void*) { ++calls; }

template <typename F>
bool find(void* library, const char* name, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  return *out != nullptr;
}

bool load_cupti() {
  const char* named = getenv("CUPTI_LIB");
  void* library = nullptr;
  for (const char* path :
       {named == nullptr ? "libcupti.so.13" : named, "libcupti.so.12", "libcupti.so",
        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", "/usr/local/cuda/lib64/libcupti.so"}) {
    library = dlopen(path, RTLD_NOW);
    if (library != nullptr) break;
  }
  return library != nullptr && find(library, "cuptiSubscribe", &cupti.subscribe) &&
         find(library, "cuptiEnableDomain", &cupti.enable_domain) &&
         find(library, "cuptiUnsubscribe", &cupti.unsubscribe) &&
         find(library, "cuptiActivityRegisterCallbacks", &cupti.register_callbacks) &&
         find(library, "cuptiActivityEnable", &cupti.enable) &&
         find(library, "cuptiActivityDisable", &cupti.disable) &&
         find(library, "cuptiActivityFlushAll", &cupti.flush) &&
         find(library, "cuptiActivityGetNextRecord", &cupti.next_record);
}

void tell(const char* what, int code) { fprintf(stderr, "cupti: %s: %d\n", what, code); }

void* start_profiling() {
  void* subscriber = nullptr;
  const int subscribed = cupti.subscribe(&subscriber, on_call, nullptr);
  tell("subscribe", subscribed);
  if (subscribed == 0) tell("driver calls", cupti.enable_domain(1, subscriber, kDriverDomain));
  tell("buffers", cupti.register_callbacks(give_buffer, take_buffer));
  for (uint32_t kind : {kKernels, kMemcpy, kDriverCalls, kRuntimeCalls})
    tell("enable", cupti.enable(kind));
  return subscribed == 0 ? subscriber : nullptr;
}

void stop_profiling(void* subscriber) {
  tell("flush", cupti.flush(0));
  for (uint32_t kind : {kKernels, kMemcpy, kDriverCalls, kRuntimeCalls})
    tell("disable", cupti.disable(kind));
  if (subscriber != nullptr) tell("unsubscribe", cupti.unsubscribe(subscriber));
  fprintf(stderr, "cupti: %d kernels, %d copies, %d records, %d calls seen\n", kernels.load(),
          copies.load(), records.load(), calls.load());
}

void work(uint32_t seed) {
  Module module("kernels.fatbin");
  CUfunction add = module.function("vector_add");
  constexpr int kCount = 70001, kRounds = 20;
  Random random(seed);
  DeviceArray<float> sum(random.floats(kCount)), term(random.floats(kCount));
  for (int i = 0; i < kRounds; ++i)
    LAUNCH(add, {(kCount + 255) / 256}, {256}, 0, nullptr, sum.pointer, term.pointer, sum.pointer,
           kCount);
  print_hash("sum", sum.read());
}

}  // namespace

int main() {
  const bool here = load_cupti();
  if (!here) fprintf(stderr, "cupti: not found, so nothing is profiled\n");
  // Once before CUDA starts, as an injected profiler does, and once in the middle of the program.
  void* subscriber = here ? start_profiling() : nullptr;
  Gpu gpu;
  work(1);
  if (here) stop_profiling(subscriber);
  work(2);
  subscriber = here ? start_profiling() : nullptr;
  work(3);
  if (here) stop_profiling(subscriber);
  return 0;
}
