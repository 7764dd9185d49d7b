// A driver-API program beside a proxy that is stopped or has nothing left to give, one scene per
// argument; hostile_test.py says what must come of it. It knows nothing of Tube.
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <thread>

#include "tests/programs/common.h"

namespace {

void wait_for_the_test(const char* said) {
  printf("%s\n", said);
  fflush(stdout);
  char byte;
  EXPECT(read(0, &byte, 1) >= 0);
}

void compute() {
  Gpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 7));
  printf("computes %u\n", data.read()[63]);
}

// "S" in the thread's line of /proc: it waits for somebody.
bool sleeps(pid_t thread) {
  char path[64], line[512] = {};
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
  FILE* file = fopen(path, "re");
  EXPECT(file != nullptr && fgets(line, sizeof line, file) != nullptr);
  fclose(file);
  return strncmp(strrchr(line, ')'), ") S", 3) == 0;
}

// One thread registers memory with a proxy that the test has stopped; the main thread forks
// meanwhile.
void fork_beside_a_registration() {
  Gpu gpu;
  alignas(4096) static char memory[1 << 20];
  memory[0] = 1;
  std::atomic<pid_t> thread{0};
  std::atomic<bool> go{false};
  CUresult registered = CUDA_ERROR_UNKNOWN;
  std::thread other([&] {
    CU(cuCtxSetCurrent(gpu.context));
    thread = gettid();
    while (!go) sched_yield();
    registered = cuMemHostRegister(memory, sizeof memory, 0);
  });
  while (thread == 0) sched_yield();
  wait_for_the_test("ready");
  go = true;
  while (!sleeps(thread)) sched_yield();
  memory[0] = 2;
  const pid_t child = fork();
  if (child == 0) {
    const bool copied = memory[0] == 2;
    memory[0] = 3;
    _exit(copied ? 7 : 1);
  }
  int status = 0;
  EXPECT(child > 0 && waitpid(child, &status, 0) == child);
  printf("child %d, parent %d\n", WEXITSTATUS(status), memory[0]);
  fflush(stdout);
  other.join();
  printf("registered: %s, parent %d\n", code_name(registered), memory[0]);
  CU(cuMemHostUnregister(memory));
}

// Works on until its standard input ends; every value must be right.
void keep_computing() {
  Gpu gpu;
  for (uint32_t round = 0;; ++round) {
    DeviceArray<uint32_t> data(std::vector<uint32_t>(64, round));
    EXPECT(data.read()[63] == round);
    if (round == 0) {
      printf("computes\n");
      fflush(stdout);
    }
    pollfd end{0, POLLIN, 0};
    if (poll(&end, 1, 0) != 0) break;
  }
  printf("was right\n");
}

// Is there, and does nothing, until its standard input ends.
void stay() {
  Gpu gpu;
  printf("here\n");
  fflush(stdout);
  while (getchar() != EOF) {
  }
  _exit(0);
}

// Records as fast as it can, until its standard input ends; then its values must be right.
void flood() {
  Gpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  printf("floods\n");
  fflush(stdout);
  uint32_t value = 0;
  for (pollfd end{0, POLLIN, 0}; poll(&end, 1, 0) == 0; ++value) {
    for (int i = 0; i < 1000; ++i) CU(cuEventRecord(event, nullptr));
    CU(cuMemsetD32Async(data.pointer, value, 64, nullptr));
  }
  CU(cuCtxSynchronize());
  EXPECT(data.read()[63] == value - 1);
  printf("was right\n");
}

// Pinned memory in pieces, until the first refusal or `bytes`.
void pin(uint64_t bytes) {
  Gpu gpu;
  constexpr uint64_t kPiece = 16 << 20;
  uint64_t held = 0;
  CUresult error = CUDA_SUCCESS;
  for (void* at = nullptr; held < bytes && error == CUDA_SUCCESS; held += kPiece) {
    error = cuMemHostAlloc(&at, kPiece, 0);
    if (error != CUDA_SUCCESS) break;
    memset(at, 1, kPiece);
  }
  printf("pinned %lu MiB, then %s\n", held >> 20, code_name(error));
}

// A file that is registered, cut short, and copied from by the GPU.
void cut_a_registered_file() {
  constexpr size_t kBytes = 1 << 20;
  Gpu gpu;
  const int file = memfd_create("cut", 0);
  EXPECT(file >= 0 && ftruncate(file, kBytes) == 0);
  void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  EXPECT(at != MAP_FAILED);
  memset(at, 7, kBytes);
  CU(cuMemHostRegister(at, kBytes, 0));
  CUdeviceptr device = 0;
  CU(cuMemAlloc(&device, kBytes));
  EXPECT(ftruncate(file, 0) == 0);
  CU(cuMemcpyHtoDAsync(device, at, kBytes, nullptr));
  CU(cuCtxSynchronize());
  uint32_t first = 1;
  CU(cuMemcpyDtoH(&first, device, sizeof first));
  printf("copied %u\n", first);
}

