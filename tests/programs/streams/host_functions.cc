// Host functions and stream callbacks: they run once, in order, after the work before and before
// the work after them. Not inside a captured graph: Tube refuses that for now.
#include "tests/programs/common.h"

#include <pthread.h>

#include <atomic>

static std::atomic<int> order{0};
struct Note {
  int at = -1;
  CUresult status = CUDA_ERROR_UNKNOWN;
  const uint32_t* look = nullptr;
  uint32_t seen = 0;
};
static void CUDA_CB host_function(void* data) {
  auto* note = static_cast<Note*>(data);
  if (note->look != nullptr) note->seen = *note->look;
  note->at = order.fetch_add(1);
}
static void CUDA_CB callback(CUstream, CUresult status, void* data) {
  auto* note = static_cast<Note*>(data);
  note->status = status;
  note->at = order.fetch_add(1);
}

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction slow = module.function("slow_step");
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  DeviceArray<uint32_t> data(std::vector<uint32_t>(256, 1));
  uint32_t* pinned = nullptr;
  CU(cuMemAllocHost(reinterpret_cast<void**>(&pinned), 4));
  *pinned = 0;

  Note notes[10];
  for (int i = 0; i < 10; ++i) {
    notes[i].look = pinned;
    LAUNCH(slow, {1}, {256}, 0, stream, data.pointer, 3u, 1u, 256, 100);
    CU(cuMemcpyDtoHAsync(pinned, data.pointer, 4, stream));
    if (i % 3 == 2) CU(cuStreamAddCallback(stream, callback, &notes[i], 0));
    else CU(cuLaunchHostFunc(stream, host_function, &notes[i]));
  }
  CU(cuStreamSynchronize(stream));
  for (int i = 0; i < 10; ++i)
    printf("note %d: at %d, saw %u, status %s\n", i, notes[i].at, notes[i].seen,
           i % 3 == 2 ? code_name(notes[i].status) : "-");
  print_hash("data", data.read());

  CU(cuMemFreeHost(pinned));
  CU(cuStreamDestroy(stream));
  return 0;
}
