// The same thing for the first time, twice, while a host function of the program is in flight: two
// threads look the same kernel of a library up, and a kernel that prints is launched on two
// streams. What the first one of the two waits for, the second one finds done. The program goes on
// afterwards.
#include <thread>

#include "tests/programs/common.h"

namespace {

// It takes a while, so that both come to where they wait. With less, less is tried, and the results
// are the same.
void host_function(void*) {
  for (int i = 0; i < 100'000; ++i) std::this_thread::yield();
}

void look_up_twice(CUcontext context, CUstream busy) {
  const std::vector<char> image = read_beside("kernels.fatbin");
  CUlibrary library = nullptr;
  CU(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU(cuLaunchHostFunc(busy, host_function, nullptr));
  const auto use = [&] {
    CU(cuCtxSetCurrent(context));
    CUkernel kernel = nullptr;
    CUfunction found = nullptr;
    CU(cuLibraryGetKernel(&kernel, library, "step"));
    CU(cuKernelGetFunction(&found, kernel));
  };
  std::thread first(use), second(use);
  first.join();
  second.join();
  CU(cuStreamSynchronize(busy));
  CU(cuLibraryUnload(library));
  printf("looked up\n");
}

void print_twice(CUstream busy) {
  const Module module("globals.fatbin");
  const CUfunction say = module.function("say_hello");
  CUstream streams[2];
  for (CUstream& stream : streams) CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuLaunchHostFunc(busy, host_function, nullptr));
  for (CUstream stream : streams) LAUNCH(say, {1}, {1}, 0, stream, 7, 0.5f);
  for (CUstream stream : streams) CU(cuStreamSynchronize(stream));
  CU(cuStreamSynchronize(busy));
  for (CUstream stream : streams) CU(cuStreamDestroy(stream));
  printf("printed\n");
}

}  // namespace

int main() {
  setvbuf(stdout, nullptr, _IONBF, 0);
  Gpu gpu;
  CUstream busy = nullptr;
  CU(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
  look_up_twice(gpu.context, busy);
  print_twice(busy);
  CU(cuStreamDestroy(busy));
  return 0;
}
