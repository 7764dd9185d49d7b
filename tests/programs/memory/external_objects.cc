// External memory and semaphores. The memory is cuMemCreate's own; for the semaphores the program
// makes files that only the simulated GPU takes for semaphores: a driver refuses them, and then the
// program is done.
#include <fcntl.h>
#include <sys/mman.h>

#include "tests/programs/common.h"

static int semaphore_file() {
  const int fd = memfd_create("tube-sim-semaphore", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT(fd >= 0 && ftruncate(fd, 4096) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  return fd;
}

static CUexternalSemaphore import_semaphore(int fd, CUexternalSemaphoreHandleType type) {
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc{};
  desc.type = type;
  desc.handle.fd = fd;
  CUexternalSemaphore semaphore = nullptr;
  const CUresult code = cuImportExternalSemaphore(&semaphore, &desc);
  show_code("import a semaphore", code);
  return code == CUDA_SUCCESS ? semaphore : nullptr;
}

static CUresult signal(CUexternalSemaphore semaphore, uint64_t value, CUstream stream) {
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS params{};
  params.params.fence.value = value;
  return cuSignalExternalSemaphoresAsync(&semaphore, &params, 1, stream);
}
static CUresult wait(CUexternalSemaphore semaphore, uint64_t value, CUstream stream) {
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS params{};
  params.params.fence.value = value;
  return cuWaitExternalSemaphoresAsync(&semaphore, &params, 1, stream);
}

// Two streams take turns on one value, and this process writes the last one itself.
static void timeline(const Module& module) {
  const int fd = semaphore_file();
  void* mapped = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  EXPECT(mapped != MAP_FAILED);
  auto* value = static_cast<volatile uint64_t*>(mapped);
  CUexternalSemaphore semaphore =
      import_semaphore(fd, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD);
  if (semaphore == nullptr) return;
  printf("the file is the driver's now: %d\n", fcntl(fd, F_GETFD) < 0);
  CUstream one, other;
  CU(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  const int count = 1000;
  DeviceArray<uint32_t> numbers(std::vector<uint32_t>(count, 1));
  for (uint64_t turn = 0; turn < 10; ++turn) {
    CUstream stream = turn % 2 == 0 ? one : other;
    CU(wait(semaphore, turn + 1, stream));
    LAUNCH(module.function("step"), {4}, {256}, 0, stream, numbers.pointer, 3u,
           static_cast<unsigned>(turn), count);
    CU(signal(semaphore, turn + 2, stream));
  }
  printf("before the first turn: %s\n", code_name(cuStreamQuery(one)));
  __atomic_store_n(value, 1, __ATOMIC_RELEASE);
  CU(cuStreamSynchronize(one));
  CU(cuStreamSynchronize(other));
  printf("at last %llu\n", static_cast<unsigned long long>(*value));
  print_hash("numbers", numbers.read());
  SHOW(wait(nullptr, 1, one));
  SHOW(cuDestroyExternalSemaphore(semaphore));
  SHOW(cuDestroyExternalSemaphore(semaphore));
}

static void plain() {
  CUexternalSemaphore semaphore =
      import_semaphore(semaphore_file(), CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD);
  if (semaphore == nullptr) return;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 3; ++i) {
    CU(signal(semaphore, 0, nullptr));
    CU(wait(semaphore, 0, stream));
    CU(cuStreamSynchronize(stream));
  }
  CU(wait(semaphore, 0, stream));
  printf("a fourth wait: %s\n", code_name(cuStreamQuery(stream)));
  CU(signal(semaphore, 0, nullptr));
  SHOW(cuStreamSynchronize(stream));
  // Left to the end of the program, as is a mapped buffer.
}

static void memory() {
  constexpr size_t kBytes = 2 << 20;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle;
  CU(cuMemCreate(&handle, kBytes, &prop, 0));
  for (int i = 0; i < 3; ++i) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc{};
    desc.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    desc.size = kBytes;
    CU(cuMemExportToShareableHandle(&desc.handle.fd, handle,
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUexternalMemory external = nullptr;
    const CUresult code = cuImportExternalMemory(&external, &desc);
    show_code("import memory", code);
    if (code != CUDA_SUCCESS) return;
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC part{};
    part.offset = 8192;
    part.size = 65536;
    CUdeviceptr buffer = 0;
    CU(cuExternalMemoryGetMappedBuffer(&buffer, external, &part));
    uint32_t before = 99;
    CU(cuMemcpyDtoH(&before, buffer, 4));
    if (i != 0) printf("from the round before: %u\n", before);
    CU(cuMemsetD32(buffer, static_cast<unsigned>(i) + 5, 16));
    std::vector<uint32_t> host(100, static_cast<uint32_t>(i));
    CU(cuMemcpyHtoD(buffer + 4096, host.data(), 400));
    CU(cuMemcpyDtoH(host.data(), buffer, 400));
    printf("%u %u\n", host[15], host[16]);
    if (i == 2) return;  // the rest is for the end of the program
    CU(cuMemFree(buffer));
    CU(cuDestroyExternalMemory(external));
  }
}

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  memory();
  timeline(module);
  plain();
  return 0;
}