// What each kind of write to memory that was registered for reading only answers, at once or when
// the program synchronises; reading it goes on.
void write_where_the_gpu_only_reads() {
  constexpr size_t kBytes = 1 << 20;
  Gpu gpu;
  const int file = memfd_create("read-only", 0);
  EXPECT(file >= 0 && ftruncate(file, kBytes) == 0 && pwrite(file, "\7\7\7\7", 4, 0) == 4);
  void* at = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file, 0);
  EXPECT(at != MAP_FAILED);
  CU(cuMemHostRegister(at, kBytes, CU_MEMHOSTREGISTER_READ_ONLY));
  const auto address = reinterpret_cast<CUdeviceptr>(at);
  CUdeviceptr device = 0;
  CU(cuMemAlloc(&device, kBytes));
  CU(cuMemsetD8(device, 1, kBytes));
  const auto answer = [](const char* what, CUresult called) {
    const CUresult later = cuCtxSynchronize();
    printf("%s: %s\n", what, code_name(called != CUDA_SUCCESS ? called : later));
  };
  CUDA_MEMCPY2D region{};
  region.srcMemoryType = region.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  region.srcDevice = device;
  region.dstDevice = address;
  region.srcPitch = region.dstPitch = 128;
  region.WidthInBytes = 64;
  region.Height = 4;
  answer("copy", cuMemcpyDtoHAsync(at, device, kBytes, nullptr));
  answer("small copy", cuMemcpyDtoHAsync(at, device, 64, nullptr));
  answer("region", cuMemcpy2DAsync(&region, nullptr));
  answer("memset", cuMemsetD32Async(address, 1, 16, nullptr));
  answer("write", cuStreamWriteValue32(nullptr, address, 1, 0));
  uint32_t first = 0;
  CU(cuMemcpyHtoDAsync(device, at, kBytes, nullptr));
  CU(cuMemcpyDtoH(&first, device, sizeof first));
  printf("read %08x\n", first);
}

// Reserves addresses until there are none for it, and keeps them.
void reserve_all() {
  constexpr size_t kPiece = 64ull << 30;
  Gpu gpu;
  size_t pieces = 0;
  CUdeviceptr at = 0;
  CUresult answer = CUDA_SUCCESS;
  while (pieces < 1000 && (answer = cuMemAddressReserve(&at, kPiece, 0, 0, 0)) == CUDA_SUCCESS)
    ++pieces;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 7));
  char said[100];
  snprintf(said, sizeof said, "%s after %zu GiB, computes %u", code_name(answer),
           pieces * (kPiece >> 30), data.read()[63]);
  wait_for_the_test(said);
}

// Its stream waits for a value that it never writes; it neither ends nor sends anything.
void wait_for_ever() {
  Gpu gpu;
  void* flag = nullptr;
  CU(cuMemHostAlloc(&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(flag, 0, 4096);
  CUdeviceptr address = 0;
  CU(cuMemHostGetDevicePointer(&address, flag, 0));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  CUevent behind = nullptr;
  CU(cuEventCreate(&behind, 0));
  CU(cuEventRecord(behind, stream));
  EXPECT(cuEventQuery(behind) == CUDA_ERROR_NOT_READY);
  wait_for_the_test("waits");
}

// Loads code, which needs an idle context.
void load() {
  Gpu gpu;
  static const char kImage[] =
      ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry none()\n{\nret;\n}\n";
  CUmodule module = nullptr;
  CU(cuModuleLoadData(&module, kImage));
  CUfunction function = nullptr;
  CU(cuModuleGetFunction(&function, module, "none"));
  CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  CU(cuCtxSynchronize());
  printf("loaded\n");
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc >= 2);
  const std::string scene = argv[1];
  if (scene == "compute") compute();
  else if (scene == "fork_beside_a_registration") fork_beside_a_registration();
  else if (scene == "keep_computing") keep_computing();
  else if (scene == "stay") stay();
  else if (scene == "flood") flood();
  else if (scene == "pin" && argc == 3) pin(strtoull(argv[2], nullptr, 0));
  else if (scene == "cut_a_registered_file") cut_a_registered_file();
  else if (scene == "write_where_the_gpu_only_reads") write_where_the_gpu_only_reads();
  else if (scene == "reserve_all") reserve_all();
  else if (scene == "wait_for_ever") wait_for_ever();
  else if (scene == "load") load();
  else return 2;
  return 0;
}
