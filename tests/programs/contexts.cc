// The context stack per thread, the primary context's counting, an own context, and limits.
#include "tests/programs/common.h"

#include <pthread.h>

static CUcontext primary;

static void* other_thread(void*) {
  CUcontext current = primary;
  CU(cuCtxGetCurrent(&current));
  printf("fresh thread: %s\n", current == nullptr ? "no context" : "a context");
  CU(cuCtxPushCurrent(primary));
  CUdevice device = -1;
  CU(cuCtxGetDevice(&device));
  printf("device %d\n", device);
  CU(cuCtxPopCurrent(&current));
  printf("popped %s\n", current == primary ? "the primary" : "another");
  return nullptr;
}

static void primary_state(const char* when) {
  unsigned flags = 99;
  int active = -1;
  CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
  printf("%s: flags %u, active %d\n", when, flags, active);
}

int main() {
  CU(cuInit(0));
  primary_state("start");
  SHOW(cuDevicePrimaryCtxRelease(0));
  CU(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
  CU(cuDevicePrimaryCtxRetain(&primary, 0));
  CUcontext again;
  CU(cuDevicePrimaryCtxRetain(&again, 0));
  printf("retained twice: %s\n", again == primary ? "same" : "different");
  primary_state("retained");
  CU(cuCtxPushCurrent(primary));
  CU(cuCtxPushCurrent(primary));
  CUcontext current;
  CU(cuCtxPopCurrent(&current));
  CU(cuCtxGetCurrent(&current));
  printf("after one pop: %s\n", current == primary ? "primary" : "other");
  unsigned version = 0, flags = 0;
  CU(cuCtxGetApiVersion(primary, &version));
  CU(cuCtxGetFlags(&flags));
  printf("flags %u\n", flags);
  EXPECT(version >= 3000);
  unsigned long long id = 0;
  CU(cuCtxGetId(primary, &id));
  size_t limit = 0;
  CU(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  printf("stack limit %zu\n", limit);
  CU(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  CU(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  printf("stack limit %zu\n", limit);
  pthread_t thread;
  EXPECT(pthread_create(&thread, nullptr, other_thread, nullptr) == 0);
  EXPECT(pthread_join(thread, nullptr) == 0);

  CUcontext own;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  CU(cuCtxGetCurrent(&current));
  printf("created: %s current\n", current == own ? "is" : "is not");
  CUdeviceptr memory;
  CU(cuMemAlloc(&memory, 1024));
  CU(cuMemsetD8(memory, 3, 1024));
  CU(cuCtxSynchronize());
  CU(cuMemFree(memory));
  CU(cuCtxDestroy(own));
  CU(cuCtxGetCurrent(&current));
  printf("destroyed: %s\n", current == primary ? "primary is current" : "other");
  CU(cuCtxSetCurrent(nullptr));
  SHOW(cuCtxSynchronize());
  CU(cuCtxSetCurrent(primary));
  CU(cuMemAlloc(&memory, 1024));
  CU(cuDevicePrimaryCtxRelease(0));
  primary_state("released once");
  CU(cuMemsetD8(memory, 1, 1024));
  CU(cuDevicePrimaryCtxRelease(0));
  primary_state("released twice");
  CU(cuDevicePrimaryCtxRetain(&again, 0));
  CU(cuCtxSetCurrent(again));
  CU(cuMemAlloc(&memory, 1024));
  CU(cuMemFree(memory));
  CU(cuDevicePrimaryCtxReset(0));
  primary_state("reset");
  return 0;
}
