// Memory and semaphores of other APIs, RDMA flushes, decompression, atomics across links: argument
// checks and what a device without the feature answers. No graphics API is here: what is imported
// is memory that cuMemCreate made.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/conformance/case.h"

namespace {

CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory_desc(int fd) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc{};
  desc.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  desc.handle.fd = fd;
  desc.size = 1 << 20;
  return desc;
}

CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC semaphore_desc(int fd) {
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc{};
  desc.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD;
  desc.handle.fd = fd;
  return desc;
}

}  // namespace

CASE(import_memory_null) {
  Gpu gpu;
  CUexternalMemory memory = nullptr;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = memory_desc(0);
  SHOW(cuImportExternalMemory(nullptr, &desc));
  SHOW(cuImportExternalMemory(&memory, nullptr));
}

CASE(import_memory_bad_descriptor) {
  Gpu gpu;
  CUexternalMemory memory = nullptr;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = memory_desc(-1);
  SHOW(cuImportExternalMemory(&memory, &desc));
}

CASE(import_memory_zero_size) {
  Gpu gpu;
  CUexternalMemory memory = nullptr;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = memory_desc(memfd_create("x", MFD_CLOEXEC));
  desc.size = 0;
  SHOW(cuImportExternalMemory(&memory, &desc));
}

CASE(import_memory_of_windows) {
  Gpu gpu;
  CUexternalMemory memory = nullptr;
  for (CUexternalMemoryHandleType type : {CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32, CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP,
                                          CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE}) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = memory_desc(-1);
    desc.type = type;
    desc.handle.win32.handle = nullptr;
    SHOW(cuImportExternalMemory(&memory, &desc));
  }
}

CASE(import_memory_unknown_type_and_flags) {
  Gpu gpu;
  CUexternalMemory memory = nullptr;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = memory_desc(-1);
  desc.type = static_cast<CUexternalMemoryHandleType>(99);
  SHOW(cuImportExternalMemory(&memory, &desc));
  desc = memory_desc(-1);
  desc.flags = 0x80;
  SHOW(cuImportExternalMemory(&memory, &desc));
  desc = memory_desc(-1);
  desc.reserved[0] = 1;
  SHOW(cuImportExternalMemory(&memory, &desc));
}

// Memory of cuMemCreate is as good as another API's.
struct Exported {
  static constexpr size_t kBytes = 4 << 20;
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  int fd = -1;
  explicit Exported(const Gpu& gpu) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CU(cuMemCreate(&handle, kBytes, &prop, 0));
    CU(cuMemAddressReserve(&address, kBytes, 0, 0, 0));
    CU(cuMemMap(address, kBytes, 0, handle, 0));
    CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, gpu.device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CU(cuMemSetAccess(address, kBytes, &access, 1));
    CU(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  }
  ~Exported() {
    CU(cuMemUnmap(address, kBytes));
    CU(cuMemAddressFree(address, kBytes));
    CU(cuMemRelease(handle));
  }
};

CASE(import_of_exported_memory) {
  Gpu gpu;
  Exported exported(gpu);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = memory_desc(exported.fd);
  desc.size = Exported::kBytes;
  CUexternalMemory memory = nullptr;
  const CUresult imported = cuImportExternalMemory(&memory, &desc);
  show_code("import", imported);
  if (imported != CUDA_SUCCESS) return;
  printf("the descriptor is still open: %d\n", fcntl(exported.fd, F_GETFD) >= 0);
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC whole{}, half{}, beyond{};
  whole.size = Exported::kBytes;
  half.offset = half.size = Exported::kBytes / 2;
  beyond.offset = Exported::kBytes / 2;
  beyond.size = Exported::kBytes;
  CUdeviceptr first = 0, second = 0, third = 0;
  SHOW(cuExternalMemoryGetMappedBuffer(&third, memory, &beyond));
  SHOW(cuExternalMemoryGetMappedBuffer(&first, memory, &whole));
  SHOW(cuExternalMemoryGetMappedBuffer(&second, memory, &half));
  CU(cuMemsetD32(exported.address, 7, Exported::kBytes / 4));
  CU(cuMemsetD32(second, 9, 1));
  CU(cuCtxSynchronize());
  uint32_t values[2] = {};
  CU(cuMemcpyDtoH(&values[0], first, 4));
  CU(cuMemcpyDtoH(&values[1], exported.address + Exported::kBytes / 2, 4));
  printf("%u %u\n", values[0], values[1]);
  unsigned type = 0;
  size_t bytes = 0;
  CUdeviceptr base = 0;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, first + 100));
  SHOW(cuMemGetAddressRange(&base, &bytes, first + 100));
  printf("type %u, from the beginning %d, %zu bytes\n", type, base == first, bytes);
  SHOW(cuMemFree(first));
  SHOW(cuMemFree(second));
  SHOW(cuMemFree(second));
  SHOW(cuDestroyExternalMemory(memory));
}

