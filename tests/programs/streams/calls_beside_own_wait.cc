// Calls that bring code into the driver, while a stream of the program waits for a value that the
// program writes after them: an attribute of a kernel that its library sets before launches. With
// the argument "variable": the first question for a library's variable, in one thread, while
// another one lets the stream go by a record behind it (a driver may keep that one back); with
// "elsewhere": the same of the first launch on another GPU of a library's kernel.
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/programs/common.h"

namespace {

struct Waiting {
  Waiting() {
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&word), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CU(cuMemHostGetDevicePointer(&address, word, 0));
    *word = 0;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuCtxSynchronize());
    CU(cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  ~Waiting() {
    CU(cuStreamSynchronize(stream));
    CU(cuStreamDestroy(stream));
    CU(cuMemFreeHost(word));
  }
  uint32_t* word = nullptr;
  CUdeviceptr address = 0;
  CUstream stream = nullptr;
};

void set_attributes() {
  const Module module("kernels.fatbin");
  CUfunction fill = module.function("fill");
  DeviceArray<uint32_t> filled(1024);
  LAUNCH(fill, {4}, {256}, 0, nullptr, filled.pointer, uint32_t{1}, 1024);
  {
    const Waiting waiting;
    SHOW(cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    SHOW(cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 1));
    size_t free_bytes = 0, total_bytes = 0;
    CU(cuMemGetInfo(&free_bytes, &total_bytes));
    printf("set\n");
    // Behind the attributes, whenever they are set.
    LAUNCH(fill, {4}, {256}, 0, waiting.stream, filled.pointer, uint32_t{7}, 1024);
    __atomic_store_n(waiting.word, 1u, __ATOMIC_RELEASE);
  }
  printf("filled: %u\n", filled.read()[1023]);
}

void ask_for_a_variable(CUcontext context) {
  const std::vector<char> image = read_beside("globals.fatbin");
  CUlibrary library = nullptr;
  CU(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUstream other = nullptr;
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  {
    const Waiting waiting;
    std::atomic<bool> begun{false};
    std::thread asks([&] {
      CU(cuCtxSetCurrent(context));
      CUdeviceptr counter = 0;
      size_t bytes = 0;
      begun = true;
      CU(cuLibraryGetGlobal(&counter, &bytes, library, "counter"));
      printf("a variable of %zu bytes\n", bytes);
    });
    while (!begun) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) {  // for it to come to its call
      CUdeviceptr at = 0;
      CU(cuMemAddressReserve(&at, 2 << 20, 0, 0, 0));
      CU(cuMemAddressFree(at, 2 << 20));
    }
    CU(cuStreamWriteValue32(other, waiting.address, 1, 0));
    asks.join();
  }
  CU(cuStreamDestroy(other));
  CU(cuLibraryUnload(library));
}

void launch_elsewhere(CUcontext here) {
  const std::vector<char> image = read_beside("kernels.fatbin");
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUcontext there = nullptr;
  CU(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU(cuLibraryGetKernel(&kernel, library, "fill"));
  const auto fill = reinterpret_cast<CUfunction>(kernel);
  DeviceArray<uint32_t> first(1024);
  LAUNCH(fill, {4}, {256}, 0, nullptr, first.pointer, uint32_t{5}, 1024);
  CU(cuDevicePrimaryCtxRetain(&there, 1));
  CU(cuCtxSetCurrent(there));
  {
    DeviceArray<uint32_t> second(1024);
    CUstream other = nullptr, writes = nullptr;
    CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&writes, CU_STREAM_NON_BLOCKING));
    {
      const Waiting waiting;
      std::atomic<bool> launched{false};
      std::thread launches([&] {
        CU(cuCtxSetCurrent(there));
        launched = true;
        LAUNCH(fill, {4}, {256}, 0, other, second.pointer, uint32_t{6}, 1024);
        CU(cuStreamSynchronize(other));
      });
      while (!launched) std::this_thread::yield();
      for (int i = 0; i < 100; ++i) {  // for it to come to its call
        CUdeviceptr at = 0;
        CU(cuMemAddressReserve(&at, 2 << 20, 0, 0, 0));
        CU(cuMemAddressFree(at, 2 << 20));
      }
      CU(cuStreamWriteValue32(writes, waiting.address, 1, 0));
      launches.join();
    }
    printf("filled elsewhere: %u\n", second.read()[1023]);
    CU(cuStreamDestroy(other));
    CU(cuStreamDestroy(writes));
  }
  CU(cuDevicePrimaryCtxRelease(1));
  CU(cuCtxSetCurrent(here));
  CU(cuLibraryUnload(library));
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IONBF, 0);
  Gpu gpu;
  if (argc > 1 && strcmp(argv[1], "variable") == 0) ask_for_a_variable(gpu.context);
  else if (argc > 1 && strcmp(argv[1], "elsewhere") == 0) launch_elsewhere(gpu.context);
  else set_attributes();
  return 0;
}
