// What ends the arrays that python/tube gives away by DLPack. In C: they die while exceptions are
// on their way, where no Python code may be entered, and in threads that know nothing of Python.
// The interpreter's calls come from the module, for the library is not linked with Python.
#include <atomic>
#include <cstdint>

#include "libtube/tube.h"

namespace {

struct Calls {
  int (*is_initialised)();
  int (*ensure)();
  void (*release)(int);
  void (*fetch)(void**, void**, void**);
  void (*restore)(void*, void*, void*);
  void (*unreference)(void*);
  int (*is_valid)(void* capsule, const char* name);
  void* (*pointer)(void* capsule, const char* name);
};
std::atomic<const Calls*> g_calls{nullptr};

// DLManagedTensor: `context` is a reference to all that must live as long, the tensor included.
struct Managed {
  uint64_t tensor[6];
  void* context;
  void (*deleter)(Managed*);
};
static_assert(sizeof(Managed) == 64);

}  // namespace

// For python/tube/_arrays.py alone.
extern "C" {
TUBE_API void tube_python_calls(const void* calls);
TUBE_API void tube_python_delete(void* managed);
TUBE_API void tube_python_capsule_ends(void* capsule);
}

// `calls` stays.
void tube_python_calls(const void* calls) { g_calls.store(static_cast<const Calls*>(calls)); }

// A tensor's deleter. After the interpreter's end there is nothing to free.
void tube_python_delete(void* managed) {
  const Calls* calls = g_calls.load();
  if (calls->is_initialised() == 0) return;
  void *type = nullptr, *value = nullptr, *trace = nullptr;
  const int state = calls->ensure();
  calls->fetch(&type, &value, &trace);
  calls->unreference(static_cast<Managed*>(managed)->context);
  calls->restore(type, value, trace);
  calls->release(state);
}

void tube_python_capsule_ends(void* capsule) {
  const Calls* calls = g_calls.load();
  if (calls->is_valid(capsule, "dltensor") == 0) return;  // somebody took it
  tube_python_delete(calls->pointer(capsule, "dltensor"));
}