CASE(array_in_imported_memory) {
  Gpu gpu;
  Exported exported(gpu);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = memory_desc(exported.fd);
  desc.size = Exported::kBytes;
  CUexternalMemory memory = nullptr;
  const CUresult imported = cuImportExternalMemory(&memory, &desc);
  show_code("import", imported);
  if (imported != CUDA_SUCCESS) return;
  CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC shape{};
  shape.arrayDesc = {64, 32, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  shape.numLevels = 2;
  CUmipmappedArray mipmap = nullptr;
  SHOW(cuExternalMemoryGetMappedMipmappedArray(nullptr, memory, &shape));
  const CUresult mapped = cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &shape);
  show_code("array", mapped);
  if (mapped == CUDA_SUCCESS) {
    CUarray level = nullptr;
    CUDA_ARRAY_DESCRIPTOR plain{};
    CU(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    CU(cuArrayGetDescriptor(&plain, level));
    printf("level 1 is %zu x %zu\n", plain.Width, plain.Height);
    Random random(3);
    const std::vector<float> values = random.floats(32 * 16);
    std::vector<float> back(32 * 16);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = values.data();
    copy.srcPitch = copy.WidthInBytes = 32 * 4;
    copy.Height = 16;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = level;
    SHOW(cuMemcpy2D(&copy));
    std::swap(copy.srcMemoryType, copy.dstMemoryType);
    copy.srcArray = level;
    copy.dstArray = nullptr;
    copy.srcHost = nullptr;
    copy.dstHost = back.data();
    copy.dstPitch = 32 * 4;
    SHOW(cuMemcpy2D(&copy));
    printf("the same came back: %d\n", back == values);
    SHOW(cuMipmappedArrayDestroy(mipmap));
  }
  SHOW(cuDestroyExternalMemory(memory));
}

CASE(import_memory_of_other_descriptors) {
  Gpu gpu;
  int pipes[2] = {-1, -1};
  EXPECT(pipe(pipes) == 0);
  const int descriptors[] = {pipes[0], eventfd(0, EFD_CLOEXEC), memfd_create("x", MFD_CLOEXEC), open("/dev/null", O_RDONLY)};
  for (const int fd : descriptors) {
    CUexternalMemory memory = nullptr;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = memory_desc(fd);
    SHOW(cuImportExternalMemory(&memory, &desc));
    printf("still open: %d\n", fcntl(fd, F_GETFD) >= 0);
  }
}

CASE(import_memory_of_no_dma_buf) {
  Gpu gpu;
  const int fd = memfd_create("x", MFD_CLOEXEC);
  CUexternalMemory memory = nullptr;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = memory_desc(fd);
  desc.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD;
  SHOW(cuImportExternalMemory(&memory, &desc));
  printf("still open: %d\n", fcntl(fd, F_GETFD) >= 0);
}

CASE(import_semaphore_of_other_descriptors) {
  Gpu gpu;
  int pipes[2] = {-1, -1};
  EXPECT(pipe(pipes) == 0);
  const int descriptors[] = {pipes[0], eventfd(0, EFD_CLOEXEC), memfd_create("x", MFD_CLOEXEC), open("/dev/null", O_RDONLY)};
  for (const int fd : descriptors) {
    for (const auto type : {CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD}) {
      CUexternalSemaphore semaphore = nullptr;
      CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = semaphore_desc(fd);
      desc.type = type;
      SHOW(cuImportExternalSemaphore(&semaphore, &desc));
    }
    printf("still open: %d\n", fcntl(fd, F_GETFD) >= 0);
  }
}

CASE(buffer_of_no_memory) {
  Gpu gpu;
  CUdeviceptr p = 0;
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC desc{};
  desc.size = 4096;
  SHOW(cuExternalMemoryGetMappedBuffer(&p, nullptr, &desc));
  SHOW(cuExternalMemoryGetMappedBuffer(nullptr, nullptr, &desc));
  CUmipmappedArray array = nullptr;
  CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC array_desc{};
  SHOW(cuExternalMemoryGetMappedMipmappedArray(&array, nullptr, &array_desc));
}

CASE(destroy_no_memory) {
  Gpu gpu;
  SHOW(cuDestroyExternalMemory(nullptr));
}

CASE(import_semaphore_null) {
  Gpu gpu;
  CUexternalSemaphore semaphore = nullptr;
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = semaphore_desc(0);
  SHOW(cuImportExternalSemaphore(nullptr, &desc));
  SHOW(cuImportExternalSemaphore(&semaphore, nullptr));
}

CASE(import_semaphore_bad_descriptor) {
  Gpu gpu;
  CUexternalSemaphore semaphore = nullptr;
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = semaphore_desc(-1);
  SHOW(cuImportExternalSemaphore(&semaphore, &desc));
  desc.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  SHOW(cuImportExternalSemaphore(&semaphore, &desc));
}

CASE(import_semaphore_of_windows) {
  Gpu gpu;
  CUexternalSemaphore semaphore = nullptr;
  for (CUexternalSemaphoreHandleType type : {CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE,
                                             CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX}) {
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = semaphore_desc(-1);
    desc.type = type;
    desc.handle.win32.handle = nullptr;
    SHOW(cuImportExternalSemaphore(&semaphore, &desc));
  }
}

CASE(import_semaphore_unknown_type_and_flags) {
  Gpu gpu;
  CUexternalSemaphore semaphore = nullptr;
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = semaphore_desc(-1);
  desc.type = static_cast<CUexternalSemaphoreHandleType>(99);
  SHOW(cuImportExternalSemaphore(&semaphore, &desc));
  desc = semaphore_desc(-1);
  desc.flags = 1;
  SHOW(cuImportExternalSemaphore(&semaphore, &desc));
}

CASE(signal_and_wait_on_no_list) {
  Gpu gpu;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal{};
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait{};
  SHOW(cuSignalExternalSemaphoresAsync(nullptr, &signal, 1, stream));
  SHOW(cuWaitExternalSemaphoresAsync(nullptr, &wait, 1, stream));
}

CASE(destroy_no_semaphore) {
  Gpu gpu;
  SHOW(cuDestroyExternalSemaphore(nullptr));
}

CASE(flush_rdma_writes) {
  Gpu gpu;
  int options = 0;
  CU(cuDeviceGetAttribute(&options, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, gpu.device));
  CUresult code = cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
  bool expected = (options & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0 ? code == CUDA_SUCCESS : code == CUDA_ERROR_NOT_SUPPORTED;
  printf("%s\n", expected ? "as the attribute says" : code_name(code));
}

CASE(flush_rdma_writes_bad_arguments) {
  Gpu gpu;
  SHOW(cuFlushGPUDirectRDMAWrites(static_cast<CUflushGPUDirectRDMAWritesTarget>(9), CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
  SHOW(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, static_cast<CUflushGPUDirectRDMAWritesScope>(9)));
}

CASE(decompress) {
  Gpu gpu;
  int mask = 0;
  CU(cuDeviceGetAttribute(&mask, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, gpu.device));
  if (mask != 0) SKIP("this device decompresses");
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUmemDecompressParams params{};
  size_t failed = 77;
  SHOW(cuMemBatchDecompressAsync(&params, 1, 0, &failed, stream));
  SHOW(cuMemBatchDecompressAsync(nullptr, 1, 0, &failed, stream));
  SHOW(cuMemBatchDecompressAsync(&params, 0, 0, &failed, stream));
  SHOW(cuMemBatchDecompressAsync(&params, 1, 1, &failed, stream));
}

CASE(host_atomic_capabilities) {
  Gpu gpu;
  unsigned capabilities[2] = {99, 99};
  CUatomicOperation operations[] = {CU_ATOMIC_OPERATION_INTEGER_ADD, CU_ATOMIC_OPERATION_CAS};
  SHOW(cuDeviceGetHostAtomicCapabilities(capabilities, operations, 2, gpu.device));
  SHOW(cuDeviceGetHostAtomicCapabilities(nullptr, operations, 2, gpu.device));
  SHOW(cuDeviceGetHostAtomicCapabilities(capabilities, nullptr, 2, gpu.device));
  SHOW(cuDeviceGetHostAtomicCapabilities(capabilities, operations, 0, gpu.device));
  SHOW(cuDeviceGetHostAtomicCapabilities(capabilities, operations, 2, 99));
  operations[0] = static_cast<CUatomicOperation>(99);
  SHOW(cuDeviceGetHostAtomicCapabilities(capabilities, operations, 2, gpu.device));
}

CASE(peer_atomic_capabilities_bad_arguments) {
  Gpu gpu;
  unsigned capabilities[1] = {99};
  CUatomicOperation operations[] = {CU_ATOMIC_OPERATION_INTEGER_ADD};
  SHOW(cuDeviceGetP2PAtomicCapabilities(capabilities, operations, 1, gpu.device, gpu.device));
  SHOW(cuDeviceGetP2PAtomicCapabilities(capabilities, operations, 1, gpu.device, 99));
  SHOW(cuDeviceGetP2PAtomicCapabilities(nullptr, operations, 1, gpu.device, gpu.device));
}

CASE(without_a_context) {
  CU(cuInit(0));
  CUexternalMemory memory = nullptr;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = memory_desc(-1);
  SHOW(cuImportExternalMemory(&memory, &desc));
  SHOW(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
}
