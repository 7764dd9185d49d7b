// Memory and semaphores of other APIs, RDMA flushes, decompression, atomics across links: argument checks and what a device without
// the feature answers. Descriptors that no graphics API made are refused by a real driver, so a round trip needs one.
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
